"""The cards of the zoo as reports read them: plain data, and how long a model was trained."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import yaml

from fairbench.errors import OutcomesError, first_line
from fairbench.files import data_folder
from fairbench.plain_yaml import parse_yaml

ATTACKS_ITS_START = frozenset({"static_augmentation"})
"""Methods that train fresh weights and attack the model they start from; known here without importing the methods."""


@cache
def zoo_card(name: str) -> dict[str, Any] | None:
    """Return a model's card in the zoo as plain data; None where the zoo has none.

    Raises
    ------
    OutcomesError
        It cannot be read.
    """
    path = data_folder("model_zoo") / "cards" / f"{name}.yaml"
    if not path.is_file():
        return None
    try:
        card = parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise OutcomesError(f"{path} is no card ({first_line(error)})") from error
    return dict(card) if isinstance(card, dict) else None


def passes(training: Mapping[str, Any]) -> float | None:
    """Return over how many passes of its training images a model was trained; an epoch may be a part of one."""
    epochs = training.get("epochs")
    parts = ((training.get("recipe") or {}).get("schedule") or {}).get("epochs_per_pass", 1)
    return epochs / parts if isinstance(epochs, int) and isinstance(parts, int) and parts > 0 else None


def trained_note(models: Iterable[str]) -> str | None:
    """Say from what and for how long models of the zoo, and those before them, were trained; None where no card does.

    Examples
    --------
    >>> print(trained_note(["bat_resnet18", "pgd_at_resnet18"]).replace("; ", ";\\n"))
    Trained here: 1 pass over the training images from pgd2_resnet18 (bat_resnet18, pgd_at_resnet18);
    3 passes over the training images from natural_resnet18 (pgd2_resnet18).
    """
    groups: dict[str, list[str]] = {}
    names = [*dict.fromkeys(models)]
    for name in names:  # which grows by what they start from
        training = (zoo_card(name) or {}).get("training") or {}
        if (count := passes(training)) is None:
            continue
        recipe = training.get("recipe") or {}
        start = recipe.get("start")
        if start is not None and start not in names and recipe.get("method") not in ATTACKS_ITS_START:
            names.append(start)
        beside = f"fresh weights, on attacks made for {start}" if recipe.get("method") in ATTACKS_ITS_START else start
        what = f"{count:g} pass{'' if count == 1 else 'es'} over the training images"
        groups.setdefault(f"{what} from {beside or 'fresh weights'}", []).append(name)
    if not groups:
        return None
    told = [f"{how} ({', '.join(names)})" for how, names in groups.items()]
    return f"Trained here: {'; '.join(told)}."
