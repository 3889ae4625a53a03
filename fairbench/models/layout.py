"""Channels-last where a network gains by it: wide convolutions are faster so, but ``view`` after one of them raises."""

import torch
from torch import Tensor, nn

Layout = torch.memory_format

_WIDE = 32
"""Channels in and out from which a convolution gains: with fewer (a LeNet-5 has 16), lanes of a vector stay idle."""
_WIDE_DENSE = 128
"""Features in and out of a dense layer that counts as wide (a LeNet-5 has 84)."""


def settle_layout(module: nn.Module, x: Tensor) -> tuple[Layout, Tensor]:
    """Bring a network to channels-last if it has a wide 2-D convolution and can compute so, else leave it as it was.

    Parameters
    ----------
    module
        Its parameters change their layout in memory, not their values; its mode stays.
    x
        (B, C, H, W) float32, on its device.

    Returns
    -------
    layout, logits
        The layout to give it batches in, and what it returned for ``x``, in its present mode and without gradient.

    Raises
    ------
    Exception
        Whatever its forward pass raises in either layout.
    """
    if any(_is_wide(m) for m in module.modules()):
        before = [(t, t.data) for t in (*module.parameters(), *module.buffers())]
        try:
            module.to(memory_format=torch.channels_last)
            with torch.no_grad():
                return torch.channels_last, module(x.contiguous(memory_format=torch.channels_last))
        except RuntimeError:  # "view size is not compatible": a network written for one layout; or 5-D weights
            for tensor, data in before:  # with one channel the two layouts are told apart by strides alone
                tensor.data = data
    with torch.no_grad():
        return torch.contiguous_format, module(x.contiguous())


def is_narrow(module: nn.Module) -> bool:
    """Whether it has 2-D convolutions, and neither one of them nor a dense layer is wide: a LeNet-5, no transformer."""
    layers = list(module.modules())
    dense = any(isinstance(m, nn.Linear) and min(m.in_features, m.out_features) >= _WIDE_DENSE for m in layers)
    return not dense and any(isinstance(m, nn.Conv2d) for m in layers) and not any(map(_is_wide, layers))


def _is_wide(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d) and min(layer.in_channels, layer.out_channels) >= _WIDE
