"""Which weights of a training are its result: the last, the best on held-out examples, or a running average."""

from typing import Any

import torch
from torch import Tensor, nn


class ChosenWeights:
    """The result so far of a training of ``module``.

    Parameters
    ----------
    module
        The network in training.
    select
        A recipe's: "last", or the column of the history that is least at the best epoch.
    """

    def __init__(self, module: nn.Module, select: str) -> None:
        self.module, self._select = module, select
        self.average: dict[str, Tensor] | None = None
        """The running average of weights and statistics, once there is one."""
        self.best: tuple[float, int, dict[str, Tensor]] | None = None
        """The least value, its epoch and its weights, where the best epoch is chosen."""

    def load(
        self, average: dict[str, Tensor] | None, best: tuple[float, int, dict[str, Tensor]] | None, device: torch.device
    ) -> None:
        """Take back what a run that is resumed had; the average goes where the network is."""
        self.average = None if average is None else {key: value.to(device) for key, value in average.items()}
        self.best = best

    def enter_average(self, decay: float) -> None:
        """Let the weights and statistics as they are now enter their exponential moving average."""
        state = self.module.state_dict()
        if self.average is None:
            self.average = {k: v.detach().clone() for k, v in state.items()}
        for key, value in state.items():
            if value.is_floating_point():
                self.average[key].lerp_(value, 1 - decay)
            else:
                self.average[key].copy_(value)

    def remember(self, row: dict[str, Any]) -> None:
        """Keep the weights of now if this row of the history is the best so far."""
        if self._select == "last":
            return
        value = float(row[self._select])
        if self.best is None or value < self.best[0]:
            self.best = value, int(row["epoch"]), {k: v.detach().cpu().clone() for k, v in self.last().items()}

    def last(self) -> dict[str, Tensor]:
        """Return those of now: the average, where there is one."""
        return self.module.state_dict() if self.average is None else self.average

    def chosen(self) -> dict[str, Tensor]:
        """Return the result."""
        return self.last() if self.best is None else self.best[2]

    def epoch(self, last: int) -> int | None:
        """Return the epoch whose weights the result is, ``last`` being the last; None for a running average."""
        if self.best is not None:
            return self.best[1]
        return last if self.average is None else None
