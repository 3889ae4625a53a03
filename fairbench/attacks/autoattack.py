"""AutoAttack (Croce and Hein, 2020, arXiv:2003.01690), per example, held to the authors' own attacks (pyautoattack).

APGD is theirs; FAB and Square take the steps of theirs in less time (fab.py, square.py; tests compare them with the
package). Each stage and each target class runs on the survivors of the one before; the random starts depend on (seed,
example index) alone, where the package draws them for a whole batch; and a success counts only once the original model
confirms it. Features are attacked as if what each example may become were an image (unit_ball.py). Resuming is the
runner's, shard by shard: pyautoattack 0.2.0 raises when it restores a state it saved.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench.attacks.base import Proposal, ThreatModel, Tick, Verify
from fairbench.attacks.fab import fab
from fairbench.attacks.per_example import beside
from fairbench.attacks.square import square
from fairbench.attacks.unit_ball import RADIUS, UnitBall
from fairbench.randomness import Stream, uniform_noise

ITERATIONS = 100
QUERIES = 5_000
MAX_TARGETS = 9
_FORWARD_COST = 1 / 3
"""A forward pass next to a forward and a backward one to the input."""

_quiet = logging.getLogger(f"{__name__}.pyautoattack")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # its warnings about zero gradients are raised per run by the evaluation's own checks


@dataclass(frozen=True)
class _Batch:
    """Survivors as images in [0, 1], and the radius in their unit; ``ball`` says what an image stands for."""

    x: Tensor
    y: Tensor
    index: np.ndarray
    epsilon: float
    ball: UnitBall | None = None

    def of_images(self, model: "_Model", rows: Tensor | None = None) -> "_Model":
        """Return the model as a function of such images, of some rows or of all."""
        return model if self.ball is None else self.ball.model(model, rows)

    def inputs(self, images: Tensor) -> Tensor:
        """Return what such images stand for."""
        return images if self.ball is None else self.ball.inputs(images)


_Model = Callable[[Tensor], Tensor]
_Stage = tuple[str, float, Callable[[_Model, _Batch], Tensor]]
"""Name, cost of one example, and a function from (model, survivors) to candidates."""


@dataclass(frozen=True)
class AutoAttack:
    """AutoAttack, version "standard", L-inf: APGD-CE, APGD-T and FAB-T (9 targets, K - 1 at most), Square.

    The targeted DLR loss needs four classes: for K <= 3 the ensemble is APGD-CE, FAB and Square (docs/definitions.md).
    """

    threat_model: ThreatModel
    num_classes: int
    seed: int = 0
    name: str = "autoattack"

    @property
    def targets(self) -> int:
        """Number of target classes of the targeted stages."""
        return min(MAX_TARGETS, self.num_classes - 1)

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return ("apgd-ce", "apgd-t", "fab-t", "square") if self.num_classes > 3 else ("apgd-ce", "fab", "square")

    @property
    def cost(self) -> float:
        """Return the passes a robust example needs."""
        return sum(cost for _, cost, _ in self._plan())

    def parameters(self) -> dict[str, Any]:
        """Return every parameter as plain data."""
        return {
            **self.threat_model.parameters(),
            "version": "standard",
            "stages": list(self.stages),
            "iterations": ITERATIONS,
            "targets": self.targets,
            "queries": QUERIES,
            "seed": self.seed,
        }

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray, *, verify: Verify, tick: Tick
    ) -> Proposal:
        """Return a confirmed adversarial input for each broken example and ``x`` for the others.

        The extra ``broken_by`` names the stage that broke an example, "clean" where none was needed; masked where it
        withstood all.
        """
        adversarial, broken_by = x.clone(), np.ma.masked_all(len(x), dtype=object)
        clean_wrong = verify(x, x, y).cpu().numpy()
        broken_by[clean_wrong] = "clean"
        survivors = np.flatnonzero(~clean_wrong)
        with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
            for name, cost, attack in self._plan():
                tick(cost * (len(x) - len(survivors)))
                if not len(survivors):
                    continue
                at = torch.from_numpy(survivors).to(x.device)
                batch = self._batch(x[at], y[at], index[survivors])
                counted = _Counted(model, cost * len(survivors), tick)
                found = self._inside(batch.inputs(attack(counted, batch)), x[at])
                counted.finish()
                broken = verify(found, x[at], batch.y)
                adversarial[at[broken]] = found[broken]
                hit = broken.cpu().numpy()
                broken_by[survivors[hit]] = name
                survivors = survivors[~hit]
        return Proposal(adversarial, {"broken_by": broken_by})

    def _batch(self, x: Tensor, y: Tensor, index: np.ndarray) -> _Batch:
        if x.ndim > 2:
            return _Batch(x, y, index, self.threat_model.epsilon)
        ball = UnitBall(self.threat_model, x)
        return _Batch(ball.centre, y, index, RADIUS, ball)

    def _inside(self, found: Tensor, x: Tensor) -> Tensor:
        """Undo float32 rounding at the border of the ball; a candidate further out than that is none: back to x."""
        inside = beside(self.threat_model.contains(found, x), x)
        return torch.where(inside, self.threat_model.project(found, x), x)

    def _plan(self) -> list[_Stage]:
        """List the runs: one for APGD-CE, one a target for APGD-T and FAB-T, one for Square."""
        ranks = range(2, self.targets + 2)
        runs: list[_Stage] = [("apgd-ce", ITERATIONS + 1, self._apgd_ce)]
        if self.num_classes > 3:
            runs += [("apgd-t", ITERATIONS + 1, partial(self._apgd_t, rank=rank)) for rank in ranks]
            runs += [("fab-t", 4 / 3 * ITERATIONS, partial(self._fab, rank=rank)) for rank in ranks]
        else:
            runs.append(("fab", (self.num_classes + 2) / 3 * ITERATIONS, self._fab))
        return [*runs, ("square", QUERIES * _FORWARD_COST, self._square)]

    def _apgd_ce(self, model: _Model, batch: _Batch) -> Tensor:
        from pyautoattack.autopgd_base import APGDAttack

        attack = APGDAttack(batch.of_images(model), **self._common(batch), logger=_quiet)
        return self._apgd(attack, batch, Stream.APGD_CE)

    def _apgd_t(self, model: _Model, batch: _Batch, rank: int) -> Tensor:
        from pyautoattack.autopgd_base import APGDAttack_targeted

        attack = APGDAttack_targeted(batch.of_images(model), **self._common(batch), logger=_quiet)
        with torch.no_grad():
            attack.y_target = attack.model(batch.x).argsort(dim=1)[:, -rank]
        return self._apgd(attack, batch, Stream.APGD_TARGETED + rank)

    def _apgd(self, attack: Any, batch: _Batch, stream: int) -> Tensor:
        """Run one start of APGD; its own start is scaled so that the largest pixel is at epsilon, and so is this."""
        attack.init_hyperparam(batch.x)
        noise = self._noise(batch, tuple(batch.x.shape[1:]), stream)
        start = batch.x + batch.epsilon * attack.normalize(noise)
        _, right, _, found = attack.attack_single_run(batch.x, batch.y, x_init=start)
        return torch.where(beside(right == 0, batch.x), found, batch.x)

    def _fab(self, model: _Model, batch: _Batch, rank: int | None = None) -> Tensor:
        """Run FAB from the example (features: its box's centre) to the class of some rank, or (None) the nearest."""
        return fab(batch.of_images(model), batch.x, batch.y, iterations=ITERATIONS, rank=rank)

    def _square(self, model: _Model, batch: _Batch) -> Tensor:
        """Run Square: stripes from the example's noise, then windows and signs from the seed, alike for every batch."""
        channels, _, width = batch.x.shape[1:]
        stripes = self._noise(batch, (channels, 1, width), Stream.SQUARE).sign()
        return square(
            partial(batch.of_images, model),
            batch.x,
            batch.y,
            epsilon=batch.epsilon,
            queries=QUERIES,
            stripes=stripes,
            seed=self.seed,
        )

    def _common(self, batch: _Batch) -> dict[str, Any]:
        return {"n_iter": ITERATIONS, "eps": batch.epsilon, "device": batch.x.device}

    def _noise(self, batch: _Batch, shape: tuple[int, ...], stream: int) -> Tensor:
        return torch.from_numpy(uniform_noise(self.seed, batch.index, shape, stream=stream)).to(batch.x.device)


class _Counted:
    """The model as a plain callable that reports progress: a run's cost is spread over the calls it will make."""

    def __init__(self, model: nn.Module, cost: float, tick: Tick) -> None:
        self._model = model
        self._left = cost
        self._tick = tick

    def __call__(self, x: Tensor) -> Tensor:
        share = min(self._left, len(x) * (1.0 if torch.is_grad_enabled() else _FORWARD_COST))
        self._left -= share
        self._tick(share)
        return self._model(x)

    def finish(self) -> None:
        """Report what is left: the run ended early."""
        self._tick(self._left)
        self._left = 0.0
