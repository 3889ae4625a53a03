"""What the kernels for small layers gain: an attack step and a forward pass with and without them, side by side.

    python benchmarks/kernels.py --rounds 7 --json benchmarks/results/kernels.json

One network of each kind with random weights, float32, a batch of images of the size it is made for. The two copies are
asked in turn, round after round, in one process and on all its threads; ratios are taken within a round. Rates count
the multiplications and additions of convolutions and matrix products that the plain copy does.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peers import environment, positive
from tabulate import tabulate
from torch import Tensor, nn

from fairbench.evaluation.speed import count_flops
from fairbench.files import write_json
from fairbench.memory import keep_freed_memory
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.kernels import use_fast_kernels
from fairbench.models.layout import settle_layout
from fairbench.models.prepare import frozen

NETWORKS: dict[str, tuple[int, int, int]] = {
    "lenet5": (1, 32, 100),
    "small_cnn": (3, 32, 100),
    "resnet18": (3, 32, 16),
}
"""Input channels, side of the image, images in a batch."""

Work = Callable[[], Any]


def copies(name: str) -> tuple[dict[str, nn.Module], Tensor]:
    """Return the copy without and the one with kernels, each in its layout, and the batch (B, C, H, W) float32."""
    channels, side, count = NETWORKS[name]
    torch.manual_seed(0)
    plain = ARCHITECTURES[name].build(num_classes=10, in_channels=channels)
    plain, fast = frozen(plain), frozen(plain)
    use_fast_kernels(fast)
    x = torch.rand(count, channels, side, side)
    settle_layout(fast, x)
    plain.to(memory_format=torch.channels_last)  # what every copy was before there were kernels
    return {"plain": plain, "kernels": fast}, x


def forward(module: nn.Module, x: Tensor) -> Work:
    """Return one query, as Square asks thousands."""

    def run() -> Tensor:
        with torch.no_grad():
            return module(x)  # type: ignore[no-any-return]

    return run


def step(module: nn.Module, x: Tensor) -> Work:
    """Return one step of a gradient attack: forward, and the gradient with respect to the images."""
    x = x.clone().requires_grad_()

    def run() -> Tensor:
        return torch.autograd.grad(module(1 * x).logsumexp(1).sum(), x)[0]

    return run


def seconds(run: Work, repeats: int) -> float:
    """Return the seconds of one call, the least of ``repeats``."""
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        took.append(time.perf_counter() - start)
    return min(took)


def compare(name: str, kind: str, work: Callable[[nn.Module, Tensor], Work], options: Any) -> dict[str, Any]:
    """Time both copies in turn and return medians, the ratio's range, and how far the results are apart."""
    modules, x = copies(name)
    runs = {which: work(module, x) for which, module in modules.items()}
    apart = (runs["plain"]() - runs["kernels"]()).abs().max() / runs["plain"]().abs().max()
    counted = count_flops(modules["plain"], x[:1])
    flops = counted.step if kind == "attack step" else counted.forward
    rounds = [{which: seconds(run, options.repeats) for which, run in runs.items()} for _ in range(options.rounds)]
    ratios = [one["plain"] / one["kernels"] for one in rounds]
    micros = {which: 1e6 * median(one[which] for one in rounds) / len(x) for which in runs}
    return {
        "network": name,
        "work": kind,
        "images": len(x),
        "microseconds_per_image": micros,
        "ratio": {"median": median(ratios), "low": min(ratios), "high": max(ratios)},
        "gflops_per_second": {which: flops / value / 1e3 for which, value in micros.items()},
        "largest_difference": float(apart),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = []
    for row in rows:
        micros, ratio, rate = row["microseconds_per_image"], row["ratio"], row["gflops_per_second"]
        lines.append(
            [
                row["network"],
                row["work"],
                f"{micros['plain']:.0f}",
                f"{micros['kernels']:.0f}",
                f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
                f"{rate['plain']:.0f}",
                f"{rate['kernels']:.0f}",
                f"{row['largest_difference']:.0e}",
            ]
        )
    heads = ["network", "work", "µs/image plain", "with kernels", "ratio", "GFLOP/s plain", "with kernels", "apart"]
    return tabulate(lines, heads, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Run, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--repeats", type=positive, default=10, help="calls in a round, of which the fastest counts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    keep_freed_memory()
    kinds: dict[str, Callable[[nn.Module, Tensor], Work]] = {"attack step": step, "query": forward}
    rows = [compare(name, kind, work, options) for name in NETWORKS for kind, work in kinds.items()]
    print(table(rows))
    if options.json:
        write_json({"environment": environment(), "rounds": options.rounds, "rows": rows}, options.json)


if __name__ == "__main__":
    main()
