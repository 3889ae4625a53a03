"""The network before its first step: does it take these inputs, in which layout, and what moves its weights."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench.datasets import Dataset
from fairbench.errors import RecipeError, first_line
from fairbench.models.base import Normalize
from fairbench.models.building import new_module
from fairbench.models.layout import Layout, settle_layout
from fairbench.training.recipe import OptimizerRecipe, Recipe


def probe(module: nn.Module, dataset: Dataset, architecture: str) -> Layout:
    """Settle the network's layout, and make sure that it takes these images and has an output for each class.

    Raises
    ------
    RecipeError
        It fails on two examples, or returns anything but (2, K) logits.
    """
    x, _, _ = dataset.batch(slice(0, 2))
    module.eval()
    try:
        layout, logits = settle_layout(module, x)
    except Exception as error:  # a user's own forward can raise anything
        raise RecipeError(f"{architecture} cannot take {dataset.described_shape}: {first_line(error)}") from error
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (len(x), dataset.num_classes):
        raise RecipeError(
            f"{architecture} returns {found} for {len(x)} {dataset.kind} of {dataset.num_classes} classes, "
            f"not ({len(x)}, {dataset.num_classes}) logits."
        )
    return layout


def prepare(recipe: Recipe, data: Dataset) -> tuple[nn.Module, Dataset, tuple[int, int] | None]:
    """Build the recipe's network with its first weights, and resize the data to what it takes.

    Returns
    -------
    tuple
        The network, a normalisation before it if the recipe has one; the data; the (height, width) that the
        architecture is made for, None where it takes any.

    Raises
    ------
    ModelError
        There is no such architecture, or it cannot be built for such data.
    """
    torch.manual_seed(recipe.seed)
    module, size = new_module(recipe.architecture, data.num_classes, data.shape)
    if size is not None:
        data = data.resized(*size)
    return (normalized(module, data) if recipe.normalize else module), data, size


def normalized(module: nn.Module, data: Dataset) -> nn.Sequential:
    """Put a layer before a network that gives each channel, or feature, of the data mean 0 and standard deviation 1.

    One that never varies gets mean 0 alone.
    """
    axes = tuple(axis for axis in range(data.inputs.ndim) if axis != 1)
    scale = 255.0 if data.inputs.dtype == np.uint8 else 1.0
    mean = data.inputs.mean(axis=axes, dtype=np.float64) / scale
    std = data.inputs.std(axis=axes, dtype=np.float64) / scale
    std[std == 0] = 1.0
    layer = Normalize(tuple(mean.tolist()), tuple(std.tolist()), of_features=data.features is not None)
    return nn.Sequential(layer, module)


def make_optimizer(module: nn.Module, recipe: OptimizerRecipe, *, fused: bool = False) -> torch.optim.Optimizer:
    """Build the optimizer of a recipe; ``fused``: one pass over memory a step, the same to float32 rounding."""
    common: Any = {"lr": recipe.lr, "weight_decay": recipe.weight_decay, "fused": fused or None}
    if recipe.name == "adam":
        return torch.optim.Adam(module.parameters(), **common)
    return torch.optim.SGD(module.parameters(), momentum=recipe.momentum, **common)
