"""What a training attacks: a frozen copy of the network, brought to the weights of the moment when it is asked for."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairbench.memory import is_out_of_memory
from fairbench.models.folding import Folded
from fairbench.models.kernels import use_fast_kernels
from fairbench.models.prepare import Limits, frozen, is_same
from fairbench.models.winograd import use_winograd

_LIMITS = Limits(logits=0.03, gradient=0.1)
"""Of differences from the network, relative to its own: TF32, which a GPU may compute in, has 10 bits."""
_MANY = 64
"""Examples in a batch from which the transforms of Winograd's kernels, once a batch, pay with one step already."""


class AttackCopy:
    """The copy, as fast as an evaluation's; it is made when it is asked for first.

    Parameters
    ----------
    module
        The network that trains.
    x
        (B, ...) float32 examples, on its device and in its layout, on which copy and network are compared.
    precision
        A recipe's: with "bf16" the copy computes in bfloat16.
    compiled
        Hand it to ``torch.compile``, which makes kernels of its own, instead of ours.
    batch_size
        Examples that are attacked at once.
    warn
        Called with what to say where a copy without changes has to do.
    """

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        precision: str = "32",
        *,
        compiled: bool = False,
        batch_size: int = _MANY,
        warn: Callable[[str], Any] = lambda _text: None,
    ) -> None:
        self._network, self._x, self._precision = module, x, precision
        self._compiled, self._batch_size, self._warn = compiled, batch_size, warn
        self._made: tuple[Folded, Any] | None = None

    def now(self) -> nn.Module:
        """Return it with the network's weights and statistics as they are."""
        if self._made is None:
            self._made = self._make()
        folded, module = self._made
        folded.refresh()
        attacked: nn.Module = module
        return attacked

    def _make(self) -> tuple[Folded, Any]:
        fold = self._is_same()
        if not fold:
            self._warn("the attack-ready copy disagreed with the network: a plain copy is attacked.")
        folded = Folded(self._network, torch.bfloat16 if self._precision == "bf16" else None, fold=fold)
        if self._precision == "bf16" and not _computes(folded.module, self._x):
            self._warn("the network cannot compute in bf16 as a whole: its copy is attacked in float32.")
            folded = Folded(self._network, fold=fold)
        copied: Any = self._fast(folded) if fold else folded.module
        return folded, torch.compile(copied) if self._compiled else copied

    def _is_same(self) -> bool:
        try:
            fast = self._fast(Folded(self._network))
            return is_same(frozen(self._network), fast, self._x, _LIMITS)
        except Exception as error:  # of the copy, or of a network that cannot be attacked: it will say so itself
            if is_out_of_memory(error):
                raise
            return False

    def _fast(self, folded: Folded) -> nn.Module:
        if not self._compiled:
            use_fast_kernels(folded.module)
            if self._batch_size >= _MANY:
                use_winograd(folded.module)
        return folded.module


def _computes(copied: nn.Module, x: Tensor) -> bool:
    try:
        with torch.no_grad():
            copied(x)
    except Exception as error:  # an operation without a kernel for bfloat16, or tensors that are not the module's
        if is_out_of_memory(error):
            raise
        return False
    return True
