"""FRL (reweight) as reproduced in ``refrl2022``, Section 3.3: class weights by a softmax of the violations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.pgd import pgd
from fairbench.training.method import Context, Method, option
from fairbench.training.recent import RecentErrors


def violation_weights(errors: Tensor, average: float, tolerance: float, alpha: float) -> Tensor:
    """Return (K,) ``softmax(1 + alpha (err_c - err - tau))``; a class without an example counts as average."""
    violation = torch.nan_to_num(errors - average, nan=0.0) - tolerance
    return torch.softmax(1 + alpha * violation, dim=0).float()


@dataclass
class RefrlFRL(Method):
    """What both methods of the report share: errors measured on held-out images before every batch."""

    needs_start: ClassVar[bool] = True
    needs_validation: ClassVar[bool] = True
    state_fields: ClassVar[tuple[str, ...]] = ("counts", "place")

    held_out: int = option(
        100, "ours: held-out images attacked before each batch; the public notebooks take 20 batches"
    )
    window: int = option(20, "batches pooled: as many held-out images as the public notebooks look at before each")

    def setup(self, context: Context) -> None:
        """Start with no measurement."""
        super().setup(context)
        self.recent = RecentErrors.empty(self.window, context.num_classes)

    @property
    def counts(self) -> Tensor:
        """The window, as a resumed run needs it."""
        return self.recent.counts

    @counts.setter
    def counts(self, value: Tensor) -> None:
        self.recent.counts = value

    @property
    def place(self) -> int:
        """Measurements so far."""
        return self.recent.place

    @place.setter
    def place(self, value: int) -> None:
        self.recent.place = value

    def measure(self, model: nn.Module, *, epsilon: float, step: float, steps: int) -> None:
        """Attack some held-out images and adapt to the errors of the window, which is full from the first batch on."""
        held = self.context.held
        if held is None:
            return
        for _ in range(max(1, self.window - self.place)):
            rows = torch.randint(len(held), (self.held_out,), generator=self.context.generator)
            x, y = held.batch(rows.to(held.labels.device))
            noise = torch.rand(x.shape, generator=self.context.generator).to(x.device) * 2 - 1
            attacked = self.context.attack_copy(model)
            found = pgd(attacked, x, y, epsilon=epsilon, step=step, steps=steps, noise=noise).last
            with torch.no_grad():
                clean, under_attack = attacked(x).argmax(1), attacked(found).argmax(1)
            self.recent.add(y, clean != y, under_attack != clean)
        self.adapt()

    def adapt(self) -> None:
        """Set weights, or radii, by the errors of the window."""
        raise NotImplementedError


@dataclass
class RefrlReweight(RefrlFRL):
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

    tolerance: float = option(0.05, "refrl2022, Section 3.3")
    alpha_natural: float = option(5.0, "refrl2022, Section 3.3: 5:1 was best")
    alpha_boundary: float = option(1.0, "refrl2022, Section 3.3: 5:1 was best")
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
