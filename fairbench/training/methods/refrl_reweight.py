"""FRL (reweight) as reproduced in ``refrl2022``, Section 3.3: class weights by a softmax of the violations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Context, option
from fairbench.training.methods.refrl_held_out import RefrlHeldOut, violation_weights


@dataclass
class RefrlReweight(RefrlHeldOut):
    """``CE_w0(f(x), y) + CE_w1(f(x_adv), clean prediction)``, each with its own class weights.

    "Boundary error" there is the share of examples whose prediction the attack changes.
    """

    name: ClassVar[str] = "refrl_reweight"
    source: ClassVar[str] = "refrl2022, Sections 3.3 and 3.4, Experiment 2"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "1:1": {"alpha_natural": 1.0, "alpha_boundary": 1.0},
        "1:5": {"alpha_natural": 1.0, "alpha_boundary": 5.0},
        "5:1": {},
    }

    tolerance: float = option(0.05, "refrl2022, Section 3.3", least=0, most=1)
    alpha_natural: float = option(5.0, "refrl2022, Section 3.3: 5:1 was best", least=0)
    alpha_boundary: float = option(1.0, "refrl2022, Section 3.3: 5:1 was best", least=0)
    epsilon: float = option(16 / 255, "the public notebooks")
    step: float = option(1 / 255, "the public notebooks")
    steps: int = option(20, "the public notebooks")

    def setup(self, context: Context) -> None:
        """Start with equal weights."""
        super().setup(context)
        equal = torch.full((context.num_classes,), 1 / context.num_classes)
        self.natural_weights, self.boundary_weights = equal, equal.clone()

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of both weighted cross-entropies; weights are those of the true class in both."""
        strength: dict[str, Any] = {"epsilon": self.epsilon, "step": self.step, "steps": self.steps}
        self.measure(model, **strength)
        found = self.attack(model, x, y, **strength)
        clean = model(x)
        natural, boundary = self.natural_weights.to(x.device)[y], self.boundary_weights.to(x.device)[y]
        standard = F.cross_entropy(clean, y, reduction="none")
        change = F.cross_entropy(model(found.last), clean.argmax(1), reduction="none")
        mean = self.context.mean
        return (natural * standard).sum() / mean(natural.sum()) + (boundary * change).sum() / mean(boundary.sum())

    def adapt(self) -> None:
        """Weigh by the errors of the window."""
        (wrong, changed), (std, change) = self.recent.shares(), self.recent.averages()
        self.natural_weights = violation_weights(wrong, std, self.tolerance, self.alpha_natural)
        self.boundary_weights = violation_weights(changed, change, self.tolerance, self.alpha_boundary)
