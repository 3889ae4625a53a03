"""FRL (remargin) as reproduced in ``refrl2022``, Section 3.4, Experiment 3: a radius for each class.

In the public code the shuffled mixed batch is scored against the labels of the unshuffled one, so most of that term
trains towards wrong labels. The default has the right labels; the variant ``as_published`` has theirs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.attacks.base import PIXELS
from fairbench.training.method import Context, option
from fairbench.training.methods.refrl_held_out import RefrlHeldOut, violation_weights


@dataclass
class RefrlRemargin(RefrlHeldOut):
    """``CE_w0(f(x), y) + CE(f(mixed), labels)``; mixed is half attacked within class radii, half clean, shuffled."""

    name: ClassVar[str] = "refrl_remargin"
    source: ClassVar[str] = "refrl2022, Section 3.4, Experiment 3"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"as_published": {"right_labels": False}}

    tolerance: float = option(0.05, "refrl2022, Section 3.3", least=0, most=1)
    alpha_natural: float = option(5.0, "as its reweight", least=0)
    alpha_radius: float = option(10.0, "the public notebooks", least=0)
    epsilon: float = option(8 / 255, "radius of a class at the tolerance")
    step: float = option(1 / 255, "the public notebooks")
    steps: int = option(20, "the public notebooks")
    measured_epsilon: float = option(16 / 255, "the public notebooks: radius the boundary error is measured at")
    right_labels: bool = option(True, "the public code scores the shuffled batch against unshuffled labels")

    def setup(self, context: Context) -> None:
        """Start with equal weights and radii."""
        super().setup(context)
        self.natural_weights = torch.full((context.num_classes,), 1 / context.num_classes)
        self.radii = torch.full((context.num_classes,), self.epsilon)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the weighted clean cross-entropy plus that of the mixed batch."""
        self.measure(model, epsilon=self.measured_epsilon, step=self.step, steps=self.steps)
        half, radii = slice(None, None, 2), self.radii.to(x.device)
        found = self.attack(model, x[half], y[half], epsilon=radii[y[half]], step=self.step, steps=self.steps)
        order = torch.randperm(len(x), generator=self.context.generator).to(x.device)
        mixed = x.clone()
        mixed[half] = found.last
        mixed = mixed[order]
        labels = y[order] if self.right_labels else y
        weights = self.natural_weights.to(x.device)[y]
        standard = F.cross_entropy(model(x), y, reduction="none")
        weighted = (weights * standard).sum() / self.context.mean(weights.sum())
        return weighted + F.cross_entropy(model(mixed), labels)

    def adapt(self) -> None:
        """Set ``radius_c = epsilon exp(alpha (bndy_c - tau))``, of pixels at most 1, by the errors of the window."""
        (wrong, changed), (std, _) = self.recent.shares(), self.recent.averages()
        self.natural_weights = violation_weights(wrong, std, self.tolerance, self.alpha_natural)
        excess = torch.nan_to_num(changed - self.tolerance, nan=0.0)
        largest = 1.0 if self.context.space is PIXELS else math.inf
        self.radii = (self.epsilon * torch.exp(self.alpha_radius * excess)).clamp(max=largest).float()
