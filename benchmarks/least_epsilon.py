"""Is bisection worth it? Least epsilon by ``bisect`` and by ``scan``, on the same images, model and grid of radii.

    python benchmarks/least_epsilon.py --json benchmarks/results/least_epsilon.json

Both search radii 1/255 apart up to 32/255 with PGD-20 on robust models of the zoo, and take turns. Work is counted in
passes (forward and gradient to the image) an image. Exit code 1: less than 8 times faster (the median of the models),
or they disagree by more than one radius on more than 0.5 % of a model's images.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import environment, exit_with
from torch import Tensor, nn

from fairbench import load_dataset, load_model
from fairbench.attacks.base import ThreatModel, run_attack
from fairbench.attacks.least_epsilon import LeastEpsilon
from fairbench.files import make_folder, write_json
from fairbench.models.prepare import frozen, prepare

RESOLUTION, LARGEST = 1 / 255, 32 / 255
FASTER, AGREEING = 8.0, 0.995
KINDS = ("scan", "bisect")
MODELS = tuple(f"{method}_lenet5_fashion_mnist" for method in ("pgd_at", "trades6", "bat"))
HEADER = ("model", "passes, scan", "bisect", "fewer", "seconds, scan", "bisect", "faster", "same to one radius")


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


def measure(name: str, images: int, count: int) -> dict[str, Any]:
    """Let both searches take turns on a model, print what they took, and return it."""
    model = load_model(name)
    data = load_dataset(str(model.dataset), "sample")
    if model.input_size is not None:
        data = data.resized(*model.input_size)
    rows = np.linspace(0, len(data) - 1, min(images, len(data))).astype(int)
    batch = data.subset(rows).batch(slice(None))
    rounds = [{k: search(k, model.module, batch, data.num_classes) for k in KINDS} for _ in range(count)]
    found = {
        "model": name,
        "n": len(rows),
        "passes": {k: rounds[0][k]["passes"] for k in KINDS},
        "seconds": {k: statistics.median(r[k]["seconds"] for r in rounds) for k in KINDS},
        "ratios": [r["scan"]["seconds"] / r["bisect"]["seconds"] for r in rounds],
        "agreement": agreement(rounds[0]["scan"]["radius"], rounds[0]["bisect"]["radius"]),
    }
    print(row(found))
    return found


def row(found: dict[str, Any]) -> str:
    """Return a line of the table."""
    passes, seconds, ratios = found["passes"], found["seconds"], found["ratios"]
    cells = [
        *(f"`{found['model']}`", f"{passes['scan']:.1f}", f"{passes['bisect']:.1f}"),
        f"{passes['scan'] / passes['bisect']:.1f}",
        *(f"{seconds['scan']:.1f}", f"{seconds['bisect']:.1f}"),
        f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
        f"{100 * found['agreement']:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Run, print and keep; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    found = [measure(name, asked.images, asked.rounds) for name in asked.model or MODELS]
    ratio = statistics.median(statistics.median(one["ratios"]) for one in found)
    print(f"\nbisect is {ratio:.1f} times faster, the median of {len(found)} model(s)")
    if asked.json is not None:
        make_folder(asked.json.parent)
        document = {
            "resolution": RESOLUTION,
            "max_epsilon": LARGEST,
            "models": found,
            "ratio": ratio,
            "environment": environment(),
        }
        write_json(document, asked.json)
    return 0 if ratio >= FASTER and min(one["agreement"] for one in found) >= AGREEING else 1


if __name__ == "__main__":
    exit_with(main)
