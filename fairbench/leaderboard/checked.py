"""What a submission is held to, and what a check of it found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairbench.errors import OutcomesError
from fairbench.leaderboard.card import SubmissionCard
from fairbench.outcomes import Outcomes

SEED = 0
"""The seed of every submission: one that a submitter may choose can be chosen for its luck."""


@dataclass(frozen=True)
class Truth:
    """What a dataset's own files say of its test split.

    Parameters
    ----------
    classes, size
        Names of the classes and number of test examples.
    index, labels
        (M,) int64 positions whose labels are known here, and the labels.
    missing
        Why not all of them are, or None.
    sha256
        Hash of the images at (C, H, W), as a manifest has it, or None for more pixels than are made; None where the
        images are not there.
    """

    classes: tuple[str, ...]
    size: int
    index: np.ndarray
    labels: np.ndarray
    missing: str | None = None
    sha256: Callable[[tuple[int, ...]], str | None] | None = None


@dataclass(frozen=True)
class Latest:
    """The latest version of an entry on the board, and what it was measured on; None where its card cannot be read."""

    version: int
    dataset: str | None = None
    protocol: str | None = None


@dataclass(frozen=True)
class Rules:
    """What a submission is held to.

    Parameters
    ----------
    attacks
        (protocol, K) to the attacks of a locked protocol and their parameters, as a manifest has them.
    truth
        Dataset name to its :class:`Truth`; None for a dataset that has no board.
    taken
        Names on the board, and the :class:`Latest` version of each; None where the name is not to be checked.
    place
        Name and version by which the folder lies on the board, if it does: those of its card.
    known_weights
        SHA-256 of weights that the project has measured itself, of the file or of what is loaded from it, to the
        model's name.
    """

    attacks: Callable[[str, int], Mapping[str, Mapping[str, Any]]]
    truth: Callable[[str], Truth | None]
    taken: Mapping[str, Latest] | None = field(default_factory=dict)
    known_weights: Mapping[str, str] = field(default_factory=dict)
    place: tuple[str, int] | None = None


@dataclass
class Checked:
    """The outcome of a check; ``card`` and ``outcomes`` are there where they could be read.

    ``notes`` say what a person should know and what is no fault.
    """

    problems: list[str] = field(default_factory=list)
    not_made: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    card: SubmissionCard | None = None
    outcomes: Outcomes | None = None
    labels_compared: bool = False

    @property
    def accepted(self) -> bool:
        """Whether nothing was found that speaks against it."""
        return not self.problems


def require_accepted(checked: Checked, folder: Path) -> tuple[SubmissionCard, Outcomes]:
    """Return card and outcomes of an accepted submission.

    Raises
    ------
    OutcomesError
        It has problems; the first is named.
    """
    if checked.problems or checked.card is None or checked.outcomes is None:
        more = f" and {len(checked.problems) - 1} more" if len(checked.problems) > 1 else ""
        raise OutcomesError(
            f"{folder} is refused: {(checked.problems or ['it could not be read'])[0]}{more}. "
            "`fairbench leaderboard check` lists all."
        )
    return checked.card, checked.outcomes


def short_value(value: Any) -> str:
    """Return a value of a file on one line, at most 80 characters of it."""
    text = value if isinstance(value, str) else repr(value)
    return " ".join(text.encode("unicode_escape").decode("ascii").split())[:80]
