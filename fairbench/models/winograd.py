"""3x3 convolutions of wide layers with fewer products: Winograd's F(4x4, 3x3), in matrix products of torch.

16 outputs take 36 products where a convolution does 144 (Lavin and Gray, 2016, arXiv:1509.09308, section 4.2).
Transforms and copies eat some of that: benchmarks/winograd.py says what is left. The gradient to the input is such a
convolution too, with the kernel turned round. Rounding is about three times that of torch's convolution, 3e-5 of the
results' spread; layers change their class, not their tensors.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairbench.models.kernels import applies, use_fast_kernels

_WIDE = 256
"""Channels in and out from which the products saved outweigh the transforms. On one thread they do from 64 on, but the
transforms of narrow layers are too small to be shared by several, and results must not depend on the number."""
_TILES = 128
"""Tiles of 4x4 outputs at a time: as many as share a reading of the kernel and stay in the cache."""
_FEWEST = 16
"""With fewer tiles in a batch, reading four times the weights costs more than the products saved."""
_AT_ONCE = 32
"""Input channels whose kernels are transformed at once: 36 float64 for 9 float32 should not be seen in the memory."""

# The input, kernel and output transforms B^T, G and A^T.
_INPUT = torch.tensor(
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
_KERNEL = (
    torch.tensor([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], dtype=torch.float64) / 24
)
_OUTPUT = torch.tensor(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], dtype=torch.float64
)
_INPUTS, _OUTPUTS = torch.kron(_INPUT, _INPUT).float(), torch.kron(_OUTPUT, _OUTPUT).float()
_KERNELS = torch.kron(_KERNEL, _KERNEL)


def use_winograd(module: nn.Module) -> tuple[str, ...]:
    """Let every layer of a frozen copy that qualifies compute so; return their names.

    It is used for float32 batches with channels last on a processor, sides a multiple of 4, and layers of 256 channels
    or more; elsewhere the layer computes as it did. Gradients go to the layer's input alone.
    """
    return use_fast_kernels(module, (WinogradConv2d,))


class WinogradConv2d(nn.Conv2d):
    """A convolution of stride 1 that keeps the size, by F(4x4, 3x3) where the batch allows it."""

    @staticmethod
    def fits(layer: nn.Conv2d) -> bool:
        """Whether a layer has the kernel, stride and width for it."""
        one = (1, 1)
        plain = layer.stride == one == layer.dilation and layer.groups == 1 and layer.padding_mode == "zeros"
        same = layer.kernel_size == (3, 3) and layer.padding == one
        return plain and same and min(layer.in_channels, layer.out_channels) >= _WIDE

    def forward(self, x: Tensor) -> Tensor:
        """Return what ``nn.Conv2d`` does, to float32 rounding."""
        if not self._serves(x):
            return super().forward(x)
        return _Convolution.apply(x, self) if torch.is_grad_enabled() else convolve(x, self.products(), self.bias)

    def _serves(self, x: Tensor) -> bool:
        if x.ndim != 4 or not applies(x):
            return False
        height, width = x.shape[2:]
        whole = height % 4 == 0 == width % 4 and len(x) * (height // 4) * (width // 4) >= _FEWEST
        return whole and x.is_contiguous(memory_format=torch.channels_last)

    def products(self, *, gradient: bool = False) -> Tensor:
        """Return the (36, C, O) matrices of the kernel, or (36, O, C) of that which takes gradients back."""
        kept: dict[bool, tuple[int, Tensor]] = self.__dict__.setdefault("_kept", {})
        if gradient not in kept or kept[gradient][0] != self.weight._version:  # training moves the weights
            weight = self.weight.detach()
            made = transformed(weight.flip(2, 3).transpose(0, 1) if gradient else weight)
            kept[gradient] = self.weight._version, made
        return kept[gradient][1]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the matrices out of copies: they are eight times the weights, and made again in a moment."""
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: WinogradConv2d) -> Tensor:
        ctx.layer = layer
        return convolve(x, layer.products(), layer.bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        return convolve(gradient, ctx.layer.products(gradient=True)), None


def transformed(weight: Tensor) -> Tensor:
    """Return a kernel (O, C, 3, 3) as 36 matrices (36, C, O)."""
    found = weight.new_empty(36, weight.shape[1], weight.shape[0])
    taps = weight.permute(2, 3, 1, 0).flatten(0, 1)
    for part, out in zip(taps.split(_AT_ONCE, dim=1), found.split(_AT_ONCE, dim=1), strict=True):
        out.copy_(torch.mm(_KERNELS, part.double().flatten(1)).view_as(out))
    return found


def convolve(x: Tensor, products: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution of ``x`` (B, C, H, W), channels-last, with padding 1: (B, O, H, W), channels-last.

    Parameters
    ----------
    x
        float32; H and W are multiples of 4.
    products
        (36, C, O), see :func:`transformed`.
    bias
        (O,) or None.
    """
    (count, channels, height, width), out_channels = x.shape, products.shape[2]
    down, across = height // 4, width // 4
    chunk = min(max(_TILES // (down * across), 1), count)
    out = torch.empty((count, out_channels, height, width), memory_format=torch.channels_last)
    rows, written = x.permute(0, 2, 3, 1), out.permute(0, 2, 3, 1)
    written = written.view(count, down, 4, across, 4, out_channels)
    padded = torch.zeros(chunk, height + 2, width + 2, channels)
    image, row, column, _ = padded.stride()
    for start in range(0, count, chunk):
        here = min(chunk, count - start)
        padded[:here, 1:-1, 1:-1].copy_(rows[start : start + here])
        windows = padded.as_strided(
            (6, 6, here, down, across, channels), (row, column, image, 4 * row, 4 * column, 1)
        ).reshape(36, -1)
        inputs = torch.mm(_INPUTS, windows).view(36, -1, channels)
        found = torch.mm(_OUTPUTS, torch.bmm(inputs, products).view(36, -1))
        tiled = found.view(4, 4, here, down, across, out_channels).permute(2, 3, 0, 4, 1, 5)
        if bias is None:
            written[start : start + here].copy_(tiled)
        else:
            torch.add(tiled, bias, out=written[start : start + here])
    return out
