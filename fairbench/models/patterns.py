"""Which models are meant by a pattern: ``zoo:DATASET/GLOB``, or a path with wildcards."""

import glob
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fairbench.errors import ModelError
from fairbench.files import user_path
from fairbench.models.cards import card_names, load_card
from fairbench.models.checkpoints import SUFFIXES
from fairbench.registry import suggest

_ZOO = "zoo:"


def matching(patterns: Sequence[str]) -> dict[str, str]:
    """Return the models that patterns stand for, in order and each once: a short name for each, and how to load it.

    ``zoo:DATASET/GLOB`` or ``zoo:GLOB`` stands for models of the zoo, a path with ``*``, ``?`` or ``[]`` for what it
    matches, and anything else for itself.

    Raises
    ------
    ModelError
        A pattern matches nothing; what there is is named.

    Examples
    --------
    >>> matching(["zoo:cifar10/natural*"])
    {'natural_resnet18': 'natural_resnet18'}
    """
    found: dict[str, str] = {}
    for pattern in patterns:
        for name in _expanded(pattern):
            found.setdefault(_place(name), name)
    named: dict[str, str] = {}
    for name in found.values():
        short = _short(name)
        number = 2
        while short in named:
            short = f"{_short(name)}-{number}"
            number += 1
        named[short] = name
    return named


def _expanded(pattern: str) -> list[str]:
    if pattern.startswith(_ZOO):
        return _of_the_zoo(pattern)
    if not glob.has_magic(pattern) or user_path(pattern).exists():
        return [pattern]
    found = sorted(glob.glob(str(user_path(pattern))))
    if not found:
        raise ModelError(f"--models {pattern}: nothing there has such a name.")
    return found


def _of_the_zoo(pattern: str) -> list[str]:
    dataset, slash, name = pattern.removeprefix(_ZOO).rpartition("/")
    there = {card: load_card(card).dataset for card in card_names()}
    datasets = sorted(set(there.values()))
    wanted = [card for card, its in there.items() if not slash or fnmatchcase(its, dataset)]
    if not wanted:
        raise ModelError(f"--models {pattern}: the zoo has no model for '{dataset}'.{suggest(dataset, datasets)}")
    found = [card for card in wanted if fnmatchcase(card, name)]
    if not found:
        near = suggest(name.rstrip("*"), wanted, "fairbench models")
        raise ModelError(f"--models {pattern}: no model of that name.{near}")
    return found


def _place(name: str) -> str:
    """Return what is the same for one file under two paths."""
    path = user_path(name)
    return str(path.resolve()) if path.exists() else name


def _short(name: str) -> str:
    path = Path(name.removeprefix("robustbench:"))
    return path.stem if path.suffix in SUFFIXES else path.name or name
