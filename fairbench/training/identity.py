"""What determines a run, so that a folder goes on with its own run and refuses another's."""

from typing import Any

from fairbench.own_code import own_attribute, sha256_source
from fairbench.registry import is_own_code
from fairbench.training.recipe import Recipe


def training_identity(
    recipe: Recipe, *, time_budget: float | None, data_sha256: str, start_sha256: str | None
) -> dict[str, Any]:
    """Return recipe, budget, data, the weights it starts from, and code of the user's own, as plain data.

    Raises
    ------
    ModelError
        The user's own code cannot be imported.
    """
    identity = recipe.model_dump(mode="json") | {"time_budget": time_budget, "data_sha256": data_sha256}
    if start_sha256 is not None:
        identity["start_sha256"] = start_sha256
    for name in ("normalize", "balance"):  # runs that were begun before there were these go on
        if not identity[name]:
            del identity[name]
    if identity["schedule"]["epochs_per_pass"] == 1:  # as above
        del identity["schedule"]["epochs_per_pass"]
    identity |= adversarial_seed(recipe)
    for name in ("method", "architecture"):
        if is_own_code(text := getattr(recipe, name)):
            identity[f"{name}_sha256"] = sha256_source(own_attribute(text, name))
    return identity


def adversarial_seed(recipe: Recipe) -> dict[str, Any]:
    """Return what tells apart runs from when a static adversarial set was drawn with seed 0 whatever the recipe's."""
    return {"adversarial_seed": recipe.seed} if recipe.method == "static_augmentation" and recipe.seed else {}
