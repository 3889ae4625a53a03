"""Class-wise errors of the moment: a few held-out images before every batch, pooled over the last batches."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class RecentErrors:
    """Counts of the last ``window`` measurements, oldest out first.

    Parameters
    ----------
    counts
        (window, 3, K) float32: how many examples of each class, how many misclassified clean, and how many whose
        prediction the attack changed.
    place
        Where the next measurement goes.
    """

    counts: Tensor
    place: int = 0

    @classmethod
    def empty(cls, window: int, num_classes: int) -> "RecentErrors":
        """Return a window without a measurement."""
        return cls(torch.zeros(window, 3, num_classes))

    def add(self, labels: Tensor, wrong: Tensor, changed: Tensor) -> None:
        """Take in a measurement: (B,) int64 labels, and (B,) bool whether misclassified, and whether changed."""
        weights = torch.stack([torch.ones_like(labels), wrong.long(), changed.long()]).cpu()
        counts = [torch.bincount(labels.cpu(), w.double(), self.counts.shape[2]) for w in weights]
        self.counts[self.place % len(self.counts)] = torch.stack(counts).float()
        self.place += 1

    def shares(self) -> tuple[Tensor, Tensor]:
        """Return (K,) the share misclassified and the share changed; NaN for a class without an example."""
        total, wrong, changed = self.counts.sum(0).double()
        return wrong / total, changed / total

    def averages(self) -> tuple[float, float]:
        """Return both over all examples."""
        total, wrong, changed = self.counts.sum((0, 2)).double().tolist()
        return wrong / total, changed / total
