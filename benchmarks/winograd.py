"""What Winograd's convolution saves: the 3x3 layers of a ResNet-18, and an attack step of the network, in turn.

    python benchmarks/winograd.py --json benchmarks/results/winograd.json

Each with torch's convolution and with F(4x4, 3x3). Times are processor time, so that other work on the cores matters
less; best of a round. Errors are the largest, of a layer's results over their spread, of gradients over the largest.
"""

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from peers import positive
from tabulate import tabulate
from torch import Tensor, nn

from fairbench import load_dataset, load_model, provenance
from fairbench.files import make_folder, write_json
from fairbench.memory import keep_freed_memory
from fairbench.models.prepare import prepare
from fairbench.models.winograd import WinogradConv2d, convolve, transformed

LAYERS = {64: 32, 128: 16, 256: 8, 512: 4}
"""Side of the feature map by channels in and out."""


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """Return the processor time of a call, the least of ``repeats``."""
    took = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        took.append(time.process_time() - start)
    return 1e3 * min(took)


def compared(old: Callable[[], Any], new: Callable[[], Any], rounds: int, repeats: int) -> dict[str, Any]:
    """Return the times of both, and their ratio."""
    new()  # the matrices of its kernels are made once
    pairs = [(milliseconds(old, repeats), milliseconds(new, repeats)) for _ in range(rounds)]
    ratios = [one / other for one, other in pairs]
    return {
        "convolution_ms": median(one for one, _ in pairs),
        "winograd_ms": median(other for _, other in pairs),
        "ratio": {"median": median(ratios), "low": min(ratios), "high": max(ratios)},
    }


def layer(channels: int, images: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Compare both on one layer."""
    side = LAYERS[channels]
    generator = torch.Generator().manual_seed(0)
    last: Any = {"memory_format": torch.channels_last}
    x = torch.rand(images, channels, side, side, generator=generator).contiguous(**last)
    weight = (torch.randn(channels, channels, 3, 3, generator=generator) / (3 * channels**0.5)).contiguous(**last)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    products = transformed(weight)
    convolution: Callable[[], Tensor] = lambda: F.conv2d(x, weight, padding=1)  # noqa: E731
    winograd: Callable[[], Tensor] = lambda: convolve(x, products)  # noqa: E731
    with torch.no_grad():
        found = compared(convolution, winograd, rounds, repeats)
        errors = {
            name: float((run() - exact).abs().max() / exact.std())
            for name, run in (("convolution", convolution), ("winograd", winograd))
        }
    return {"what": f"{channels} channels, {side}x{side}", **found, "error": errors}


def network(images: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Compare an attack step of a prepared ResNet-18 with one whose layers are torch's."""
    x, y, _ = load_dataset("cifar10", "sample").batch(slice(0, images))
    fast = prepare(load_model("natural_resnet18").module, x).module
    plain = copy.deepcopy(fast)
    for part in plain.modules():
        if isinstance(part, WinogradConv2d):
            part.__class__ = nn.Conv2d
    x = x.contiguous(memory_format=torch.channels_last)

    def step(module: nn.Module, to: torch.dtype = torch.float32) -> Tensor:
        at = x.detach().to(to).requires_grad_()
        return torch.autograd.grad(F.cross_entropy(module(at), y, reduction="sum"), at)[0]

    found = compared(lambda: step(plain), lambda: step(fast), rounds, repeats)
    exact = step(copy.deepcopy(plain).double(), torch.float64)
    errors = {
        name: float((step(module) - exact).abs().max() / exact.abs().max())
        for name, module in (("convolution", plain), ("winograd", fast))
    }
    return {"what": "ResNet-18, an attack step", **found, "error": errors}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        [
            row["what"],
            f"{row['convolution_ms']:.1f} ms",
            f"{row['winograd_ms']:.1f} ms",
            f"{row['ratio']['median']:.2f} ({row['ratio']['low']:.2f} to {row['ratio']['high']:.2f})",
            f"{row['error']['convolution']:.0e}",
            f"{row['error']['winograd']:.0e}",
        ]
        for row in rows
    ]
    heads = ["", "convolution", "Winograd", "times faster", "error", "Winograd's"]
    return tabulate(lines, heads, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Run, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=positive, default=32)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--repeats", type=positive, default=3, help="calls in a round, of which the fastest counts")
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.json is not None:
        make_folder(options.json.absolute().parent)
    keep_freed_memory()
    torch.set_num_threads(options.threads)
    rows = [layer(channels, options.images, options.rounds, options.repeats) for channels in LAYERS]
    rows.append(network(options.images, options.rounds, options.repeats))
    print(table(rows))
    if options.json is not None:
        write_json({"rows": rows, "hardware": provenance.hardware(), "versions": provenance.versions()}, options.json)


if __name__ == "__main__":
    main()
