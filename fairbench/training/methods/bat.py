"""Balance Adversarial Training (``sun2023``, Sun et al., AAAI 2023, Equations 2, 6 and 7, Algorithm 1).

One attack that stops at the decision boundary gives both of its points: the last iterate that was classified correctly,
and the first that was not. The authors' code runs it twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.per_example import beside
from fairbench.errors import RecipeError
from fairbench.training.method import Method, option
from fairbench.training.methods.trades import kl_divergence

_POINTS = ("none", "last_clean", "first_adversarial", "full", "both")


def kl_from_uniform(logits: Tensor, *, reverse: bool = False) -> Tensor:
    """Return (B,) ``KL(U || f)``, or with ``reverse`` ``KL(f || U)``, U uniform over the K classes."""
    uniform = torch.zeros_like(logits)
    return kl_divergence(logits, uniform) if reverse else kl_divergence(uniform, logits)


@dataclass
class BAT(Method):
    """``CE(f(x_clean), y) + beta KL(f(x) || f(x_adv)) + alpha [KL(U || f(x_clean)) + KL(U || f(x_adv))]``.

    x_clean is the last correct and x_adv the first misclassified iterate; an example that is misclassified from the
    start keeps x for both, one that never is keeps its last iterates.
    """

    name: ClassVar[str] = "bat"
    source: ClassVar[str] = "Sun et al., 2023 (sun2023), Equations 2, 6 and 7, Algorithm 1"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors_code": {"slack": 1, "reverse_uniform": True},
        "table2_row1": {"target": "none"},
        "table2_row2": {"target": "last_clean"},
        "table2_row3": {"target": "first_adversarial"},
        "table2_row4": {"target": "full"},
        "table2_row5": {},
        "table2_row6": {"boundary_source": False},
    }

    beta: float = option(6.0, "the authors' code; as TRADES", least=0)
    alpha: float = option(1.0, "the authors' code", least=0)
    epsilon: float = option(0.031, "the authors' code; the paper says 8/255")
    step: float = option(0.007, "the authors' code; the paper says 2/255")
    steps: int = option(10, "sun2023, Implementation Details")
    slack: int = option(0, "sun2023, Algorithm 1; the authors' code goes on 1 step past the boundary", least=0)
    reverse_uniform: bool = option(False, "sun2023, Equation 6; the authors' code has KL(f || U)")
    target: str = option("both", "sun2023, Table 2: points of the target-class term")
    boundary_source: bool = option(True, "sun2023, Table 2: row 6 has plain TRADES terms")

    def __post_init__(self) -> None:
        if self.target not in _POINTS:
            raise RecipeError(f"method bat: target is one of {', '.join(_POINTS)}, not '{self.target}'.")

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean of the source-class loss plus alpha times the target-class loss."""
        last_clean, first_adversarial = self.boundary_points(model, x, y)
        logits = {"last_clean": model(last_clean), "first_adversarial": model(first_adversarial)}
        clean = model(x)
        if self.target == "full" or not self.boundary_source:
            logits["full"] = model(self._full_strength(model, x, y))
        if self.boundary_source:
            source = F.cross_entropy(logits["last_clean"], y)
            source = source + self.beta * kl_divergence(clean, logits["first_adversarial"]).mean()
        else:
            source = F.cross_entropy(clean, y) + self.beta * kl_divergence(clean, logits["full"]).mean()
        points = {"none": (), "both": ("last_clean", "first_adversarial")}.get(self.target, (self.target,))
        terms = [kl_from_uniform(logits[point], reverse=self.reverse_uniform).mean() for point in points]
        return source + self.alpha * sum(terms, torch.zeros((), device=x.device))

    def boundary_points(self, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last correct and the first misclassified iterate of each example, from one attack."""
        found = self.attack(model, x, y, stop="misclassified", tau=self.slack, **self._strength())
        last_right, steps_right = found.last_right, found.steps_right
        first_wrong = found.last if self.slack else found.first_wrong
        if last_right is None or first_wrong is None or steps_right is None or found.broken is None:
            raise TypeError("pgd returns both points when stop is set")
        from_start = beside(found.broken & (steps_right == 0), x)
        return torch.where(from_start, x, last_right), torch.where(from_start, x, first_wrong)

    def _full_strength(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return self.attack(model, x, y, **self._strength()).last

    def _strength(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "step": self.step, "steps": self.steps, "loss": "kl", "init": "gaussian"}
