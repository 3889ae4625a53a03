"""The figure of a board: average against worst-class robust error, with the front that no other entry is ahead of."""

import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from fairbench.leaderboard.entries import Entry
from fairbench.leaderboard.ranking import Board, Row, front_line, near
from fairbench.reports.board_text import MISLED, title
from fairbench.reports.drawing import figure_file

_LINE_HEIGHT = 13
"""Points between the names in a figure."""
_TITLE_WIDTH = 110
"""Characters of a title's line."""
_NARROWEST = 4.0
"""Percentage points that an axis shows at the least."""
_FEW = 8
"""Entries up to which all have their name in it, and not the front alone."""


def draw_front(board: Board, path: Path) -> None:
    """Draw average against worst-class robust error with the Pareto front; hollow points were not run by AutoAttack."""
    with figure_file(path, figsize=(9, 6)) as (figure, ((axes,),)):
        axes.step(*_points(front_line(board.ranked)), where="post", color="#0173b2", linewidth=1.5, zorder=1)
        known = [row for row in board.ranked if all(map(math.isfinite, row.point))]
        drawn = near(known)
        for row in drawn:
            _draw_point(axes, row)
        axes.margins(x=0.06, y=0.1)
        axes.ticklabel_format(useOffset=False)
        for limits, set_limits in ((axes.get_xlim(), axes.set_xlim), (axes.get_ylim(), axes.set_ylim)):
            set_limits(*_widened(*limits))
        low, high = axes.get_xlim()
        axes.set_xlim(low - 0.45 * (high - low), high)  # room for the names
        axes.set_xlabel("average robust error (percent, 95 % intervals; lower is better)")
        axes.set_ylabel("worst-class robust error (percent)")
        marks = ["blue: the front, where no other's values are as good in both; hollow: PGD-20 alone"]
        for why, chosen in (("far above", False), (f"misled ({MISLED})", True)):
            out = ", ".join(_label(row.entry) for row in known if row not in drawn and row.entry.misled == chosen)
            marks += wrap(f"left out, {why}: {out}", _TITLE_WIDTH) if out else []
        axes.set_title("\n".join([title(board), *marks]), loc="left", fontsize=12)
        figure.draw_without_rendering()  # settles where points lie on the page
        _name_points(axes, drawn if len(drawn) <= _FEW else [row for row in drawn if row.on_front])


def _widened(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis of errors, apart by some points where all values are alike, and hardly above 100."""
    middle, half = (low + high) / 2, max((high - low) / 2, _NARROWEST / 2)
    return middle - half, min(middle + half, 100.5)


def _name_points(axes: Any, rows: Sequence[Row]) -> None:
    """Write the names of points left of all their intervals, each below the last, with a line to the point."""
    if not rows:
        return
    across, height = (axes.transData.transform([row.point for row in rows]) * 72 / axes.figure.dpi).T
    ends = [(row.interval("avg_rob")[0], row.point[1]) for row in rows]
    left = min((axes.transData.transform(ends) * 72 / axes.figure.dpi)[:, 0])
    line = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.8, "linestyle": ":"}  # dotted: no interval
    line |= {"shrinkA": 1, "shrinkB": 4, "relpos": (1, 0.5)}
    below = math.inf
    for place in sorted(range(len(rows)), key=lambda i: -height[i]):
        below = min(height[place], below - _LINE_HEIGHT)
        axes.annotate(
            _label(rows[place].entry),
            rows[place].point,
            xytext=(left - across[place] - 12, below - height[place]),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=9,
            arrowprops=line,
        )


def _draw_point(axes: object, row: Row) -> None:
    x, y = row.point
    colour = "#0173b2" if row.on_front else "#777777"
    reach = [
        [[max(v - low, 0)], [max(high - v, 0)]]
        for v, (low, high) in ((x, row.interval("avg_rob")), (y, row.interval("worst_rob")))
    ]
    axes.errorbar(  # type: ignore[attr-defined]
        x,
        y,
        xerr=reach[0],
        yerr=reach[1],
        fmt="o" if row.on_front else "s",
        color=colour,
        markerfacecolor=colour if row.entry.attack.attack == "autoattack" else "white",
        elinewidth=0.8,
        zorder=2,
    )


def _points(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [r.value("avg_rob") for r in rows], [r.value("worst_rob") for r in rows]


def _label(entry: Entry) -> str:
    """Return what a figure calls an entry: its title, or its name where the font lacks a character or lines turn."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    drawn = all(ord(c) in known and unicodedata.bidirectional(c) not in ("R", "AL") for c in entry.title)
    text = entry.title if drawn else entry.name
    return text if len(text) <= 40 else text[:39] + "…"
