"""Least epsilon: for each example the smallest radius at which PGD breaks it (``sooksatra2022``; docs/definitions.md).

Radii are a grid, ``resolution`` apart. ``scan`` tries them from below, as the paper does. ``bisect`` expects that what
breaks at one radius breaks at a larger one, guesses where that begins from the margin, and makes sure of it: it ends
with a radius that breaks the example and the one below that does not. Both run the same PGD from the same start. What
bisection finds it also clips to smaller radii: a point that still breaks its example there saves an attack.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench.attacks.base import Proposal, ThreatModel, Tick, Verify
from fairbench.attacks.per_example import beside
from fairbench.attacks.per_example import margin as margin_of
from fairbench.attacks.pgd import PIXEL_STEP, pgd
from fairbench.randomness import Stream, uniform_noise

_PATIENCE = 8
"""Guesses from the margin, before halving what is left."""

_DOWN = 0.12
"""Share of what is left below a radius that broke, to go down by at least: what costs least on the zoo's LeNet-5."""


@dataclass(frozen=True)
class LeastEpsilon:
    """Search for the least epsilon of each example, up to the threat model's.

    Parameters
    ----------
    threat_model
        Its epsilon is the largest radius tried.
    resolution
        Distance between radii, in the unit of the inputs.
    steps
        Of the PGD at each radius; any iterate counts.
    search
        "bisect" or "scan".
    seed
        The start of an example depends on (seed, its index) alone, and scales with the radius.
    largest_step
        PGD's step is the smaller of this and a quarter of the radius, but no less than 2.5 radii over ``steps``: enough
        to cross the ball from any start (from 16/255 on, with 20 steps of 2/255). Infinity for features.
    """

    threat_model: ThreatModel
    resolution: float = 1 / 255
    steps: int = 20
    search: str = "bisect"
    seed: int = 0
    largest_step: float = PIXEL_STEP
    name: str = "least-epsilon"

    @property
    def levels(self) -> int:
        """Return how many radii there are; the last is the threat model's epsilon."""
        return max(int(np.ceil(self.threat_model.epsilon / self.resolution - 1e-6)), 1)

    @property
    def cost(self) -> float:
        """Return the passes an example needs at most, or (bisect) usually."""
        return float(self.steps * (self.levels if self.search == "scan" else 4))

    def parameters(self) -> dict[str, Any]:
        """Return every parameter as plain data."""
        return {
            **self.threat_model.parameters(),
            "resolution": self.resolution,
            "steps": self.steps,
            "step": "epsilon/4" if math.isinf(self.largest_step) else "max(min(2/255, epsilon/4), 2.5 epsilon/steps)",
            "score": "any",
            "loss": "ce",
            "init": "uniform",
            "search": self.search,
            "seed": self.seed,
        }

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray, *, verify: Verify, tick: Tick
    ) -> Proposal:
        """Return each example's adversarial input at its least radius; ``x`` where clean is wrong or none was found.

        The extras: ``epsilon`` is that radius, 0 where the clean example is misclassified, NaN where no radius breaks
        it, and ``censored`` flags those.
        """
        search = _Search(self, model, (x, y, index), verify)
        spent = 0.0
        for rows, level in search.rounds():
            search.probe(rows, level)
            work = min(float(self.steps * len(rows)), self.cost * len(x) - spent)
            spent += work
            tick(work)
        tick(self.cost * len(x) - spent)
        least = search.broken_at
        censored = least > self.levels
        epsilon = np.where(censored, np.nan, self.radius(least)).astype(np.float32)
        return Proposal(search.adversarial, {"epsilon": epsilon, "censored": censored})

    def radius(self, level: np.ndarray) -> np.ndarray:
        """Return the radii of levels, 0 for level 0."""
        return np.minimum(level * self.resolution, self.threat_model.epsilon)


_Rounds = Iterator[tuple[np.ndarray, np.ndarray]]


class _Search:
    """The state of a batch: the largest level known to fail and the least known to break, per example."""

    def __init__(
        self, attack: LeastEpsilon, model: nn.Module, batch: tuple[Tensor, Tensor, np.ndarray], verify: Verify
    ) -> None:
        x, y, index = batch
        self.attack, self.model, self.x, self.y, self.verify = attack, model, x, y, verify
        noise = uniform_noise(attack.seed, index, tuple(x.shape[1:]), stream=Stream.LEAST_EPSILON)
        self.noise = torch.from_numpy(noise).to(x.device)
        self.adversarial = x.clone()
        clean_wrong = verify(x, x, y).cpu().numpy()
        self.withstood = np.zeros(len(x), dtype=np.int64)
        self.broken_at = np.where(clean_wrong, 0, attack.levels + 1)
        self.withstood[clean_wrong] = -1
        self.last_level, self.last_margin = np.zeros(len(x)), np.zeros(len(x))  # of the largest radius withstood
        self.expected = np.ones(len(x), dtype=np.int64)  # the level that margins so far point to

    def rounds(self) -> _Rounds:
        """Give, until all are settled, the rows to probe next and their levels."""
        return self._scan() if self.attack.search == "scan" else self._bisect()

    def _open(self) -> np.ndarray:
        return np.flatnonzero(self.broken_at - self.withstood > 1)

    def _scan(self) -> _Rounds:
        for level in range(1, self.attack.levels + 1):
            rows = self._open()
            if not len(rows):
                return
            yield rows, np.full(len(rows), level)

    def _bisect(self) -> _Rounds:
        self._expect_linear()
        guess = self.expected.copy()
        successes = np.zeros(len(self.x), dtype=np.int64)
        attempt = 0
        while len(rows := self._open()):
            low, high = self.withstood[rows] + 1, self.broken_at[rows] - 1
            level = np.clip(guess[rows], low, high)
            if attempt >= _PATIENCE:
                level = (low + high) // 2
            before = self.broken_at[rows].copy()
            yield rows, level
            broken = self.broken_at[rows] < before
            successes[rows] = np.where(broken, successes[rows] + 1, 0)
            left = self.broken_at[rows] - self.withstood[rows]
            down = np.maximum(2 ** (np.maximum(successes[rows], 1) - 1), np.round(_DOWN * left).astype(np.int64))
            guess[rows] = np.where(broken, self.broken_at[rows] - down, self.expected[rows])
            attempt += 1

    def probe(self, rows: np.ndarray, level: np.ndarray) -> None:
        """Run PGD at a level of its own for each row, and take the verdict of the original model."""
        at = torch.from_numpy(rows).to(self.x.device)
        x, y = self.x[at], self.y[at]
        radius = torch.from_numpy(self.attack.radius(level)).to(x)
        found = pgd(
            self.model,
            x,
            y,
            epsilon=radius,
            step=torch.maximum(torch.clamp(radius / 4, max=self.attack.largest_step), 2.5 * radius / self.attack.steps),
            steps=self.attack.steps,
            noise=self.noise[at],
            stop="misclassified",
            space=self.attack.threat_model.space,
        )
        candidates = found.last if found.first_wrong is None else found.first_wrong
        broken = self.verify(candidates, x, y)
        self.adversarial[at[broken]] = candidates[broken]
        hit = broken.cpu().numpy()
        self.broken_at[rows[hit]] = level[hit]
        self.withstood[rows[~hit]] = level[~hit]
        if self.attack.search == "bisect" and hit.any():
            self._draw_in(rows[hit])
        if self.attack.search == "bisect" and not hit.all():
            self._extrapolate(rows[~hit], level[~hit], found.last[~broken])

    def _draw_in(self, rows: np.ndarray) -> None:
        """Clip what was found to smaller radii, in growing steps, for as long as it still breaks its example."""
        stride = 1
        while len(rows := rows[self.broken_at[rows] - stride > self.withstood[rows]]):
            level = self.broken_at[rows] - stride
            at = torch.from_numpy(rows).to(self.x.device)
            x, y = self.x[at], self.y[at]
            reach = beside(torch.from_numpy(self.attack.radius(level)).to(x), x)
            nearer = torch.maximum(torch.minimum(self.adversarial[at], x + reach), x - reach)
            broken = self.verify(nearer, x, y)
            self.adversarial[at[broken]] = nearer[broken]
            hit = broken.cpu().numpy()
            rows, level = rows[hit], level[hit]
            self.broken_at[rows] = level
            stride *= 2

    def _expect_linear(self) -> None:
        """Guess each example's level from its margin and the margin's gradient: for a linear model it is exact."""
        x = self.x.detach().clone().requires_grad_()
        with torch.enable_grad():
            margin = margin_of(self.model(x), self.y)
            (gradient,) = torch.autograd.grad(margin.sum(), x)
        slope = gradient.abs().flatten(1).sum(1)
        self.last_margin = margin.detach().double().cpu().numpy()
        reach = (margin.detach() / slope.clamp(min=1e-12)).double().cpu().numpy()
        self.expected = self._level_of(reach / self.attack.resolution)

    def _extrapolate(self, rows: np.ndarray, level: np.ndarray, last: Tensor) -> None:
        """Guess where the margin ends: along the line through the last two radii that did not break the example."""
        at = torch.from_numpy(rows).to(self.x.device)
        with torch.no_grad():
            margin = margin_of(self.model(last), self.y[at]).double().cpu().numpy()
        fall = (self.last_margin[rows] - margin) / (level - self.last_level[rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            ahead = np.where(fall > 0, margin / fall, np.inf)
        self.expected[rows] = self._level_of(level + np.maximum(ahead, 1e-9))
        self.last_level[rows], self.last_margin[rows] = level, margin

    def _level_of(self, level: np.ndarray) -> np.ndarray:
        return np.ceil(np.clip(np.nan_to_num(level, nan=1.0), 1, self.attack.levels)).astype(np.int64)
