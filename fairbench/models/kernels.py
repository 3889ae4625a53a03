"""Layers of small networks, computed faster than torch does on a processor: the same function to float32 rounding.

torch's kernels are made for wide layers. On a LeNet-5 two thirds of an attack step went to the gradient of the first
convolution (one channel in: one lane in sixteen of a vector is used), to ``tanh`` and to pooling; docs/performance.md
has the table. A layer that qualifies changes its class, not its tensors: names, state dict and values stay.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_SIDES = {1: 4, 2: 2, 3: 2, 4: 2}
"""By input channels, the side of the square of pixels that fills a vector of 16 float32 as the channels of one."""


def use_fast_kernels(module: nn.Module, kernels: tuple[Any, ...] | None = None) -> tuple[str, ...]:
    """Let every layer of a frozen copy that qualifies compute by kernels, those of this file; return their names.

    They are used for float32 on a processor without autocast; elsewhere the layer computes as it did. Gradients go to
    the layer's input alone, and cannot be differentiated again.
    """
    changed = []
    for name, layer in module.named_modules():
        fast = next((cls for cls in kernels or _KERNELS if type(layer) is cls.__base__ and cls.fits(layer)), None)
        if fast is not None:
            layer.__class__ = fast
            changed.append(name)
    return tuple(changed)


def applies(x: Tensor) -> bool:
    """Whether a batch is one that the kernels are for."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def _in_pairs(x: Tensor) -> bool:
    """Whether windows of two by two tile an image that lies row after row; channels-last, torch's pooling is faster."""
    return x.ndim == 4 and x.shape[2] % 2 == 0 == x.shape[3] % 2 and x.is_contiguous() and applies(x)


class _FewChannels(torch.autograd.Function):
    """A convolution at stride 1 whose gradient to the input is a convolution at stride s, s by s pixels as channels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: "_FastConv2d") -> Tensor:
        ctx.layer = layer
        return F.conv2d(x, layer.weight, layer.bias, padding=layer.padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        kernel, side, padding = ctx.layer.gradient_kernel()
        return F.pixel_shuffle(F.conv2d(gradients[0], kernel, stride=side, padding=padding), side), None


class _FastConv2d(nn.Conv2d):
    """Few input channels, or a kernel as large as its input: then it is a matrix product."""

    _kept: tuple[int, Tensor] | None = None

    @staticmethod
    def fits(layer: Any) -> bool:
        plain = layer.stride == (1, 1) == layer.dilation and layer.groups == 1
        usual = plain and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        whole = layer.padding == (0, 0) and layer.kernel_size != (1, 1)
        return usual and (layer.in_channels in _SIDES or whole)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or not applies(x):
            return super().forward(x)
        if self.padding == (0, 0) and x.shape[2:] == self.kernel_size:
            return F.linear(x.flatten(1), self.weight.flatten(1), self.bias)[:, :, None, None]
        side = _SIDES.get(self.in_channels, 0)
        within = min(self._gradient_padding()) >= 0
        if torch.is_grad_enabled() and side and within and x.shape[2] % side == 0 == x.shape[3] % side:
            return _FewChannels.apply(x, self)
        return super().forward(x)

    def _gradient_padding(self) -> tuple[int, int]:
        (rows, columns), (top, left) = self.kernel_size, map(int, self.padding)
        return rows - 1 - top, columns - 1 - left

    def gradient_kernel(self) -> tuple[Tensor, int, tuple[int, int]]:
        """Return kernel, stride and padding of the convolution from the output's gradient to the input's."""
        side = _SIDES[self.in_channels]
        rows, columns = self.kernel_size
        if self._kept is None or self._kept[0] != self.weight._version:  # training moves the weights
            flipped = self.weight.detach().flip(2, 3).transpose(0, 1)
            kernel = flipped.new_zeros(
                self.in_channels, side, side, self.out_channels, rows + side - 1, columns + side - 1
            )
            for row in range(side):
                for column in range(side):
                    kernel[:, row, column, :, row : row + rows, column : column + columns] = flipped
            self._kept = self.weight._version, kernel.flatten(0, 2)
        return self._kept[1], side, self._gradient_padding()


class _Halving(torch.autograd.Function):
    """The mean of each window of two by two pixels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        lines = x.view(count, channels, height // 2, 2, width)
        sums = lines[:, :, :, 0] + lines[:, :, :, 1]
        return (sums[..., ::2] + sums[..., 1::2]).mul_(0.25)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        quarter = gradients[0] * 0.25
        count, channels, height, width = quarter.shape
        out = quarter.new_empty(count, channels, 2 * height, 2 * width)
        for row in (0, 1):
            for column in (0, 1):
                out[:, :, row::2, column::2] = quarter
        return out


class _FastAvgPool2d(nn.AvgPool2d):
    """Windows of two by two that do not overlap."""

    @staticmethod
    def fits(layer: Any) -> bool:
        windows = {layer.kernel_size, layer.stride} <= {2, (2, 2)} and layer.padding in (0, (0, 0))
        return windows and layer.divisor_override is None

    def forward(self, x: Tensor) -> Tensor:
        if not _in_pairs(x):
            return super().forward(x)
        return _Halving.apply(x)


class _Largest(torch.autograd.Function):
    """The largest of each window of two by two pixels; of equal ones the first, row by row, has the gradient."""

    @staticmethod
    def _of(x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        lines = x.view(count, channels, height // 2, 2, width)
        upper = torch.maximum(lines[:, :, :, 0], lines[:, :, :, 1])
        return torch.maximum(upper[..., ::2], upper[..., 1::2])

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)  # not what is returned, which the layer behind may write into
        return _Largest._of(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        out = _Largest._of(x)
        found, left = torch.empty_like(x), gradients[0].contiguous()
        for row in (0, 1):
            for column in (0, 1):
                largest = (x[:, :, row::2, column::2] == out).to(left.dtype)
                share = largest * left
                found[:, :, row::2, column::2] = share
                left = left - share
        return found


class _FastMaxPool2d(nn.MaxPool2d):
    """Windows of two by two that do not overlap."""

    @staticmethod
    def fits(layer: Any) -> bool:
        windows = {layer.kernel_size, layer.stride} <= {2, (2, 2)} and layer.padding in (0, (0, 0))
        return windows and layer.dilation in (1, (1, 1)) and not layer.return_indices

    def forward(self, x: Tensor) -> Tensor:
        if not _in_pairs(x):
            return super().forward(x)
        return _Largest.apply(x)


class _FastAdaptiveMaxPool2d(nn.AdaptiveMaxPool2d):
    """An image that has the size already."""

    @staticmethod
    def fits(layer: Any) -> bool:
        return not layer.return_indices

    def forward(self, x: Tensor) -> Tensor:
        size: Any = self.output_size
        fits = tuple(x.shape[-2:]) == ((size, size) if isinstance(size, int) else size)
        return x.clone() if fits else super().forward(x)  # the layer behind may write into it


class _TanhFunction(torch.autograd.Function):
    """tanh(x) = 2 sigmoid(2x) - 1, right to 2e-7; the gradient is 1 - tanh(x)^2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.mul(x, 2).sigmoid_().mul_(2).sub_(1)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        gradient = gradients[0]
        return torch.addcmul(gradient, gradient * out, out, value=-1)


class _FastTanh(nn.Tanh):
    @staticmethod
    def fits(layer: nn.Module) -> bool:
        return True

    def forward(self, x: Tensor) -> Tensor:
        return _TanhFunction.apply(x) if applies(x) else super().forward(x)


_KERNELS: tuple[Any, ...] = (_FastConv2d, _FastAvgPool2d, _FastMaxPool2d, _FastAdaptiveMaxPool2d, _FastTanh)
