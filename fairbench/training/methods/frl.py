"""Fair Robust Learning (``xu2021``, Xu et al., ICML 2021, arXiv:2010.06121): reweight, remargin, or both.

From a robust model. Before each epoch the class errors on held-out training images say which classes are further from
the average than the tolerance; their loss is weighted up (reweight) and their radius grown (remargin).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.errors import RecipeError
from fairbench.training.method import ClassErrors, Context, Method, Validate, option
from fairbench.training.methods.trades import kl_divergence

_SHARE = 0.5
"""lambda0 and lambda1 are scaled to sum to this at most, each."""
_MARGINS = (0.98, 3.0)
"""Least and largest radius multiplier."""


def class_weights(multipliers: Tensor) -> Tensor:
    """Return (K,) ``w_c = 1/K + (K-1)/K lambda_c - 1/K sum_{d != c} lambda_d``.

    Examples
    --------
    >>> class_weights(torch.tensor([0.3, 0.0])).tolist()
    [0.6499999761581421, 0.3499999940395355]
    """
    k = len(multipliers)
    return 1 / k + (k - 1) / k * multipliers - (multipliers.sum() - multipliers) / k


def _capped(multipliers: Tensor) -> Tensor:
    return multipliers * _SHARE / multipliers.sum().clamp(min=_SHARE)


@dataclass
class FRL(Method):
    """``sum(w0 CE) / sum(w0) + beta sum(w1 KL) / sum(w1)``, weights and radius by class."""

    name: ClassVar[str] = "frl"
    source: ClassVar[str] = "Xu et al., 2021 (xu2021), arXiv:2010.06121, Algorithm 1"
    needs_start: ClassVar[bool] = True
    needs_validation: ClassVar[bool] = True
    state_fields: ClassVar[tuple[str, ...]] = ("lambda0", "lambda1", "lambda2")
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reweight": {"rate2": 0.0},
        "remargin": {"reweight_boundary": False},
        "both": {},
    }

    tolerance: float = option(0.05, "tau; xu2021 and sun2023 use 0.05 and 0.07")
    beta: float = option(1.5, "the authors' code", least=0)
    epsilon: float = option(8 / 255, "xu2021")
    steps: int = option(10, "as TRADES")
    rate1: float = option(0.05, "r1, the authors' code; halved every 40 epochs", least=0)
    rate2: float = option(0.2, "r2, the authors' code", least=0)
    halve_every: int = option(40, "epochs after which r1 is halved, the authors' code", least=1)
    reweight_boundary: bool = option(True, "remargin alone leaves lambda1 at 0")

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise RecipeError(f"method frl: tolerance {self.tolerance:g}: give a share in 0..1, such as 0.05.")

    def setup(self, context: Context) -> None:
        """Start with equal weights and the plain radius."""
        super().setup(context)
        self.lambda0, self.lambda1, self.lambda2 = (torch.zeros(context.num_classes) for _ in range(3))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the class-weighted TRADES loss."""
        radius = self.epsilon * self.margins().to(x.device)[y]
        found = self.attack(
            model,
            x,
            y,
            epsilon=radius,
            step=float(radius.max()) / 4,
            steps=self.steps,
            loss="kl",
            init="gaussian",
        )
        clean = model(x)
        natural = class_weights(self.lambda0).to(x.device)[y]
        boundary = class_weights(self.lambda1).to(x.device)[y]
        cross_entropy = F.cross_entropy(clean, y, reduction="none")
        divergence = kl_divergence(clean, model(found.last))
        mean = self.context.mean
        return (natural * cross_entropy).sum() / mean(natural.sum()) + self.beta * (
            (boundary * divergence).sum() / mean(boundary.sum())
        )

    def margins(self) -> Tensor:
        """Return (K,) the factor of each class's radius."""
        return torch.exp(2 * self.lambda2).clamp(*_MARGINS)

    def begin(self, validate: Validate) -> None:
        """Adapt to the model that training starts from."""
        self.adapt(validate())

    def end_epoch(self, validate: Validate) -> None:
        """Move the multipliers by the violations of the tolerance."""
        self.adapt(validate())

    def adapt(self, errors: ClassErrors) -> None:
        """Do one step of the multipliers; a class without an example keeps its own."""
        standard = torch.nan_to_num(errors.std - errors.avg_std - self.tolerance, nan=0.0).float()
        boundary = torch.nan_to_num(errors.bndy - errors.avg_bndy - self.tolerance, nan=0.0).float()
        rate = self.rate1 * 0.5 ** (self.epoch // self.halve_every)
        self.lambda0 = (self.lambda0 + rate * standard).clamp(min=0)
        if self.reweight_boundary:
            self.lambda1 = (self.lambda1 + 2 * rate * boundary).clamp(min=0)
        self.lambda2 = self.lambda2 + self.rate2 * boundary
        self.lambda0, self.lambda1 = _capped(self.lambda0), _capped(self.lambda1)
