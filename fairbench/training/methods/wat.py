"""Worst-class adversarial training (WAT; Li and Liu, AAAI 2023): class weights by no-regret dynamics."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Context, Method, Validate, option
from fairbench.training.methods.trades import kl_divergence


@dataclass
class WAT(Method):
    """TRADES with class weights; after each epoch ``w_c`` grows by ``exp(rate loss_c)``, loss_c robust and held-out."""

    name: ClassVar[str] = "wat"
    source: ClassVar[str] = "Li and Liu, WAT: Improve the Worst-class Robustness in Adversarial Training, AAAI 2023"
    state_fields: ClassVar[tuple[str, ...]] = ("weights",)

    beta: float = option(6.0, "as TRADES")
    epsilon: float = option(8 / 255, "as PGD-AT")
    step: float = option(2 / 255, "as PGD-AT")
    steps: int = option(10, "as TRADES")
    rate: float = option(0.1, "ours: the rate of the multiplicative updates")

    def setup(self, context: Context) -> None:
        """Start with equal weights."""
        super().setup(context)
        self.weights = torch.full((context.num_classes,), 1 / context.num_classes)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the TRADES loss with each example weighted by its class, weights of mean 1 over classes."""
        found = self.attack(
            model, x, y, epsilon=self.epsilon, step=self.step, steps=self.steps, loss="kl", init="gaussian"
        )
        clean = model(x)
        weights = (self.weights * len(self.weights)).to(x.device)[y]
        standard = F.cross_entropy(clean, y, reduction="none")
        return (weights * (standard + self.beta * kl_divergence(clean, model(found.last)))).mean()

    def end_epoch(self, validate: Validate) -> None:
        """Do one multiplicative update; a class without an example counts as the mean."""
        losses = validate().rob_loss
        known = torch.isfinite(losses)
        losses = torch.where(known, losses, losses[known].mean())
        grown = self.weights.double() * torch.exp(self.rate * (losses - losses.max()))
        self.weights = (grown / grown.sum()).float()
