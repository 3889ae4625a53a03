"""Option values as people type them."""

import itertools
import math
import re
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path

from fairbench.errors import DatasetError, FairbenchError, ModelError, ProtocolError


def floats(text: str | None, option: str) -> tuple[float, ...] | None:
    """Read "0.49,0.48,0.45"; None stays None.

    Raises
    ------
    ModelError
        It is not numbers with commas between.
    """
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ModelError(f"{option} {text}: give numbers with commas between, such as 0.49,0.48,0.45.") from None


def size(text: str | None) -> tuple[int, int] | None:
    """Read "32" or "24x32" (height x width); None stays None.

    Raises
    ------
    ProtocolError
        It is neither.
    """
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.lower().split("x")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 < number <= 10_000 for number in numbers):
        raise ProtocolError(f"--resize {text}: give one size such as 32, or HEIGHTxWIDTH such as 24x32.")
    return numbers[0], numbers[-1]


def protocol(name: str | None, model: str, dataset: str | None) -> str:
    """Return the protocol to take: the one named, or that of images or features, by what is evaluated."""
    from fairbench.evaluation.protocol import default_protocol
    from fairbench.models.loading import own_dataset

    if name is not None:
        return name
    try:
        return default_protocol(dataset or own_dataset(model))
    except ModelError:  # said when it is loaded
        return default_protocol("")


def epsilons(text: str) -> tuple[float, ...]:
    """Read "0:16/255:1/255" (first, last and step) or "0,4/255,8/255": rising radii from 0 on.

    Raises
    ------
    ProtocolError
        It is neither, empty, not finite, below 0, or does not rise.
    """
    from fairbench.evaluation.protocol import parse_fraction

    for part in re.split("[:,]", text):
        if not 0 <= parse_fraction(part, "--epsilons") < math.inf:
            raise ProtocolError(f"--epsilons {text}: {part} is no radius; give finite ones from 0 on.")
    if ":" in text:
        parts = [parse_fraction(part, "--epsilons") for part in text.split(":")]
        if len(parts) != 3 or parts[2] <= 0 or parts[1] < parts[0]:
            raise ProtocolError(f"--epsilons {text}: give FIRST:LAST:STEP, such as 0:16/255:1/255.")
        steps = (parts[1] - parts[0]) / parts[2]
        if steps > 999.5:
            raise ProtocolError(f"--epsilons {text}: these are more than 1,000 radii; give fewer.")
        count = int(steps + 1e-6) + 1
        return tuple(parts[0] + number * parts[2] for number in range(count))
    radii = tuple(parse_fraction(part, "--epsilons") for part in text.split(","))
    if any(b <= a for a, b in itertools.pairwise(radii)):
        raise ProtocolError(f"--epsilons {text}: give rising radii.")
    return radii


def classes(text: str | None) -> tuple[int, ...] | None:
    """Read "2,3,4,5", numbers of classes; None stays None.

    Raises
    ------
    DatasetError
        It is not whole numbers with commas between.
    """
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DatasetError(f"--drop-classes {text}: give class numbers with commas between, such as 2,3,4,5.") from None


def names(text: str | None, option: str) -> tuple[str, ...] | None:
    """Read "pgd20,autoattack"; None stays None.

    Raises
    ------
    ProtocolError
        There is nothing between two commas, or at an end.
    """
    if text is None:
        return None
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ProtocolError(f"{option} '{text}': give names with one comma between.")
    return parts


def refuse_for_all(ask: Callable[[str], object], names: Iterable[str]) -> None:
    """Raise, once, what options are wrong with, where no model can be evaluated by them.

    Raises
    ------
    FairbenchError
        ``ask`` raised for each name; this is what it said of the last.
    """
    faults: list[FairbenchError] = []
    for name in names:
        try:
            ask(name)
        except FairbenchError as error:
            faults.append(error)
        else:
            return
    if faults:
        raise faults[-1]


def same_classes(classes: Iterable[tuple[str, ...]]) -> None:
    """Check that models which are shown side by side were evaluated on the same classes.

    Raises
    ------
    ProtocolError
        They were not.
    """
    if len(set(classes)) > 1:
        raise ProtocolError("the models were evaluated on other classes; give one --dataset for all.")


def one_of_a_name(name: str, shown: Container[str]) -> None:
    """Check that a model to show beside others has a name of its own: that of a file is the same in many folders.

    Raises
    ------
    ProtocolError
        One of that name is shown already.
    """
    if name in shown:
        raise ProtocolError(f"two models are called {name}; rename a file, or show them one at a time.")


def say_written(paths: Iterable[Path]) -> None:
    """Name the files that were written, a line each, on stderr: what a command prints may be read by a program."""
    for path in paths:
        print(f"written: {path}", file=sys.stderr)
