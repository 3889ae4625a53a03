"""PGD adversarial training (Madry et al., 2018, arXiv:1706.06083, Equation 2.1)."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Method, option


@dataclass
class PGDAT(Method):
    """``CE(f(x_adv), y)``, x_adv by PGD from a uniform start."""

    name: ClassVar[str] = "pgd_at"
    source: ClassVar[str] = "Madry et al., 2018, arXiv:1706.06083, Equation 2.1"

    epsilon: float = option(8 / 255, "sun2023, Implementation Details")
    step: float = option(2 / 255, "sun2023, Implementation Details")
    steps: int = option(10, "sun2023, Implementation Details")

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy on adversarial examples."""
        found = self.attack(model, x, y, epsilon=self.epsilon, step=self.step, steps=self.steps)
        return F.cross_entropy(model(found.last), y)
