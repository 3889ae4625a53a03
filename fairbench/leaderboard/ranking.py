"""The order of entries on a board: ranks that intervals allow, the front, and what a figure shows."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fairbench.errors import OutcomesError
from fairbench.leaderboard.entries import ATTACKS, Entry
from fairbench.metrics.intervals import Interval
from fairbench.registry import suggest

_ENOUGH = 8
"""Rows from which on one can be called far off."""
COLUMNS = ("avg_std", "worst_std", "avg_bndy", "worst_bndy", "avg_rob", "worst_rob", "cau", "cru_s")
"""Figures of a row, all better when lower; each can be sorted by."""
SORT = "worst_rob"
_WITHOUT_ATTACK = ("avg_std", "worst_std", "cau")


@dataclass(frozen=True)
class Row:
    """An entry in its place. ``ranks``: first and last place that its interval allows; None where it is not ranked."""

    entry: Entry
    ranks: tuple[int, int] | None = None
    on_front: bool = False

    def value(self, column: str) -> float:
        """Return one of :data:`COLUMNS`."""
        return float(getattr(self.entry.attack, column))

    @property
    def point(self) -> tuple[float, float]:
        """Its average and worst-class robust error."""
        return self.value("avg_rob"), self.value("worst_rob")

    def interval(self, column: str) -> Interval:
        """Return its 95 % interval."""
        return self.entry.attack.intervals[column]


@dataclass(frozen=True)
class Board:
    """One dataset under one threat model: rows best first, and those of the sample apart."""

    dataset: str
    epsilon: float
    sort: str
    ranked: tuple[Row, ...]
    sample: tuple[Row, ...]


def with_names(board: Board, pattern: str) -> Board:
    """Return the board with the rows of some entries alone, under the ranks that they have among all.

    Parameters
    ----------
    pattern
        Of names, as shells have it: "bat_*".
    """

    def named(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(row for row in rows if fnmatchcase(row.entry.name, pattern))

    return replace(board, ranked=named(board.ranked), sample=named(board.sample))


def boards(entries: Iterable[Entry], sort: str = SORT) -> list[Board]:
    """Rank entries, one board a dataset and threat model; datasets by name, radii rising.

    Raises
    ------
    OutcomesError
        ``sort`` is none of :data:`COLUMNS`.
    """
    if sort not in COLUMNS:
        raise OutcomesError(f"unknown column '{sort}'.{suggest(sort, list(COLUMNS))}")
    grouped: dict[tuple[str, float], list[Entry]] = {}
    for entry in entries:
        grouped.setdefault((entry.dataset, entry.epsilon), []).append(entry)
    found = []
    for (dataset, epsilon), group in sorted(grouped.items()):
        rows = sorted((Row(e) for e in group), key=lambda row: _key(row, sort))
        ranked = [row for row in rows if not row.entry.sample]
        sample = tuple(row for row in rows if row.entry.sample)
        found.append(Board(dataset, epsilon, sort, tuple(_placed(ranked, sort)), sample))
    return found


Tells = Callable[[int, int], bool]
"""Of two entries by number: whether a lower figure of the first says that it errs less."""


def _always(_better: int, _worse: int) -> bool:
    return True


def rank_ranges(intervals: list[Interval], tells: Tells = _always) -> list[tuple[int, int]]:
    """Return the first and the last place of each entry: only entries whose interval lies apart are surely ahead.

    The first place is one more than the number of entries whose whole interval is below; the last is the number of
    entries less those whose whole interval is above; neither counts pairs of which the figures do not tell. An entry
    without an interval is last and leaves the others alone.

    Examples
    --------
    >>> rank_ranges([(1.0, 3.0), (2.0, 4.0), (5.0, 6.0)])
    [(1, 2), (1, 2), (3, 3)]
    >>> rank_ranges([(1.0, 3.0), (5.0, 6.0)], lambda better, worse: better != 0)  # the first is a lower bound
    [(1, 2), (1, 2)]
    """
    known = [j for j, interval in enumerate(intervals) if all(map(math.isfinite, interval))]
    places = []
    for i, (low, high) in enumerate(intervals):
        if i not in known:
            places.append((len(known) + 1, len(intervals)))
            continue
        ahead = sum(intervals[j][1] < low and tells(j, i) for j in known)
        behind = sum(intervals[j][0] > high and tells(i, j) for j in known)
        places.append((ahead + 1, len(known) - behind))
    return places


def range_text(places: tuple[int, int]) -> str:
    """Return "3", or "3-5"."""
    return "-".join(map(str, dict.fromkeys(places)))


def pareto_front(points: list[tuple[float, float]], tells: Tells = _always) -> list[bool]:
    """Say of each point whether no other is as good in both and better in one; lower is better, NaN is never on it.

    A point that does not ``tell`` against another does not push it off.

    Examples
    --------
    >>> pareto_front([(1.0, 4.0), (2.0, 2.0), (3.0, 3.0), (2.0, 2.0)])
    [True, True, False, True]
    """

    def beaten(i: int) -> bool:
        x, y = points[i]
        return any(a <= x and b <= y and (a < x or b < y) and tells(j, i) for j, (a, b) in enumerate(points))

    return [math.isfinite(x) and math.isfinite(y) and not beaten(i) for i, (x, y) in enumerate(points)]


def errs_less(better: Entry, worse: Entry, column: str) -> bool:
    """Return whether a lower figure of the first says that it errs less: not always, if the attacks are not the same.

    PGD-20 gives a lower bound of what AutoAttack would find, and where a stronger attack is known to find much more,
    one that says nothing. A robust error that is lower under AutoAttack is so all the more under one attack for both;
    one that is lower under PGD-20 may not be, and of CRU_s, a difference, neither.
    """
    if column in _WITHOUT_ATTACK:
        return True
    if better.misled or (worse.misled and column == "cru_s"):
        return False
    if better.attack.attack == worse.attack.attack:
        return True
    return better.attack.attack == ATTACKS[0] and column != "cru_s"


def front_line(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that a line along the front goes through, by rising average error.

    Those that a lower bound stands to the lower left of, and has not pushed off the front, are beside the line.
    """
    held = [row for row in rows if row.on_front]
    lowest = pareto_front([row.point for row in held])
    return sorted((row for row, low in zip(held, lowest, strict=True) if low), key=lambda row: row.point)


def _placed(rows: list[Row], sort: str) -> list[Row]:
    def tells(column: str) -> Tells:
        return lambda better, worse: errs_less(rows[better].entry, rows[worse].entry, column)

    ranges = rank_ranges([row.interval(sort) for row in rows], tells(sort))
    front = pareto_front([row.point for row in rows], tells("worst_rob"))
    return [
        replace(row, ranks=r, on_front=f and not row.entry.misled)
        for row, r, f in zip(rows, ranges, front, strict=True)
    ]


def _key(row: Row, sort: str) -> tuple[Any, ...]:
    values = [row.value(sort), row.value("avg_rob")]
    last = row.entry.misled and sort not in _WITHOUT_ATTACK
    return last, *((math.isnan(v), 0.0 if math.isnan(v) else v) for v in values), row.entry.name, row.entry.source


def near(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that a figure shows: without those misled, whose place is known to be another, or far above.

    Far above is three interquartile ranges over the third quartile (Tukey): a model without defence would squeeze all
    others into a corner. None of the front is left out for it, and of fewer than eight rows none.
    """
    rows = [row for row in rows if not row.entry.misled]
    if len(rows) < _ENOUGH:
        return rows
    ends = {}
    for column in ("avg_rob", "worst_rob"):
        first, third = np.percentile([r.value(column) for r in rows], [25, 75])
        ends[column] = third + 3 * (third - first)
    return [r for r in rows if r.on_front or all(r.value(column) <= end for column, end in ends.items())]
