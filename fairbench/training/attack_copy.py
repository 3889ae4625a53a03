"""What a training attacks: a frozen copy of the network, brought to the weights of the moment when it is asked for."""

from typing import Any

import torch
from torch import Tensor, nn

from fairbench.memory import is_out_of_memory
from fairbench.models.folding import Folded
from fairbench.models.kernels import use_fast_kernels
from fairbench.models.prepare import frozen, is_same
from fairbench.models.winograd import use_winograd


class AttackCopy:
    """The copy, as fast as an evaluation's.

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

    Attributes
    ----------
    warning
        What to say where a copy without changes has to do; None otherwise.
    """

    def __init__(self, module: nn.Module, x: Tensor, precision: str = "32", *, compiled: bool = False) -> None:
        fold = is_same(frozen(module), _fast(Folded(module), compiled), x)
        self.warning = None if fold else "the attack-ready copy disagreed with the network: a plain copy is attacked."
        self._folded = Folded(module, torch.bfloat16 if precision == "bf16" else None, fold=fold)
        if precision == "bf16" and not _computes(self._folded.module, x):
            self.warning = "the network cannot compute in bf16 as a whole: its copy is attacked in float32."
            self._folded = Folded(module, fold=fold)
        copied: Any = _fast(self._folded, compiled) if fold else self._folded.module
        self._module: Any = torch.compile(copied) if compiled else copied

    def now(self) -> nn.Module:
        """Return it with the network's weights and statistics as they are."""
        self._folded.refresh()
        module: nn.Module = self._module
        return module


def _fast(folded: Folded, compiled: bool) -> nn.Module:
    if not compiled:
        use_fast_kernels(folded.module)
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
