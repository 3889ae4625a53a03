"""Errors by group: the examples cut by an attribute (sex, race) instead of by class. Percent; lower is better.

A group with fewer than :data:`SMALLEST` examples says nothing and is left out; which were is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.classwise import PRINTED_ERRORS, count_cells, errors_from_cells
from fairbench.metrics.intervals import Interval, percentile_interval, rate_intervals, resample
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.registry import suggest

SMALLEST = 20
"""Examples that a group needs."""


@dataclass(frozen=True)
class GroupErrors:
    """What an attack did to each group.

    ``groups`` has a row per group: ``group``, ``n``, and of each error its value and the ends of its 95 % interval
    (``std``, ``std_low``, ``std_high``, ...). ``gap`` maps each error to the largest difference between two groups, in
    points, ``gap_intervals`` to its interval (bootstrap within groups). ``left_out`` are the groups that are too small,
    and how many examples they have.
    """

    attribute: str
    attack: str
    groups: pd.DataFrame
    gap: Mapping[str, float]
    gap_intervals: Mapping[str, Interval]
    left_out: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists and numbers."""
        return {
            "attribute": self.attribute,
            "attack": self.attack,
            "groups": self.groups.to_dict("records"),
            "gap": dict(self.gap),
            "intervals": {name: list(interval) for name, interval in self.gap_intervals.items()},
            "left_out": dict(self.left_out),
        }


def group_errors(outcomes: Outcomes, attribute: str, attack: str) -> GroupErrors:
    """Return the errors of each group of an attribute under an attack.

    Raises
    ------
    OutcomesError
        The table has no such attribute, or fewer than two groups are large enough.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": range(40), "label": 0, "clean_pred": 0, "pgd20_pred": 0})
    >>> frame["sex"] = ["Female", "Male"] * 20
    >>> frame.loc[frame["index"] < 20, "pgd20_pred"] = 1
    >>> frame.loc[(frame["index"] < 20) & (frame["sex"] == "Male"), "pgd20_pred"] = 0
    >>> manifest = {"dataset": {"classes": ["no", "yes"], "attributes": ["sex"]}}
    >>> found = group_errors(Outcomes(frame, manifest), "sex", "pgd20")
    >>> found.groups[["group", "n", "rob"]].to_dict("list"), found.gap["rob"]
    ({'group': ['Female', 'Male'], 'n': [20, 20], 'rob': [50.0, 0.0]}, 50.0)
    """
    names, codes = groups_of(outcomes, attribute)
    measured = outcomes.frame[f"{attack}_pred"].notna().to_numpy()
    counts = np.bincount(codes[measured & (codes >= 0)], minlength=len(names))
    large = counts >= SMALLEST
    left_out = {name: int(n) for name, n in zip(names, counts, strict=True) if n < SMALLEST}
    require_two(attribute, large, left_out)
    cells = count_cells(outcomes.frame[codes >= 0], attack, len(names), codes[codes >= 0])[large]
    kept = [name for name, is_large in zip(names, large, strict=True) if is_large]
    values, drawn = errors_from_cells(cells), resample(cells)
    rows = []
    for number, name in enumerate(kept):
        row: dict[str, Any] = {"group": name, "n": int(cells[number].sum())}
        intervals = rate_intervals(cells[number])
        for error in PRINTED_ERRORS:
            low, high = intervals[error]
            row |= {error: float(values[error][number]), f"{error}_low": low, f"{error}_high": high}
        rows.append(row)
    gap = {error: float(spread(values[error])) for error in PRINTED_ERRORS}
    ends = {error: percentile_interval(partial(_gap, error=error), drawn, gap[error]) for error in PRINTED_ERRORS}
    return GroupErrors(attribute, attack, pd.DataFrame(rows), gap, ends, left_out)


def groups_of(outcomes: Outcomes, attribute: str) -> tuple[list[str], np.ndarray]:
    """Return the sorted values of an attribute, and (N,) the number of each example's; -1 where it has none.

    Raises
    ------
    OutcomesError
        The table has no such attribute (the nearest is suggested).
    """
    known = [str(name) for name in outcomes.manifest["dataset"].get("attributes", [])]
    if attribute not in known or attribute not in outcomes.frame:
        has = suggest(attribute, known) if known else " It has none."
        raise OutcomesError(f"the outcomes have no attribute '{attribute}'.{has}")
    codes, values = pd.factorize(outcomes.frame[attribute], sort=True)
    return [str(value) for value in values], np.asarray(codes)


def require_two(attribute: str, large: np.ndarray, left_out: Mapping[str, int]) -> None:
    """Raise unless two groups are large enough to be compared.

    Raises
    ------
    OutcomesError
        They are not; the sizes are named.
    """
    if int(large.sum()) < 2:
        small = ", ".join(f"{name} {n}" for name, n in left_out.items())
        raise OutcomesError(
            f"attribute {attribute}: two groups of {SMALLEST} examples are needed"
            + (f"; too small: {small}. Evaluate on more examples." if small else ", and there is one.")
        )


def _gap(cells: np.ndarray, error: str) -> np.ndarray:
    return spread(errors_from_cells(cells)[error])
