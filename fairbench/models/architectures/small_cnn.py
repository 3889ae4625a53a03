"""The small CNN of ``sooksatra2022``, Section IV.A: two convolutions with max pooling, two hidden dense layers, ReLU.

The paper gives no widths; these (32 and 64 channels, 256 and 128 units) are ours.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fairbench.models.architectures import Architecture

_POOLED = 4
"""Feature maps are pooled to 4x4 before the dense layers, so that any image size fits."""


class SmallCNN(nn.Module):
    """Conv-pool, conv-pool, dense, dense, output."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(_POOLED),
        )
        self.classifier = nn.Sequential(
            nn.Linear(64 * _POOLED**2, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, K) logits; H and W are 2 or more."""
        return self.classifier(self.features(x).flatten(1))


def _infer(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return {
        "num_classes": state["classifier.4.weight"].shape[0],
        "in_channels": state["features.0.weight"].shape[1],
    }


SMALL_CNN = Architecture(SmallCNN, _infer)
