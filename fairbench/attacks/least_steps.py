"""Least steps: for each example the number of PGD steps until it is first misclassified (``sun2023``, Figure 2).

Small steps in a fixed ball. How many a class takes says how hard its examples are to break: the source-class
difficulty of docs/definitions.md; "least PGD steps" in the literature since GAIRAT (Zhang et al., 2021,
arXiv:2010.01736).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench.attacks.base import Proposal, ThreatModel, Tick, Verify
from fairbench.attacks.pgd import pgd
from fairbench.randomness import uniform_noise


@dataclass(frozen=True)
class LeastSteps:
    """Count the steps of PGD until each example is first misclassified, inside the threat model.

    Parameters
    ----------
    step
        Step size, in the unit of the inputs.
    steps
        Most steps taken; who withstands them is censored.
    seed
        The start of an example depends on (seed, its index) alone; it is that of :class:`PGDAttack`.
    """

    threat_model: ThreatModel
    step: float = 0.4 / 255
    steps: int = 1_000
    seed: int = 0
    name: str = "least-steps"

    @property
    def cost(self) -> float:
        """Return the passes an example needs at most."""
        return float(self.steps)

    def parameters(self) -> dict[str, Any]:
        """Return every parameter as plain data."""
        return {
            **self.threat_model.parameters(),
            "step": self.step,
            "steps": self.steps,
            "score": "any",
            "loss": "ce",
            "init": "uniform",
            "seed": self.seed,
        }

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray, *, verify: Verify, tick: Tick
    ) -> Proposal:
        """Return each example's first misclassified iterate; ``x`` where clean is wrong or there was none.

        The extras: ``broken_at`` is the number of steps that led there, 0 where the clean example or the random start
        is misclassified, masked where none was; ``censored`` flags those. An iterate that the attacked copy
        misclassifies and the original does not, by a rounding, breaks nothing.
        """
        adversarial = x.clone()
        clean_wrong = verify(x, x, y).cpu().numpy()
        broken_at = np.ma.masked_all(len(x), dtype=np.int16)
        broken_at[clean_wrong] = 0
        rows = np.flatnonzero(~clean_wrong)
        if len(rows):
            candidates, steps = self._first_wrong(model, x[rows], y[rows], index[rows])
            broken = verify(candidates, x[rows], y[rows]).cpu().numpy()
            adversarial[rows[broken]] = candidates[broken]
            broken_at[rows[broken]] = steps[broken]
        tick(self.cost * len(x))
        return Proposal(adversarial, {"broken_at": broken_at, "censored": np.ma.getmaskarray(broken_at).copy()})

    def _first_wrong(self, model: nn.Module, x: Tensor, y: Tensor, index: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Return each example's first misclassified iterate, or its last, and the steps taken to it."""
        noise = torch.from_numpy(uniform_noise(self.seed, index, tuple(x.shape[1:]))).to(x.device)
        found = pgd(
            model,
            x,
            y,
            epsilon=self.threat_model.epsilon,
            step=self.step,
            steps=self.steps,
            noise=noise,
            stop="misclassified",
            settle=True,
            space=self.threat_model.space,
        )
        if found.first_wrong is None or found.steps_right is None:
            raise TypeError("pgd returns its extras only when stop is set")
        return found.first_wrong, found.steps_right.cpu().numpy()
