"""Where things lie in the pages' figures, in percent of their width and height; the templates draw them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fairbench.leaderboard.ranking import Board, Row, front_line, near
from fairbench.metrics.curves import Curves
from fairbench.reports.values import epsilon_text


@dataclass(frozen=True)
class Axis:
    """A linear axis from ``low`` to ``high`` and the labels of its ticks."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Return where a value lies, 0 at ``low`` and 100 at ``high``."""
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    @property
    def marks(self) -> list[tuple[float, str]]:
        """Places and labels of the ticks."""
        return [(self.at(value), label) for value, label in self.ticks]


@dataclass(frozen=True)
class Point:
    """An entry in the figure of average against worst-class robust error; ``number`` where it is on the front."""

    row: Row
    x: float
    y: float
    x_reach: tuple[float, float]
    y_reach: tuple[float, float]
    number: int | None


@dataclass(frozen=True)
class Front:
    """The figure of a board: points, the corners of the front's line, and rows far off or misled, not drawn."""

    x: Axis
    y: Axis
    points: tuple[Point, ...]
    line: tuple[tuple[float, float], ...]
    beyond: tuple[Row, ...]

    @property
    def numbered(self) -> list[Point]:
        """The points on the front, from left to right."""
        return sorted((p for p in self.points if p.number is not None), key=lambda p: p.number or 0)


@dataclass(frozen=True)
class Lines:
    """Shares broken over epsilon: points of the average and its interval, of the worst class, and of every class."""

    x: Axis
    y: Axis
    average: str
    band: str
    worst: str
    classes: tuple[str, ...]


def axis(values: Sequence[float], *, least: float = -math.inf, most: float = math.inf) -> Axis:
    """Return an axis that holds the values, with ticks at round numbers, and no longer than ``least`` to ``most``."""
    from matplotlib.ticker import MaxNLocator

    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0
    low, high = max(low - room, least), min(high + room, most)
    ticks = [v for v in MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= v <= high]
    return Axis(low, high, tuple((float(v), f"{v:g}") for v in ticks))


def front(board: Board) -> Front | None:
    """Return the figure of a board's ranked entries; None where there is none to draw."""
    known = [r for r in board.ranked if math.isfinite(r.value("avg_rob")) and math.isfinite(r.value("worst_rob"))]
    rows = near(known)
    if not rows:
        return None
    reach = [[*_ends(r, column), r.value(column)] for column in ("avg_rob", "worst_rob") for r in rows]
    x = axis([v for ends in reach[: len(rows)] for v in ends], least=-1, most=101)
    y = axis([v for ends in reach[len(rows) :] for v in ends], least=-1, most=101)
    on_front = sorted((r for r in rows if r.on_front), key=lambda r: r.point)
    numbers = {id(row): number for number, row in enumerate(on_front, start=1)}
    points = [_point(row, x, y, numbers.get(id(row))) for row in rows]
    corners: list[tuple[float, float]] = []
    for point in (_point(row, x, y, None) for row in front_line(rows)):
        corners += [(point.x, corners[-1][1])] if corners else []
        corners.append((point.x, point.y))
    return Front(x, y, tuple(points), tuple(corners), tuple(row for row in known if row not in rows))


def _ends(row: Row, column: str) -> tuple[float, float]:
    value, (low, high) = row.value(column), row.interval(column)
    return (low if math.isfinite(low) else value), (high if math.isfinite(high) else value)


def _point(row: Row, x: Axis, y: Axis, number: int | None) -> Point:
    (left, right), (low, high) = _ends(row, "avg_rob"), _ends(row, "worst_rob")
    return Point(
        row=row,
        x=x.at(row.value("avg_rob")),
        y=100 - y.at(row.value("worst_rob")),
        x_reach=(x.at(left), x.at(right)),
        y_reach=(100 - y.at(high), 100 - y.at(low)),
        number=number,
    )


def lines(curves: Curves) -> Lines:
    """Return the figure of a model's success rates over epsilon."""
    overall = curves.overall
    radii = overall["epsilon"].tolist()
    ticks = [radii[round(i * (len(radii) - 1) / 4)] for i in range(5)] if len(radii) > 4 else radii
    x = Axis(0.0, max(radii), tuple((v, epsilon_text(v)) for v in dict.fromkeys(ticks)))
    y = Axis(0.0, 100.0, tuple((float(v), str(v)) for v in range(0, 101, 25)))

    def path(values: Sequence[float], at: Sequence[float] = radii) -> str:
        pairs = [(e, v) for e, v in zip(at, values, strict=True) if math.isfinite(v)]
        return " ".join(f"{x.at(e):g},{round(100 - y.at(v), 3):g}" for e, v in pairs)

    band = [*overall["average_low"].tolist(), *reversed(overall["average_high"].tolist())]
    by_class = [group["broken"].tolist() for _, group in curves.classes.groupby("class", sort=False)]
    return Lines(
        x=x,
        y=y,
        average=path(overall["average"].tolist()),
        band=path(band, [*radii, *reversed(radii)]),
        worst=path(overall["worst"].tolist()),
        classes=tuple(path(values) for values in by_class),
    )


_HEAT = {"light": ("#ffffff", "#0b5a8c"), "dark": ("#171b20", "#7cc4f0")}
"""From no example of a class to all of them, in each colour scheme."""
STEPS = 20


def heat(scheme: str) -> list[tuple[str, str]]:
    """Return the colours of :data:`STEPS` + 1 steps, and of the text on each: black or white, whichever is clearer.

    Examples
    --------
    >>> heat("light")[0], len(heat("dark"))
    (('#ffffff', '#000000'), 21)
    """
    ends = [tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in _HEAT[scheme]]
    found = []
    for step in range(STEPS + 1):
        mixed = [round(a + (b - a) * step / STEPS) for a, b in zip(*ends, strict=True)]
        light = _luminance(mixed)
        text = "#000000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#ffffff"
        found.append((f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}", text))
    return found


def _luminance(colour: Sequence[int]) -> float:
    """Return the relative luminance of an sRGB colour (WCAG 2.2)."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
