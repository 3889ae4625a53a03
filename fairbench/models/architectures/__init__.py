"""The architectures known by name. Each file holds one: a plain ``nn.Module``, ``build`` and ``infer``.

``build(num_classes, in_channels, ...)`` makes the module; ``infer(state)`` reads those arguments off a state_dict,
which is how a checkpoint is fitted without being told its class count; ``input_size`` is (height, width) where only one
works.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fairbench.errors import ModelError
from fairbench.registry import Registry

_HOME = "fairbench.models.architectures"


@dataclass(frozen=True)
class Architecture:
    """How to build one architecture, and how to recognise its weights.

    ``infer`` raises :class:`KeyError` when the state_dict is not of this architecture.
    """

    build: Callable[..., nn.Module]
    infer: Callable[[Mapping[str, Tensor]], dict[str, Any]]
    input_size: tuple[int, int] | None = None


ARCHITECTURES = Registry(
    "architecture",
    ModelError,
    {
        "lenet5": f"{_HOME}.lenet5:LENET5",
        "small_cnn": f"{_HOME}.small_cnn:SMALL_CNN",
        "resnet18": f"{_HOME}.resnet:RESNET18",
        "preact_resnet18": f"{_HOME}.preact_resnet:PREACT_RESNET18",
        "wrn_28_10": f"{_HOME}.wide_resnet:WRN_28_10",
        "mlp": f"{_HOME}.mlp:MLP_ARCHITECTURE",
    },
    own_code="FUNCTION",
)
"""Architecture name to :class:`Architecture`."""
