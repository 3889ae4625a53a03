"""Geometry-aware instance-reweighted adversarial training (Zhang et al., 2021, arXiv:2010.01736, Equation 6)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Method, option

_SLOPE = 5.0
"""The factor of the tanh weight in the paper."""


def geometry_weights(steps_right: Tensor, steps: int, shift: float) -> Tensor:
    """Return (B,) weights ``(1 + tanh(shift + 5 (1 - 2 kappa / K))) / 2``; the loss divides them by their mean.

    Examples
    --------
    >>> geometry_weights(torch.tensor([0, 5, 10]), 10, 0.0).round(decimals=3).tolist()
    [1.0, 0.5, 0.0]
    """
    return (1 + torch.tanh(shift + _SLOPE * (1 - 2 * steps_right.float() / steps))) / 2


@dataclass
class GAIRAT(Method):
    """``mean(w CE(f(x_adv), y)) / mean(w)``: the sooner an example is misclassified, the larger its weight.

    kappa counts the steps taken from correctly classified iterates; plain PGD-AT before ``burn_in`` of the training.
    """

    name: ClassVar[str] = "gairat"
    source: ClassVar[str] = "Zhang et al., 2021, arXiv:2010.01736, Equation 6"

    epsilon: float = option(0.031, "the authors' code")
    step: float = option(0.007, "the authors' code")
    steps: int = option(10, "the authors' code")
    shift: float = option(-1.0, "Lambda, the authors' code")
    burn_in: float = option(
        0.5, "weights from epoch 60 of 120 (30 of 100 in the code's other setting)", least=0, most=1
    )

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean weighted cross-entropy on adversarial examples."""
        kappa = torch.zeros(len(x), dtype=torch.int64, device=x.device)

        def count(_k: int, logits: Tensor) -> None:
            kappa.add_(logits.argmax(1) == y)

        found = self.attack(model, x, y, epsilon=self.epsilon, step=self.step, steps=self.steps, on_step=count)
        losses = F.cross_entropy(model(found.last), y, reduction="none")
        if self.progress < self.burn_in:
            return losses.mean()
        weights = geometry_weights(kappa, self.steps, self.shift)
        return (weights * losses).mean() / self.context.mean(weights.mean())
