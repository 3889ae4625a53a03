"""What a model without a sample shares with the full model: all steps before the first batch that holds the sample.

Both start with the same weights and see the same batches, so up to there they are the same bytes, and the full model's
state just before that batch is where the other can start.
"""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Beginning(NamedTuple):
    """A training after some steps of its first epoch."""

    step: int
    network: dict[str, Any]
    optimizer: dict[str, Any]


class Beginnings:
    """Keeps the full model's states in its first epoch, for the models that leave a sample out.

    Parameters
    ----------
    samples
        (L,) int64, all that are left out.
    memory
        Bytes that the states may take. Where they are used up, later samples start from the last state that was kept.
    """

    def __init__(self, samples: Tensor, memory: int) -> None:
        self._waiting = set(samples.tolist())
        self._memory = memory
        self._kept: Beginning | None = None
        self._of: dict[int, Beginning | None] = {}

    def meet(self, step: int, origins: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Hear which samples the batch of a step holds, before the step is done."""
        new = self._waiting.intersection(origins.tolist())
        if not new:
            return
        self._waiting -= new
        state = Beginning(step, network.state_dict(), optimizer.state_dict())
        if (size := _bytes(state)) <= self._memory:
            self._memory -= size
            self._kept = copy.deepcopy(state)
        self._of |= dict.fromkeys(new, self._kept)

    def take(self, sample: int) -> Beginning | None:
        """Return where a model without the sample can start, once; None is the very start.

        One that did not come in the first epoch (what does not fill a batch sits out) starts from the last state.
        """
        return self._kept if sample in self._waiting else self._of.pop(sample, None)


def _bytes(state: Beginning) -> int:
    def size(value: Any) -> int:
        if isinstance(value, Tensor):
            return value.numel() * value.element_size()
        if isinstance(value, dict | list):
            return sum(map(size, value.values() if isinstance(value, dict) else value))
        return 0

    return size(state.network) + size(state.optimizer)
