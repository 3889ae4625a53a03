"""Adversarial training as in ``refrl2022``, Section 3.4: each batch half clean, half attacked."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Method, option


@dataclass
class RefrlAT(Method):
    """``CE`` on a batch of which every other image is attacked by PGD (the batch is shuffled, so any half will do)."""

    name: ClassVar[str] = "refrl_at"
    source: ClassVar[str] = "refrl2022, Section 3.4, Experiment 1"

    epsilon: float = option(8 / 255, "refrl2022, Section 3.3")
    step: float = option(2 / 255, "the public notebooks")
    steps: int = option(20, "the public notebooks")

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy of the mixed batch."""
        found = self.attack(model, x[::2], y[::2], epsilon=self.epsilon, step=self.step, steps=self.steps)
        mixed = x.clone()
        mixed[::2] = found.last
        return F.cross_entropy(model(mixed), y)
