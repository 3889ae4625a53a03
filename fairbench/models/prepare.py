"""The attack-ready copy of a model: what an attack needs and nothing more, checked against the original.

An attack wants gradients of the input only, so weights are frozen; batch norm in ``eval()`` is an affine map, so it is
folded into the convolution before it; wide convolutions run faster with channels last, and layers of small networks by
the kernels of kernels.py. Gradients may be had in bfloat16 (bfloat16.py). Verdicts are always the original's: the
harness re-scores every proposal with it.
"""

import copy
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fairbench.errors import ModelError, first_line
from fairbench.memory import is_out_of_memory
from fairbench.models.bfloat16 import emulated, in_bfloat16
from fairbench.models.folding import Folded
from fairbench.models.kernels import use_fast_kernels
from fairbench.models.layout import settle_layout
from fairbench.models.winograd import use_winograd


class Limits(NamedTuple):
    """How far a copy may be off: in logits, relative to their spread, and in gradients to the input, in L2."""

    logits: float
    gradient: float


_LIMITS = Limits(logits=1e-3, gradient=1e-2)
"""Float32 rounding is near 1e-5; in gradients it moves units over their kink, and with it all behind them."""
_DIRECTIONS = 16
_GRADIENT_PROBE = 8
"""Inputs whose gradients are compared."""


@dataclass(frozen=True)
class Prepared:
    """A module to attack, what was done to it, and a warning where the original had to be used."""

    module: nn.Module
    steps: tuple[str, ...]
    warning: str | None = None


def prepare(module: nn.Module, probe: Tensor, precision: str = "fp32") -> Prepared:
    """Return an attack-ready copy: eval, frozen, batch norm folded, fast kernels, channels-last.

    Parameters
    ----------
    module
        The original, which stays as it is.
    probe
        (B, C, H, W) real inputs on the module's device, on which copy and original are compared.
    precision
        "bf16": the copy computes gradients in bfloat16.

    Returns
    -------
    Prepared
        On disagreement in logits or gradients (or an architecture that cannot be traced) the module is a plain frozen
        copy.
    """
    plain = frozen(module)
    prepared = _prepared(plain, probe)
    return prepared if precision == "fp32" else _half(plain, prepared, probe)


def _prepared(plain: nn.Module, probe: Tensor) -> Prepared:
    try:
        return _checked(plain, probe)
    except Exception as error:  # of the copy: the model itself has answered before
        if is_out_of_memory(error):
            raise
        warning = f"the attack-ready copy fails ({first_line(error)}); the model itself is attacked."
        return Prepared(plain, ("eval", "frozen"), warning)


def _checked(plain: nn.Module, probe: Tensor) -> Prepared:
    copied = Folded(plain)
    folded = copied.module
    steps = ("eval", "frozen") + (("batch norm folded",) if copied.pairs else ())
    if use_fast_kernels(folded) + use_winograd(folded):
        steps += ("fast kernels",)
    layout, found = settle_layout(folded, probe)
    if layout == torch.channels_last:
        steps += ("channels-last",)
    if not _is_same(plain, folded, probe.contiguous(memory_format=layout), found, _LIMITS):
        warning = "the attack-ready copy disagreed with the model on a probe batch; the model itself is attacked."
        return Prepared(plain, ("eval", "frozen"), warning)
    return Prepared(folded, steps)


def _half(plain: nn.Module, prepared: Prepared, probe: Tensor) -> Prepared:
    half, layout = (None, None) if prepared.warning else in_bfloat16(plain, prepared.module, probe)
    if half is None:
        warning = (
            "the model cannot be attacked in bf16 (an operation without it, or too coarse): gradients are float32."
        )
        return Prepared(prepared.module, prepared.steps, " ".join(filter(None, (prepared.warning, warning))))
    steps = (*(s for s in prepared.steps if s != "channels-last"), "bfloat16")
    if layout == torch.channels_last:
        steps += ("channels-last",)
    return Prepared(half, steps, " ".join(filter(None, (prepared.warning, emulated(probe.device)))) or None)


def frozen(module: nn.Module) -> nn.Module:
    """Return a deep copy in ``eval()`` mode whose parameters take no gradient.

    Raises
    ------
    ModelError
        It cannot be copied.
    """
    try:
        copied = copy.deepcopy(module)
    except Exception as error:  # a module may hold anything
        if is_out_of_memory(error):
            raise
        advice = ""
        if "explicitly by the user" in str(error):  # torch's own: a weight computed from others
            advice = (
                " Use the weight_norm or spectral_norm of torch.nn.utils.parametrizations, or build the model, load "
            )
            advice += "its weights and evaluate it, all under torch.no_grad()."
        raise ModelError(f"{type(module).__name__} cannot be copied: {first_line(error)}{advice}") from error
    return copied.eval().requires_grad_(False)


def gradient_kind(module: nn.Module, x: Tensor) -> list[str]:
    """Say roughly how a module passes gradients back at (B, ...) inputs: which examples have one, and its size.

    The size is to a factor of 16, and of the direction there is one sign: rounding, which differs from machine to
    machine, does not show.
    """
    try:
        gradient = _gradient(module, x[:_GRADIENT_PROBE])
    except Exception:
        return ["fails"]
    if gradient is None:
        return ["none"]
    norms = gradient.flatten(1).norm(dim=1)
    total = float(norms.norm())
    size = f"16^{round(math.log2(total) / 4)}" if 0 < total < math.inf else str(total)
    return [size, _direction(gradient), *("0" if norm == 0 else "some" for norm in norms.tolist())]


def is_same(plain: nn.Module, copied: nn.Module, x: Tensor, limits: Limits) -> bool:
    """Whether a copy computes what a frozen module does, and passes back the same, at (B, ...) inputs in its layout."""
    with torch.no_grad():
        return _is_same(plain, copied, x, copied(x), limits)


def _is_same(plain: nn.Module, copied: nn.Module, x: Tensor, found: Tensor, limits: Limits) -> bool:
    with torch.no_grad():
        expected = plain(x)
    few = x[:_GRADIENT_PROBE]
    return _agree(expected, found, limits.logits) and _same_gradient(plain, copied, few, limits.gradient)


def _same_gradient(plain: nn.Module, folded: nn.Module, x: Tensor, limit: float) -> bool:
    """Whether the copy passes back what the model does: tracing loses gradients of a function's own making."""
    expected, found = _gradient(plain, x), _gradient(folded, x)
    if expected is None or found is None:
        return expected is found
    return bool((found - expected).norm() <= limit * expected.norm())


def _gradient(module: nn.Module, probe: Tensor) -> Tensor | None:
    """Return the gradient of the logits, added with alternating signs; None where nothing passes one back."""
    x = probe.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = module(x)
        signs = 1.0 - 2.0 * (torch.arange(logits[0].numel(), device=x.device) % 2)
        if not logits.requires_grad:
            return None
        (gradient,) = torch.autograd.grad((logits.flatten(1) * signs).sum(), x, allow_unused=True)
    return None if gradient is None else gradient.float()


def _direction(gradient: Tensor) -> str:
    """Return the sign of a gradient along that of some fixed directions which it follows most."""
    signs = torch.randint(0, 2, (_DIRECTIONS, gradient.numel()), generator=torch.Generator().manual_seed(0))
    along = (signs * 2.0 - 1.0) @ gradient.flatten().cpu().float()
    return "+" if along[along.abs().argmax()] > 0 else "-"


def _agree(expected: Tensor, found: Tensor, limit: float) -> bool:
    if expected.shape != found.shape or not torch.isfinite(found).all():
        return False
    spread = expected.std().clamp(min=torch.finfo(expected.dtype).tiny)
    return bool((expected - found).abs().max() <= limit * spread)
