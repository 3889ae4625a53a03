"""What a training attacks: a frozen copy of the network, brought to the weights of the moment when it is asked for."""

from typing import Any

import torch
from torch import nn

from fairbench.models.folding import Folded
from fairbench.models.kernels import use_fast_kernels
from fairbench.models.winograd import use_winograd


class AttackCopy:
    """The copy, as fast as an evaluation's.

    Parameters
    ----------
    module
        The network that trains.
    precision
        A recipe's: with "bf16" the copy computes in bfloat16.
    compiled
        Hand it to ``torch.compile``, which makes kernels of its own, instead of ours.
    """

    def __init__(self, module: nn.Module, precision: str = "32", *, compiled: bool = False) -> None:
        self._folded = Folded(module, torch.bfloat16 if precision == "bf16" else None)
        copied: Any = self._folded.module
        if not compiled:
            use_fast_kernels(copied)
            use_winograd(copied)
        self._module: Any = torch.compile(copied) if compiled else copied

    def now(self) -> nn.Module:
        """Return it with the network's weights and statistics as they are."""
        self._folded.refresh()
        module: nn.Module = self._module
        return module
