"""Friendly Adversarial Training (Zhang et al., 2020, arXiv:2002.11242, Algorithm 2): stop soon after the boundary."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.pgd import GAUSSIAN_SCALE
from fairbench.training.method import Method, option


@dataclass
class FAT(Method):
    """``CE(f(x_friendly), y)``; x_friendly goes tau steps past the first misclassified iterate.

    tau grows with training: 0 up to ``first`` of the epochs, 1 up to ``second``, then 2.
    """

    name: ClassVar[str] = "fat"
    source: ClassVar[str] = "Zhang et al., 2020, arXiv:2002.11242, Algorithm 2"

    epsilon: float = option(0.031, "the authors' code")
    step: float = option(0.007, "the authors' code")
    steps: int = option(10, "the authors' code")
    first: float = option(50 / 120, "tau 1 from epoch 50 of 120", least=0, most=1)
    second: float = option(90 / 120, "tau 2 from epoch 90 of 120", least=0, most=1)

    @property
    def tau(self) -> int:
        """Steps past the boundary in the present epoch."""
        return int(self.progress >= self.first) + int(self.progress >= self.second)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy on friendly adversarial examples."""
        found = self.attack(
            model,
            x,
            y,
            epsilon=self.epsilon,
            step=self.step,
            steps=self.steps,
            stop="misclassified",
            tau=self.tau,
            jitter=GAUSSIAN_SCALE,
            generator=self.context.generator,
        )
        return F.cross_entropy(model(found.last), y)
