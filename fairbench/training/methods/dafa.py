"""Distance-aware fair adversarial training (Lee et al., ICLR 2024, arXiv:2401.12532), on TRADES."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.errors import RecipeError
from fairbench.training.method import Context, Method, Validate, option
from fairbench.training.methods.trades import kl_divergence


def distance_weights(similarity: Tensor, strength: float) -> Tensor:
    """Return (K,) ``w_i = 1 + lambda sum_{j != i} (S_ij S_jj if S_ii < S_jj else -S_ji S_ii)``.

    Parameters
    ----------
    similarity
        (K, K) S, row i the mean adversarial softmax of class i.

    Examples
    --------
    >>> distance_weights(torch.tensor([[0.5, 0.25], [0.25, 0.75]]), 1.0).tolist()
    [1.1875, 0.8125]
    """
    own = similarity.diagonal()
    gain = similarity * own[None, :]  # S_ij S_jj
    cost = similarity.T * own[:, None]  # S_ji S_ii
    harder = own[:, None] < own[None, :]
    terms = torch.where(harder, gain, -cost)
    return 1 + strength * (terms.sum(1) - terms.diagonal())


@dataclass
class DAFA(Method):
    """TRADES whose cross-entropy, radius and step are scaled by class weights once the warm-up is over.

    S is measured on the adversarial examples of the last epoch of the warm-up, in ``train()`` mode, as they are made.
    """

    name: ClassVar[str] = "dafa"
    source: ClassVar[str] = "Lee et al., DAFA: Distance-Aware Fair Adversarial Training, ICLR 2024, arXiv:2401.12532"
    state_fields: ClassVar[tuple[str, ...]] = ("weights", "weighted")

    beta: float = option(6.0, "as TRADES", least=0)
    epsilon: float = option(0.031, "as TRADES")
    step: float = option(0.007, "as TRADES")
    steps: int = option(10, "as TRADES")
    strength: float = option(1.0, "lambda of the paper", least=0)
    warm_up: float = option(70 / 110, "70 of 110 epochs", least=0, most=1)

    def setup(self, context: Context) -> None:
        """Start with equal weights."""
        super().setup(context)
        self.weights, self.weighted = torch.ones(context.num_classes), False
        self._sums = torch.zeros(context.num_classes, context.num_classes)
        self._counts = torch.zeros(context.num_classes)

    def start_epoch(self, epoch: int, progress: float) -> None:
        """Begin to measure anew."""
        super().start_epoch(epoch, progress)
        self._sums.zero_()
        self._counts.zero_()

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the class-weighted TRADES loss."""
        weights = self.weights.to(x.device)[y]
        found = self.attack(
            model,
            x,
            y,
            epsilon=self.epsilon * weights,
            step=self.step * weights,
            steps=self.steps,
            loss="kl",
            init="gaussian",
        )
        clean, attacked = model(x), model(found.last)
        if not self.weighted:
            self._sums.index_add_(0, y.cpu(), attacked.detach().softmax(1).float().cpu())
            self._counts.index_add_(0, y.cpu(), torch.ones(len(y)))
        standard = F.cross_entropy(clean, y, reduction="none")
        return (weights * standard + self.beta * kl_divergence(clean, attacked)).mean()

    def end_epoch(self, validate: Validate) -> None:
        """Set the weights once, at the end of the warm-up; classes that were not seen stay at 1."""
        if self.weighted or self.progress < self.warm_up:
            return
        sums, counts = self.context.mean(self._sums), self.context.mean(self._counts)
        present = counts > 0
        similarity = torch.where(present[:, None] & present, sums / counts[:, None], 0.0)
        weights = torch.where(present, distance_weights(similarity, self.strength), self.weights)
        if float(weights.min()) <= 0:  # its loss would be maximised, without bound
            lowest = int(weights.argmin())
            raise RecipeError(
                f"method dafa: the weight of class {lowest} would be {float(weights[lowest]):.2f}, which is not "
                "positive: lower strength, or lengthen warm_up."
            )
        self.weights = weights
        self.weighted = True
