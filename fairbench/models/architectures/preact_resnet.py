"""Pre-activation ResNet-18 for small images (He et al., 2016, arXiv:1603.05027).

Keys are those of the checkpoints the field passes round (``conv1 layer1..4 bn linear``).
"""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.models.architectures import Architecture


class PreActBlock(nn.Module):
    """Batch norm and ReLU before each 3x3 convolution; the shortcut leaves after the first activation."""

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in_planes, H, W) to (B, planes, H / stride, W / stride)."""
        out = F.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(out)
        return self.conv2(F.relu(self.bn2(self.conv1(out)))) + shortcut


class PreActResNet18(nn.Module):
    """Four stages of two blocks, a last batch norm and ReLU, global average pooling."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        self.layer1 = _stage(64, 64, 1)
        self.layer2 = _stage(64, 128, 2)
        self.layer3 = _stage(128, 256, 2)
        self.layer4 = _stage(256, 512, 2)
        self.bn = nn.BatchNorm2d(512)
        self.linear = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, K) logits."""
        out = self.layer4(self.layer3(self.layer2(self.layer1(self.conv1(x)))))
        return self.linear(F.adaptive_avg_pool2d(F.relu(self.bn(out)), 1).flatten(1))


def _stage(in_planes: int, planes: int, stride: int) -> nn.Sequential:
    return nn.Sequential(PreActBlock(in_planes, planes, stride), PreActBlock(planes, planes, 1))


def _infer(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return {"num_classes": state["linear.weight"].shape[0], "in_channels": state["conv1.weight"].shape[1]}


PREACT_RESNET18 = Architecture(PreActResNet18, _infer)
