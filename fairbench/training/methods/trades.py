"""TRADES (Zhang et al., 2019, arXiv:1901.08573, Equation 5)."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Method, option


def kl_divergence(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """Return (B,) ``KL(p || q) = sum p log(p / q)`` of two softmax distributions given by their logits."""
    log_p, log_q = F.log_softmax(p_logits, dim=1), F.log_softmax(q_logits, dim=1)
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(1)


@dataclass
class Trades(Method):
    """``CE(f(x), y) + beta KL(f(x) || f(x_adv))``, x_adv maximising that KL from a Gaussian start."""

    name: ClassVar[str] = "trades"
    source: ClassVar[str] = "Zhang et al., 2019, arXiv:1901.08573, Equation 5"

    beta: float = option(6.0, "1/lambda; sun2023 compares 1 and 6", least=0)
    epsilon: float = option(0.031, "the authors' code")
    step: float = option(0.007, "the authors' code")
    steps: int = option(10, "the authors' code")

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the clean cross-entropy plus beta times the mean KL divergence."""
        found = self.attack(
            model, x, y, epsilon=self.epsilon, step=self.step, steps=self.steps, loss="kl", init="gaussian"
        )
        clean = model(x)
        return F.cross_entropy(clean, y) + self.beta * kl_divergence(clean, model(found.last)).mean()
