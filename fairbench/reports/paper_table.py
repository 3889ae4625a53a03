"""A table of a paper, defined once: its rows and columns, what is printed in them, what was measured, the difference.

:mod:`fairbench.reports.table_formats` writes it; printed cells are kept as printed, whatever was measured.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import Interval

HERE = "here"
"""The one reading of tables that are read in one way."""


class Cell(NamedTuple):
    """A measured value and its 95 % interval; NaN ends where there is none."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Column:
    """A column: its name in files, its heading, and the decimals of its values and of their intervals' ends."""

    key: str
    title: str
    decimals: int
    ends: int


@dataclass(frozen=True)
class Line:
    """A row of a table.

    Parameters
    ----------
    names
        What it is of, one for each of the table's labels.
    printed
        By column's key what the paper prints; without those that it does not print.
    measured
        By reading and column's key.
    results
        By reading, the kept result that it is, or would be, made from; one text if of several.
    missing
        Results that it needs and that are not kept.
    footnote
        What is odd about the printed cells, or the measured ones.
    remark
        Stands where a value could not be measured from results that are kept.
    more
        The table's further columns: text.
    decimals
        Of this row, where they are not the column's.
    unlike
        Keys of columns whose measured value is on another scale than the printed one: no difference is given.
    misled
        Whether PGD-20 is known to be misled on the model that was measured.
    """

    names: tuple[str, ...]
    printed: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    footnote: str = ""
    remark: str = ""
    more: tuple[str, ...] = ()
    decimals: int | None = None
    unlike: tuple[str, ...] = ()
    misled: bool = False

    @property
    def title(self) -> str:
        """Return its names in one."""
        return ", ".join(name for name in self.names if name)

    def cell(self, reading: str, column: str) -> Cell | None:
        """Return what was measured, or None."""
        return self.measured.get(reading, {}).get(column)

    def difference(self, reading: str, column: str) -> float | None:
        """Return measured minus printed, or None where one of them is not there, or they are unlike."""
        cell, printed = self.cell(reading, column), self.printed.get(column)
        if column in self.unlike or cell is None or printed is None or not math.isfinite(cell.value):
            return None
        return cell.value - printed


def _no_notes(_: Sequence[Line]) -> list[str]:
    return []


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Parameters
    ----------
    key
        What users type, "sun2023-1".
    source, caption
        Where it is printed, and what it shows.
    labels
        Headings of a row's names.
    columns
        Of its values.
    readings
        The ways in which it was measured, :data:`HERE` if one.
    build
        From the folder of kept results (None: the package's) and a dataset (None: all) to the rows.
    more
        Headings of further columns, of text.
    more_by_reading
        Whether those are one for each reading.
    notes
        From the rows to what stands below them, beside footnotes and what is not measured.
    datasets
        Whose rows can be asked for; none where a table is of one dataset.
    beyond
        The title of rows of which the paper prints none; default: the table's.
    """

    key: str
    source: str
    caption: str
    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    readings: tuple[str, ...]
    build: Callable[[Path | None, str | None], list[Line]]
    more: tuple[str, ...] = ()
    more_by_reading: bool = False
    notes: Callable[[Sequence[Line]], list[str]] = _no_notes
    datasets: tuple[str, ...] = ()
    beyond: str = ""

    @property
    def title(self) -> str:
        """Return source and caption."""
        return f"{self.source}: {self.caption}"

    def title_of(self, lines: Sequence[Line]) -> str:
        """Return the title of some rows: it is not the paper's table if nothing in them is printed there."""
        return self.title if any(line.printed for line in lines) else self.beyond or self.title

    def by_reading(self, lines: Sequence[Line]) -> "list[tuple[PaperTable, list[Line]]]":
        """Return a table for each reading, or this one alone if its further columns are not one for each."""
        if not self.more_by_reading:
            return [(self, list(lines))]
        return [
            (
                replace(
                    self, key=f"{self.key}-{i + 1}", caption=f"{self.caption} {reading}", readings=(reading,), more=more
                ),
                [replace(line, more=line.more[i : i + 1]) for line in lines],
            )
            for i, (reading, more) in enumerate(zip(self.readings, zip(self.more, strict=True), strict=True))
        ]

    def lines(self, folder: Path | None = None, dataset: str | None = None) -> list[Line]:
        """Return the rows, measured where results are kept.

        Raises
        ------
        OutcomesError
            The table has no rows of that dataset, or a result is damaged.
        """
        if dataset is not None and not self.datasets:
            raise OutcomesError(f"table {self.key} is of one dataset: leave --dataset out.")
        return self.build(folder, dataset)

    def all_notes(self, lines: Sequence[Line]) -> list[str]:
        """Return all that stands below the rows: footnotes, notes, and which results are not there yet."""
        missing = list(dict.fromkeys(name for line in lines for name in line.missing))
        return [
            *(f"* {footnote}" for footnote in dict.fromkeys(line.footnote for line in lines) if footnote),
            *self.notes(lines),
            *([f"Not measured yet as this table needs it: {', '.join(missing)}."] if missing else []),
        ]

    def to_dict(self, lines: Sequence[Line]) -> dict[str, Any]:
        """Return plain data; what is not printed or not measured is None."""
        return {
            "table": self.key,
            "title": self.title_of(lines),
            "source": self.source,
            "rows": [self._plain(line) for line in lines],
            "notes": self.all_notes(lines),
        }

    def _plain(self, line: Line) -> dict[str, Any]:
        keys = [column.key for column in self.columns]
        cells = {reading: {key: line.cell(reading, key) for key in keys} for reading in self.readings}
        return {
            "row": line.title,
            **dict(zip(self.labels, line.names, strict=True)),
            "published": {key: line.printed.get(key) for key in keys},
            "measured": {
                r: {k: None if c is None else _finite(c.value) for k, c in of.items()} for r, of in cells.items()
            },
            "intervals": {
                r: {k: None if c is None else [_finite(end) for end in c.interval] for k, c in of.items()}
                for r, of in cells.items()
            },
            "difference": {r: {key: line.difference(r, key) for key in keys} for r in self.readings},
            "results": dict(line.results),
            "missing": list(line.missing),
            "footnote": line.footnote,
            "remark": line.remark,
            **dict(zip(self.more, line.more, strict=False)),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
