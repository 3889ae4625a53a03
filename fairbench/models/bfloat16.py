"""The attack-ready copy in bfloat16: gradients from half the bits, labels as float32 has them.

A bfloat16 has 8 bits of precision, so logits are off by about half a percent of their spread. For the sign of a
gradient that is little. For a label it matters where two classes are almost even, and attacks live there: one that
stops at a "success" which float32 does not confirm has given up on an example too early, and Square would keep changes
that rounding alone made look good. So examples whose two largest logits are nearer to each other than rounding moves
them get the logits of the float32 copy; the gradient still comes from bfloat16. Verdicts are the original's in any
case.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.models.folding import Folded
from fairbench.models.layout import Layout, settle_layout
from fairbench.provenance import computes_in_bfloat16

_COARSE = 0.5
"""Largest mean difference of logits, relative to their spread, that rounding may cause before the copy is not used."""


class Bfloat16(nn.Module):
    """Two copies of a network: one computes in bfloat16, and one in float32 is asked where classes are almost even.

    Parameters
    ----------
    rounded, exact
        The copies; both map (B, ...) float32 to (B, K) float32 logits.
    reach
        How far rounding moves two logits apart, in standard deviations of an example's logits.
    """

    def __init__(self, rounded: nn.Module, exact: nn.Module, reach: float) -> None:
        super().__init__()
        self.rounded, self.exact, self.reach = rounded, exact, reach
        self.eval()  # for whoever asks: attacks restore the mode they find

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, K) float32 logits; their gradient is that of the bfloat16 copy."""
        logits: Tensor = self.rounded(x)
        found = logits.detach()
        top = found.topk(2, dim=1).values
        even = torch.nonzero(~(top[:, 0] - top[:, 1] > self.reach * found.std(1)))[:, 0]  # NaN too is asked again
        if not len(even):
            return logits
        with torch.no_grad():
            exact = found.index_copy(0, even, self.exact(x[even]))
        return exact + (logits - found)  # the second term is 0, and carries the gradient


def in_bfloat16(plain: nn.Module, exact: nn.Module, probe: Tensor) -> tuple[Bfloat16 | None, Layout]:
    """Return the copy in bfloat16 and the layout it takes; None where it cannot compute so, or is far off.

    Parameters
    ----------
    plain
        The frozen original.
    exact
        The attack-ready copy in float32.
    probe
        (B, ...) real inputs.
    """
    with torch.no_grad():
        expected = exact(probe)
    for float32_head in (True, False):
        rounded = _rounded(plain, float32_head=float32_head)
        try:
            layout, found = settle_layout(rounded, probe) if probe.ndim == 4 else _as_it_is(rounded, probe)
        except Exception:  # an operation without a kernel for bfloat16, or a head that is not the last layer
            continue
        if found.shape != expected.shape or found.shape[1] < 2 or not torch.isfinite(found).all():
            continue
        error, spread = found - expected, expected.std(1)
        if error.abs().mean() > _COARSE * spread.mean():
            continue
        apart = (error.amax(1) - error.amin(1)) / spread.clamp(min=torch.finfo(spread.dtype).tiny)
        return Bfloat16(rounded, exact, float(apart.max())), layout
    return None, torch.contiguous_format


def emulated(device: torch.device) -> str | None:
    """Return what to say of a device without instructions for bfloat16; None of one that has them."""
    if computes_in_bfloat16(str(device)):
        return None
    return f"this {device.type} has no bf16 instructions: bf16 is emulated, and many times slower than float32."


def _as_it_is(module: nn.Module, x: Tensor) -> tuple[Layout, Tensor]:
    with torch.no_grad():
        return torch.contiguous_format, module(x)


def _rounded(plain: nn.Module, *, float32_head: bool) -> nn.Module:
    """Return a copy that computes in bfloat16, but for its last dense layer: rounding there would make logits equal."""
    rounded = Folded(plain, torch.bfloat16).module
    heads = [layer for layer in rounded.modules() if type(layer) is nn.Linear]
    if float32_head and heads:
        name = next(name for name, layer in rounded.named_modules() if layer is heads[-1])
        head, source = heads[-1], plain.get_submodule(name.removeprefix("module."))
        state = {key: value.float().clone() for key, value in source.state_dict().items()}
        head.load_state_dict(state, assign=True)
        head.requires_grad_(False).__class__ = _Float32Linear
    return rounded


class _Float32Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.float(), self.weight, self.bias)
