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
    """TRADES with class weights that grow by ``exp(rate loss_c)`` after each epoch, loss_c robust and held out.

    The K classes and, as one expert more, their average compete; weights start at 1 and sum to K afterwards.
    """

    name: ClassVar[str] = "wat"
    source: ClassVar[str] = "Li and Liu, WAT: Improve the Worst-class Robustness in Adversarial Training, AAAI 2023"
    needs_validation: ClassVar[bool] = True
    state_fields: ClassVar[tuple[str, ...]] = ("cost", "weights")

    beta: float = option(6.0, "as TRADES", least=0)
    epsilon: float = option(0.031, "the authors' code")
    step: float = option(0.007, "the authors' code")
    steps: int = option(10, "the authors' code")
    rate: float = option(0.1, "eta, the authors' code", least=0)

    def setup(self, context: Context) -> None:
        """Start with weights of 1 and no cost."""
        super().setup(context)
        self.weights = torch.ones(context.num_classes + 1)
        self.cost = torch.zeros(context.num_classes + 1, dtype=torch.float64)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean of the TRADES loss, each example weighted by its class and by the average's weight."""
        found = self.attack(
            model, x, y, epsilon=self.epsilon, step=self.step, steps=self.steps, loss="kl", init="gaussian"
        )
        clean = model(x)
        weights = (self.weights[:-1] + self.weights[-1]).to(x.device)[y]
        standard = F.cross_entropy(clean, y, reduction="none")
        return (weights * (standard + self.beta * kl_divergence(clean, model(found.last)))).mean()

    def end_epoch(self, validate: Validate) -> None:
        """Add the epoch's held-out losses to the costs and weigh anew; a class without an example counts as average.

        The authors' cost is the TRADES loss, ours the cross-entropy under PGD-20.
        """
        losses = validate().rob_loss
        average = losses[torch.isfinite(losses)].mean()
        self.cost += torch.cat([torch.where(torch.isfinite(losses), losses, average), average[None]])
        self.weights = (self.context.num_classes * torch.softmax(self.rate * self.cost, dim=0)).float()
