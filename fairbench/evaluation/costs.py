"""What a protocol costs: passes an example and attack, times examples, over measured speed (docs/scaling.md).

An attack is forward passes, backward passes to the input, and what it computes itself between them. PGD's are known.
AutoAttack's are counted: it runs once on a few examples of a model that costs nothing, so what is counted is what the
code does now, and its own arithmetic is timed by the way.
"""

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fairbench.attacks.autoattack import AutoAttack
from fairbench.attacks.base import Attack, ThreatModel
from fairbench.attacks.pgd import PGDAttack
from fairbench.errors import ProtocolError
from fairbench.evaluation.runner import BATCH_SIZE
from fairbench.evaluation.speed import BatchSpeed, Flops
from fairbench.outcomes.table import write_table

_FEW = 32
_CLASSES = 4
"""Examples and classes of the run in which AutoAttack is counted: three target classes tell what one costs."""
_CLEAN = "clean"
_TARGETED = ("apgd-t", "fab-t")


@dataclass(frozen=True)
class Work:
    """What an attack does for one example: passes, and seconds of its own between them."""

    forwards: float = 0.0
    backwards: float = 0.0
    own_seconds: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(self._values(), other._values(), strict=True)))

    def __mul__(self, factor: float) -> "Work":
        return Work(*(factor * value for value in self._values()))

    def _values(self) -> tuple[float, float, float]:
        return self.forwards, self.backwards, self.own_seconds

    def flops(self, one: Flops) -> float:
        """Return the FLOPs of the passes."""
        return self.forwards * one.forward + self.backwards * one.backward


SCORING = Work(forwards=1)
"""The verdict of an attack by the original model. Another one is the prediction without attack."""


@dataclass(frozen=True)
class Survivors:
    """Which share of the examples AutoAttack still has to attack.

    Parameters
    ----------
    correct
        Share classified correctly, 0..1: all that its first stage attacks.
    withstanding
        Share that withstands the first stage, 0..1: what the others attack. They break few more.
    source
        Where the two are from, in words.
    """

    correct: float
    withstanding: float
    source: str

    def entering(self, stage: int) -> float:
        """Return the share that a stage attacks."""
        return self.correct if stage == 0 else self.withstanding


@dataclass(frozen=True)
class Cost:
    """What one attack costs for a number of examples."""

    attack: str
    examples: int
    forwards: float
    backwards: float
    flops: float
    seconds: float


def shares(broken_by: Iterable[Any], source: str) -> Survivors:
    """Return the shares of a kept result, from its column ``autoattack_broken_by``.

    Examples
    --------
    >>> shares(["clean", "apgd-ce", "apgd-t", None], "four examples")
    Survivors(correct=0.75, withstanding=0.5, source='four examples')
    """
    by = pd.Series(broken_by, dtype="object")
    clean, first = (by == _CLEAN).sum(), (by == "apgd-ce").sum()
    return Survivors(float(1 - clean / len(by)), float(1 - (clean + first) / len(by)), source)


def pgd_work(attack: PGDAttack) -> Work:
    """Return the passes of PGD: one forward and one backward a step."""
    steps = float(attack.steps * attack.restarts)
    return Work(steps, steps)


def autoattack_work(
    shape: Sequence[int], num_classes: int, epsilon: float = 8 / 255, device: str = "cpu"
) -> dict[str, Work]:
    """Run AutoAttack on a model that costs nothing and no example breaks; return the work of a survivor by stage.

    Parameters
    ----------
    shape
        (C, H, W) of an example: what an attack computes itself grows with its pixels.
    num_classes
        K; the targeted stages are counted for three targets and scaled to K - 1, nine at most.
    """
    classes = min(num_classes, _CLASSES)
    module = _Free(int(np.prod(shape)), classes).to(device)
    x = torch.rand(_FEW, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    index = np.arange(_FEW)
    y = torch.zeros(_FEW, dtype=torch.int64, device=device)
    marks: list[tuple[int, Work]] = []

    def verify(x_adv: Tensor, x: Tensor, _: Tensor) -> Tensor:
        """Note what was done; break one example a time, whose ``broken_by`` then names the stage."""
        marks.append((len(x), Work(module.forwards, module.backwards, time.perf_counter())))
        return (torch.arange(len(x), device=x.device) == 0) & (len(marks) > 1)

    attack = AutoAttack(ThreatModel(epsilon), classes)
    broken_by = attack(module, x, y, index, verify=verify, tick=lambda _: None).extras["broken_by"]
    counted: dict[str, list[Work]] = defaultdict(list)
    for turn, ((_, before), (examples, after)) in enumerate(pairwise(marks)):
        counted[str(broken_by[turn])].append((after + before * -1) * (1 / examples))
    targets = AutoAttack(ThreatModel(epsilon), num_classes).targets
    return {
        stage: sum(works, Work()) * (targets / attack.targets if stage in _TARGETED else 1)
        for stage, works in counted.items()
    }


class _Free(nn.Module):
    """A linear model that is sure of class 0 whatever it is shown, and counts the examples of its passes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(1e-3 * torch.randn(features, classes, generator=generator), requires_grad=False)
        self.bias = nn.Parameter(10.0 * (torch.arange(classes) == 0), requires_grad=False)
        self.forwards = self.backwards = 0

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) to (B, K)."""
        self.forwards += len(x)
        logits = x.flatten(1) @ self.weight + self.bias
        if logits.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)


def cost(
    attack: Attack,
    examples: int,
    speeds: Sequence[BatchSpeed],
    flops: Flops,
    *,
    survivors: Survivors | None = None,
    stages: Mapping[str, Work] | None = None,
    batch: int = BATCH_SIZE,
) -> Cost:
    """Return what an attack costs.

    Parameters
    ----------
    speeds
        As measured, by batch size; a stage on the survivors of a batch goes at the speed of the nearest size.
    survivors, stages
        For AutoAttack: see there, and :func:`autoattack_work`.
    batch
        Examples in a batch.

    Raises
    ------
    ProtocolError
        There is no model of this attack's cost.
    """
    if isinstance(attack, PGDAttack):
        parts = [(1.0, pgd_work(attack)), (1.0, SCORING)]
    elif isinstance(attack, AutoAttack) and survivors is not None and stages is not None:
        parts = [(survivors.entering(number), work) for number, work in enumerate(stages.values())]
        parts += [(1.0, SCORING * 2)]
    else:
        raise ProtocolError(f"there is no model of what {attack.name} costs.")
    batch = min(batch, examples)
    seconds = sum(share * _seconds(work, nearest(speeds, share * batch)) for share, work in parts)
    total = sum((work * share for share, work in parts), Work())
    return Cost(
        attack.name, examples, total.forwards, total.backwards, examples * total.flops(flops), examples * seconds
    )


def clean_cost(examples: int, speeds: Sequence[BatchSpeed], flops: Flops, *, batch: int = BATCH_SIZE) -> Cost:
    """Return what the predictions without attack cost, and keeping the rows, a file a batch."""
    batch = min(batch, examples)
    seconds = examples / nearest(speeds, batch).forward.median + -(-examples // batch) * shard_seconds(batch)
    return Cost(_CLEAN, examples, 1.0, 0.0, float(examples * flops.forward), seconds)


def nearest(speeds: Sequence[BatchSpeed], batch: float) -> BatchSpeed:
    """Return what was measured at the batch size nearest to ``batch``, by ratio.

    A batch of less than one example goes at the speed of the smallest.
    """
    return min(speeds, key=lambda one: abs(np.log(one.batch / max(batch, 1.0))))


def _seconds(work: Work, speed: BatchSpeed) -> float:
    """Return the seconds of one example; PGD's own arithmetic is in the rate of a step."""
    forward = 1 / speed.forward.median
    backward = max(1 / speed.step.median - forward, 0.0)
    return work.forwards * forward + work.backwards * backward + work.own_seconds


def shard_seconds(rows: int = BATCH_SIZE) -> float:
    """Return the seconds it takes to write the rows of one batch, whole or not at all: median of five."""
    frame = pd.DataFrame({"index": np.arange(rows), "clean_confidence": np.linspace(0, 1, rows, dtype=np.float32)})
    for column in ("label", "clean_pred", "pgd20_pred"):
        frame[column] = np.zeros(rows, np.int16)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(5):
            start = time.perf_counter()
            write_table(frame, Path(folder) / f"{number}.parquet", {})
            seconds.append(time.perf_counter() - start)
    return median(seconds)
