"""Standard training: cross-entropy on clean images."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.training.method import Method


@dataclass
class Standard(Method):
    """``CE(f(x), y)``."""

    name: ClassVar[str] = "standard"
    source: ClassVar[str] = "cross-entropy, no inner maximisation"

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(model(x), y)
