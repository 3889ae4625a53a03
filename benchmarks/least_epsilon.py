"""Is bisection worth it? Least epsilon by ``bisect`` and by ``scan``, on the same images, model and grid of radii.

    python benchmarks/least_epsilon.py --json benchmarks/results/least_epsilon.json

Both search radii 1/255 apart up to 32/255 with PGD-20 on a robust model of the zoo, and take turns. Work is counted in
passes (forward and gradient to the image) an image. Exit code 1: less than 8 times faster, or they disagree by more
than one radius on more than 0.5 % of the images.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import environment, exit_with
from tabulate import tabulate
from torch import Tensor, nn

from fairbench import load_dataset, load_model
from fairbench.attacks.base import ThreatModel, run_attack
from fairbench.attacks.least_epsilon import LeastEpsilon
from fairbench.files import make_folder, write_json
from fairbench.models.prepare import frozen, prepare

RESOLUTION, LARGEST = 1 / 255, 32 / 255
FASTER, AGREEING = 8.0, 0.995


class Counted(nn.Module):
    """A model that counts the images it was given with gradient."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.passes = module, 0

    def forward(self, x: Tensor) -> Tensor:
        """Count and answer."""
        if torch.is_grad_enabled():
            self.passes += len(x)
        return self.module(x)


def search(kind: str, module: nn.Module, batch: tuple[Tensor, Tensor, np.ndarray], classes: int) -> dict[str, Any]:
    """Search once; return the radii (NaN: none breaks it), passes an image, and seconds."""
    attack = LeastEpsilon(ThreatModel(LARGEST), RESOLUTION, search=kind)
    original = frozen(module)
    counted = Counted(prepare(module, batch[0][:32]).module)
    start = time.perf_counter()
    found = run_attack(attack, original, counted, batch, num_classes=classes, tick=lambda _work: None)
    seconds = time.perf_counter() - start
    return {"radius": found["least-epsilon_epsilon"], "passes": counted.passes / len(batch[0]), "seconds": seconds}


def agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Return the share of images on which both say the same to one radius, withstanding included."""
    levels = [np.round(np.nan_to_num(radius, nan=LARGEST + RESOLUTION) / RESOLUTION) for radius in (one, other)]
    return float((np.abs(levels[0] - levels[1]) <= 1).mean())


def main() -> int:
    """Run, print and keep; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bat_lenet5_fashion_mnist")
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    model = load_model(asked.model)
    data = load_dataset(str(model.dataset), "sample")
    if model.input_size is not None:
        data = data.resized(*model.input_size)
    rows = np.linspace(0, len(data) - 1, min(asked.images, len(data))).astype(int)
    batch = data.subset(rows).batch(slice(None))
    rounds = [
        {k: search(k, model.module, batch, data.num_classes) for k in ("scan", "bisect")} for _ in range(asked.rounds)
    ]
    ratios = [r["scan"]["seconds"] / r["bisect"]["seconds"] for r in rounds]
    agreeing = agreement(rounds[0]["scan"]["radius"], rounds[0]["bisect"]["radius"])
    seconds = {k: statistics.median(r[k]["seconds"] for r in rounds) for k in ("scan", "bisect")}
    passes = {k: rounds[0][k]["passes"] for k in ("scan", "bisect")}
    table = [[k, f"{passes[k]:.1f}", f"{seconds[k]:.1f}"] for k in ("scan", "bisect")]
    print(tabulate(table, ["", "passes an image", "seconds"], "github", disable_numparse=True))
    ratio = statistics.median(ratios)
    print(f"\nbisect is {ratio:.1f} times faster ({min(ratios):.1f} to {max(ratios):.1f})")
    print(f"passes: {passes['scan'] / passes['bisect']:.1f} times fewer")
    print(f"same to one radius: {100 * agreeing:.1f} % of {len(rows)} images")
    if asked.json is not None:
        make_folder(asked.json.parent)
        document = {
            "model": asked.model,
            "n": len(rows),
            "resolution": RESOLUTION,
            "max_epsilon": LARGEST,
            "passes": passes,
            "seconds": seconds,
            "ratios": ratios,
            "agreement": agreeing,
            "environment": environment(),
        }
        write_json(document, asked.json)
    return 0 if ratio >= FASTER and agreeing >= AGREEING else 1


if __name__ == "__main__":
    exit_with(main)
