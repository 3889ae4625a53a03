"""The Adult classifier of ``sooksatra2022``, Section IV.A: four hidden dense layers with tanh. Images are flattened.

The paper gives no width; 64 units a layer is ours, and a checkpoint's own width is read off its weights.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from fairbench.models.architectures import Architecture

_HIDDEN_LAYERS = 4


class MLP(nn.Module):
    """Flatten, four dense layers with tanh, an output layer."""

    def __init__(
        self, num_classes: int = 2, in_features: int | None = None, width: int = 64, shape: tuple[int, ...] = (104,)
    ) -> None:
        super().__init__()
        widths = [in_features or math.prod(shape), *[width] * _HIDDEN_LAYERS]
        hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, ...) to (B, K) logits."""
        return self.layers(x)


def _infer(state: Mapping[str, Tensor]) -> dict[str, Any]:
    width, in_features = state["layers.1.weight"].shape
    return {
        "num_classes": state[f"layers.{1 + 2 * _HIDDEN_LAYERS}.weight"].shape[0],
        "in_features": in_features,
        "width": width,
    }


MLP_ARCHITECTURE = Architecture(MLP, _infer)
