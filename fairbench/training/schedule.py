"""Learning rates as a function of how much of the training is done: a schedule can follow epochs or the clock."""

import math
import time
from dataclasses import dataclass

from fairbench.training.recipe import ScheduleRecipe


def learning_rate(schedule: ScheduleRecipe, peak: float, progress: float) -> float:
    """Return the learning rate at ``progress`` in 0..1.

    "constant"; "piecewise": times ``gamma`` at each milestone (a share of the training); "cosine": half a cosine down
    to 0; "one_cycle": up to ``peak`` over the first ``warmup`` of the training, then half a cosine down to 0.

    Examples
    --------
    >>> piecewise = ScheduleRecipe(name="piecewise", epochs=100, milestones=(0.5, 0.75), gamma=0.1)
    >>> [round(learning_rate(piecewise, 0.1, p), 6) for p in (0.0, 0.49, 0.5, 0.8)]
    [0.1, 0.1, 0.01, 0.001]
    """
    if schedule.name == "piecewise":
        return peak * schedule.gamma ** sum(progress >= milestone for milestone in schedule.milestones)
    if schedule.name == "cosine":
        return peak * _half_cosine(progress)
    if schedule.name == "one_cycle":
        if progress < schedule.warmup:
            return peak * (progress + _first_step(schedule)) / (schedule.warmup + _first_step(schedule))
        return peak * _half_cosine((progress - schedule.warmup) / (1 - schedule.warmup))
    return peak


def _half_cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(max(share, 0.0), 1.0)))


def _first_step(schedule: ScheduleRecipe) -> float:
    """Keep the first learning rate above 0."""
    return 0.01 * schedule.warmup


@dataclass
class Clock:
    """How much of the training is done: by epochs, or by seconds where there is a time budget.

    Parameters
    ----------
    epochs, steps_per_epoch
        Length of the schedule.
    budget
        Seconds the training may take in all, resumed parts included, or None.
    spent
        Seconds that earlier parts took.
    """

    epochs: int
    steps_per_epoch: int
    budget: float | None = None
    spent: float = 0.0

    def __post_init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.spent + time.monotonic() - self._start

    def progress(self, epoch: int, step: int) -> float:
        """Return the share done, 0..1, before a step of an epoch."""
        if self.budget is not None:
            return min(self.seconds / self.budget, 1.0)
        return (epoch + step / self.steps_per_epoch) / self.epochs

    def over(self, epoch: int) -> bool:
        """Whether the training ends before this epoch."""
        return self.seconds >= self.budget if self.budget is not None else epoch >= self.epochs
