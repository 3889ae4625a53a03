"""Would Winograd's convolution pay? The 3x3 layers of a ResNet-18 by torch's convolution and by F(4x4, 3x3), in turn.

    python benchmarks/winograd.py --json benchmarks/results/winograd.json

F(4x4, 3x3) (Lavin and Gray, 2016, arXiv:1509.09308, section 4.2) gives 16 outputs from 36 products where a convolution
needs 144. Here it is three matrix products of torch and the copies between them, a few images at a time so that all
stays in the cache. Times are processor time, so that other work on the cores matters less; best of a round.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from peers import positive
from tabulate import tabulate
from torch import Tensor

from fairbench import provenance
from fairbench.files import make_folder, write_json
from fairbench.memory import keep_freed_memory

LAYERS = {64: 32, 128: 16, 256: 8, 512: 4}
"""Side of the feature map by channels in and out."""
CHUNKS = {64: (1, 2), 128: (2, 4), 256: (16, 32), 512: (16, 32)}
"""Images at a time to try."""
# The input, kernel and output transforms B^T, G and A^T.
INPUT = torch.tensor(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
    dtype=torch.float64,
)
KERNEL = (
    torch.tensor([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=torch.float64) / 24
)
OUTPUT = torch.tensor(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], dtype=torch.float64
)


def transformed(weight: Tensor) -> Tensor:
    """Return a kernel (O, C, 3, 3) as 36 matrices (36, C, O)."""
    found = torch.einsum("ij,ocjk,lk->ilco", KERNEL, weight.double(), KERNEL)
    return found.flatten(0, 1).float().contiguous()


class Winograd:
    """The convolution of (B, C, S, S) float32, channels-last, padding 1, with its buffers."""

    def __init__(self, weight: Tensor, side: int, chunk: int) -> None:
        self.kernel, self.chunk, self.tiles = transformed(weight), chunk, side // 4
        out_channels, channels = weight.shape[:2]
        tiles = (chunk, self.tiles, self.tiles)
        count = chunk * self.tiles**2
        self.padded = torch.zeros(chunk, side + 2, side + 2, channels)
        a, b, c, _ = self.padded.stride()
        self.windows = self.padded.as_strided((6, 6, *tiles, channels), (b, c, a, 4 * b, 4 * c, 1))
        self.gathered = torch.empty(6, 6, *tiles, channels)
        self.inputs, self.products = torch.empty(36, count * channels), torch.empty(36, count, out_channels)
        self.outputs = torch.empty(16, count * out_channels)
        self.input_transform = torch.kron(INPUT, INPUT).float()
        self.output_transform = torch.kron(OUTPUT, OUTPUT).float()

    def __call__(self, x: Tensor, out: Tensor) -> Tensor:
        """Write the convolution of ``x`` into ``out``."""
        rows, written = x.permute(0, 2, 3, 1), out.permute(0, 2, 3, 1)
        written = written.view(len(x), self.tiles, 4, self.tiles, 4, out.shape[1])
        for start in range(0, len(x), self.chunk):
            part = slice(start, start + self.chunk)
            self.padded[:, 1:-1, 1:-1].copy_(rows[part])
            self.gathered.copy_(self.windows)
            torch.mm(self.input_transform, self.gathered.view(36, -1), out=self.inputs)
            torch.bmm(self.inputs.view(36, self.products.shape[1], -1), self.kernel, out=self.products)
            torch.mm(self.output_transform, self.products.view(36, -1), out=self.outputs)
            found = self.outputs.view(4, 4, self.chunk, self.tiles, self.tiles, -1)
            written[part].copy_(found.permute(2, 3, 0, 4, 1, 5))
        return out


def milliseconds(run: Callable[[], Any], repeats: int) -> float:
    """Return the processor time of a call, the least of ``repeats``."""
    took = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        took.append(time.process_time() - start)
    return 1e3 * min(took)


def layer(channels: int, images: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Compare both on one layer."""
    side = LAYERS[channels]
    generator = torch.Generator().manual_seed(0)
    last: Any = {"memory_format": torch.channels_last}
    x = torch.rand(images, channels, side, side, generator=generator).contiguous(**last)
    weight = (torch.randn(channels, channels, 3, 3, generator=generator) / (3 * channels**0.5)).contiguous(**last)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    out = torch.empty_like(x)
    convolution: Callable[[], Tensor] = lambda: F.conv2d(x, weight, padding=1)  # noqa: E731
    runs = {chunk: Winograd(weight, side, chunk) for chunk in CHUNKS[channels] if images % chunk == 0}
    chunk = min(runs, key=lambda one: milliseconds(lambda: runs[one](x, out), repeats + 1))
    pairs = [
        (milliseconds(convolution, repeats), milliseconds(lambda: runs[chunk](x, out), repeats)) for _ in range(rounds)
    ]
    ratios = [direct / winograd for direct, winograd in pairs]
    return {
        "channels": channels,
        "side": side,
        "images_at_a_time": chunk,
        "convolution_ms": median(direct for direct, _ in pairs),
        "winograd_ms": median(winograd for _, winograd in pairs),
        "ratio": {"median": median(ratios), "low": min(ratios), "high": max(ratios)},
        "error": {
            "convolution": float((convolution() - exact).abs().max() / exact.std()),
            "winograd": float((runs[chunk](x, out) - exact).abs().max() / exact.std()),
        },
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        [
            f"{row['channels']}, {row['side']}x{row['side']}",
            f"{row['convolution_ms']:.1f} ms",
            f"{row['winograd_ms']:.1f} ms",
            f"{row['ratio']['median']:.2f} ({row['ratio']['low']:.2f} to {row['ratio']['high']:.2f})",
            f"{row['error']['convolution']:.0e}",
            f"{row['error']['winograd']:.0e}",
        ]
        for row in rows
    ]
    heads = ["channels, side", "convolution", "Winograd", "times faster", "error", "Winograd's"]
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
    with torch.no_grad():
        rows = [layer(channels, options.images, options.rounds, options.repeats) for channels in LAYERS]
    print(table(rows))
    if options.json is not None:
        write_json({"rows": rows, "hardware": provenance.hardware(), "versions": provenance.versions()}, options.json)


if __name__ == "__main__":
    main()
