"""LeNet-5 as in ``refrl2022``: tanh, average pooling, 32x32 inputs (LeCun et al., 1998)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from fairbench.models.architectures import Architecture


class LeNet5(nn.Module):
    """Three 5x5 convolutions (6, 16, 120 channels) and two dense layers (84, K); the last tanh is none."""

    def __init__(self, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        self.feature_extractor = nn.Sequential(
            nn.Conv2d(in_channels, 6, kernel_size=5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, kernel_size=5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(16, 120, kernel_size=5),
            nn.Tanh(),
        )
        self.classifier = nn.Sequential(nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, 32, 32) to (B, K) logits."""
        return self.classifier(self.feature_extractor(x).flatten(1))


def _infer(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return {
        "num_classes": state["classifier.2.weight"].shape[0],
        "in_channels": state["feature_extractor.0.weight"].shape[1],
    }


LENET5 = Architecture(LeNet5, _infer, input_size=(32, 32))
