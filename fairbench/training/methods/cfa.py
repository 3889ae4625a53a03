"""Class-wise calibrated fair adversarial training (Wei et al., 2023, arXiv:2303.14460), on TRADES."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Context, Method, Validate, option
from fairbench.training.methods.trades import kl_divergence


@dataclass
class CFA(Method):
    """``CE(f(x), y) / (1 + beta_y) + beta_y / (1 + beta_y) KL(f(x) || f(x_adv))``, radius and beta by class.

    After the warm-up, ``radius_c = (share + r_c) epsilon`` and ``beta_c = (share + r_c) beta``, r_c the class's robust
    accuracy on the training images of the epoch before. The result is an average of epochs whose worst class passes.
    """

    name: ClassVar[str] = "cfa"
    source: ClassVar[str] = (
        "Wei et al., CFA: Class-wise Calibrated Fair Adversarial Training, CVPR 2023, arXiv:2303.14460"
    )
    needs_validation: ClassVar[bool] = True
    state_fields: ClassVar[tuple[str, ...]] = ("factor",)

    beta: float = option(6.0, "as TRADES", least=0)
    epsilon: float = option(8 / 255, "as PGD-AT")
    step: float = option(2 / 255, "as PGD-AT")
    steps: int = option(10, "as TRADES")
    share: float = option(0.5, "lambda 1 and lambda 2, the authors' code", least=0)
    warm_up: float = option(10 / 200, "10 of 200 epochs, the authors' code", least=0, most=1)
    decay: float = option(0.88, "decay of the weight average, the authors' code", least=0, most=1)
    threshold: float = option(
        0.2,
        "least robust accuracy of the worst class for an epoch to count; the authors' code has 0.24 too",
        least=0,
        most=1,
    )

    def setup(self, context: Context) -> None:
        """Start with the plain radius and beta."""
        super().setup(context)
        self.factor = torch.ones(context.num_classes)
        self._right, self._seen = torch.zeros(context.num_classes), torch.zeros(context.num_classes)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean calibrated loss, and count who withstood."""
        factor = self.factor.to(x.device)[y]
        found = self.attack(
            model, x, y, epsilon=self.epsilon * factor, step=self.step, steps=self.steps, loss="kl", init="gaussian"
        )
        clean, attacked = model(x), model(found.last)
        right = (attacked.argmax(1) == y).float().cpu()
        self._right.index_add_(0, y.cpu(), right)
        self._seen.index_add_(0, y.cpu(), torch.ones_like(right))
        beta = self.beta * factor
        standard = F.cross_entropy(clean, y, reduction="none")
        return ((standard + beta * kl_divergence(clean, attacked)) / (1 + beta)).mean()

    def end_epoch(self, validate: Validate) -> None:
        """Calibrate by the robust accuracy of the epoch; a class that was not seen keeps its factor."""
        if self.progress >= self.warm_up:
            right, seen = self.context.mean(torch.stack([self._right, self._seen]))
            self.factor = torch.where(seen > 0, self.share + right / seen, self.factor)
        self._right.zero_()
        self._seen.zero_()

    def average_decay(self, validate: Validate) -> float | None:
        """Average the epochs whose worst class withstands often enough, by their own weights."""
        worst = 1 - float(torch.nan_to_num(validate().rob, nan=0.0).max())
        return self.decay if worst >= self.threshold else None
