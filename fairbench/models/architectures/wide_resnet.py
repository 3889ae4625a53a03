"""WideResNet-28-10 (Zagoruyko and Komodakis, 2016, arXiv:1605.07146).

Keys are those of the TRADES and RobustBench checkpoints (``conv1 block1..3.layer.* bn1 fc``).
"""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.models.architectures import Architecture

_BLOCKS = 4
"""(28 - 4) / 6 blocks a group."""
_WIDEN = 10


class WideBlock(nn.Module):
    """A pre-activation block; where channels change, the shortcut leaves after the first activation."""

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        same = in_planes == planes
        self.convShortcut = None if same else nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in_planes, H, W) to (B, planes, H / stride, W / stride)."""
        activated = F.relu(self.bn1(x))
        out = self.conv2(F.relu(self.bn2(self.conv1(activated))))
        return out + (x if self.convShortcut is None else self.convShortcut(activated))


class WideGroup(nn.Module):
    """Blocks of one width; the wrapper gives the keys their ``.layer.``."""

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        first = WideBlock(in_planes, planes, stride)
        self.layer = nn.Sequential(first, *(WideBlock(planes, planes, 1) for _ in range(_BLOCKS - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the blocks in order."""
        return self.layer(x)


class WideResNet(nn.Module):
    """Three groups of four blocks, 160, 320 and 640 channels; global average pooling."""

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        widths = [16, 16 * _WIDEN, 32 * _WIDEN, 64 * _WIDEN]
        self.conv1 = nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False)
        self.block1 = WideGroup(widths[0], widths[1], 1)
        self.block2 = WideGroup(widths[1], widths[2], 2)
        self.block3 = WideGroup(widths[2], widths[3], 2)
        self.bn1 = nn.BatchNorm2d(widths[3])
        self.fc = nn.Linear(widths[3], num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, K) logits."""
        out = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(F.adaptive_avg_pool2d(F.relu(self.bn1(out)), 1).flatten(1))


def _infer(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return {"num_classes": state["fc.weight"].shape[0], "in_channels": state["conv1.weight"].shape[1]}


WRN_28_10 = Architecture(WideResNet, _infer)
