"""A model with one output fewer than the data have classes: labels that are numbered from 1 make such data."""

from collections.abc import Callable
from typing import TypeVar

from fairbench.datasets import Dataset
from fairbench.errors import CheckpointError, FairbenchError, ModelError

Answer = TypeVar("Answer")


def asked_for_classes(
    data: Dataset, ask: Callable[[int], Answer], again: Callable[[int], object] | None = None
) -> Answer:
    """Return what a model answers when it is asked by the class count of the data.

    ``again`` is what is asked for a class fewer, if not the same.

    Raises
    ------
    ModelError, CheckpointError
        What ``ask`` raised, with why that may be where a class fewer would have done.
    """
    try:
        return ask(data.num_classes)
    except (ModelError, CheckpointError) as error:
        if data.no_first_class is None or not _answers(again or ask, data.num_classes - 1):
            raise
        raise type(error)(f"{error} {data.name}: {data.no_first_class}.") from error


def _answers(ask: Callable[[int], object], num_classes: int) -> bool:
    try:
        ask(num_classes)
    except FairbenchError:
        return False
    return True
