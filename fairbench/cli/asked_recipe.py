"""The recipe that a command line asks for, by name or by its parts, and the values that it sets."""

import re
from typing import TYPE_CHECKING, Any

from fairbench.errors import RecipeError

if TYPE_CHECKING:
    from fairbench.training.recipe import Recipe


def chosen_recipe(name: str | None, method: str | None, arch: str | None, dataset: str | None) -> "Recipe":
    """Return a recipe by name, or one of its parts with the defaults.

    Raises
    ------
    RecipeError
        Both are given, or neither whole.
    """
    from fairbench.training.recipe import Recipe, load_recipe

    if (name is None) == (method is None):
        both = f"--recipe {name} has its method: leave --method {method} out. Or "
        raise RecipeError(
            f"{both if name else ''}give --recipe NAME, or --method NAME with --arch and --dataset "
            "(`fairbench recipes` and `fairbench methods` list them)."
        )
    if name is not None:
        return load_recipe(name)
    if arch is None or dataset is None:
        raise RecipeError("--method needs --arch and --dataset.")
    name = "_".join(part.rpartition(":")[2].rpartition("/")[2] for part in (str(method), arch, dataset))
    return Recipe(
        name=re.sub(r"[^A-Za-z0-9_-]", "-", name).lstrip("."), method=str(method), architecture=arch, dataset=dataset
    )


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """Read KEY=VALUE pairs.

    Raises
    ------
    RecipeError
        One is none.
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise RecipeError(f"--set {pair}: give KEY=VALUE, such as beta=1.")
        found[key] = value
    return found
