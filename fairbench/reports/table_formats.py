"""The one way a table of a paper is written: for a terminal, as Markdown, LaTeX, CSV, a page of HTML, or JSON.

A table of one column has printed and measured values side by side; one of several has them below one another, a line
for the paper where it prints some, one for each reading, one for the difference (measured minus printed).
"""

import csv
import html
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fairbench.reports.latex import latex_table
from fairbench.reports.paper_table import Cell, Column, Line, PaperTable
from fairbench.reports.text_tables import stacked, tabulated
from fairbench.reports.values import measured, number


@dataclass(frozen=True)
class Grid:
    """A table as text: the heading, rows by entry, how many columns from the left and from the right are words."""

    header: list[str]
    entries: list[list[list[str]]]
    left: int
    right: int

    @property
    def align(self) -> list[str]:
        """Return "left" or "right" for each column."""
        words = self.left, self.right
        return ["left"] * words[0] + ["right"] * (len(self.header) - sum(words)) + ["left"] * words[1]


def render(table: PaperTable, lines: Sequence[Line], format: str) -> str:
    """Return the table in a format of :data:`FORMATS`, without a line end."""
    return FORMATS[format](table, lines)


def value_text(cell: Cell, column: Column, line: Line) -> str:
    """Return "12.34 [11.8, 13.0]"; a value that is not known is "n/a"."""
    ends = column.ends if line.decimals is None else line.decimals
    return measured(cell.value, cell.interval, _decimals(column, line), ends)


def grid(table: PaperTable, lines: Sequence[Line]) -> Grid:
    """Lay a table out."""
    if len(table.columns) > 1:
        header = [*table.labels, "", *(column.title for column in table.columns), *table.more]
        return Grid(header, [_stacked(table, line) for line in lines], len(table.labels) + 1, len(table.more))
    differences = ["difference" if len(table.readings) == 1 else f"difference, {r}" for r in table.readings]
    header = [*table.labels, "paper", *table.readings, *differences, *table.more]
    return Grid(header, [[_side_by_side(table, line)] for line in lines], len(table.labels), len(table.more))


def _names(line: Line) -> list[str]:
    return [*line.names[:-1], f"{line.names[-1]} *" if line.footnote else line.names[-1]]


def _stacked(table: PaperTable, line: Line) -> list[list[str]]:
    nothing, blank = [""] * len(table.more), [""] * len(table.labels)
    rows = []
    if line.printed:
        rows.append([*_names(line), "paper", *(_printed(line, column) for column in table.columns), *nothing])
    for reading in table.readings:
        named = blank if rows else _names(line)
        rows.append([*named, reading, *(_measured(line, reading, c) for c in table.columns), *(line.more or nothing)])
        differences = [_difference(line, reading, column) for column in table.columns]
        if any(differences):
            rows.append([*blank, "difference", *differences, *nothing])
    return rows


def _side_by_side(table: PaperTable, line: Line) -> list[str]:
    (column,) = table.columns
    cells = [_measured(line, reading, column) for reading in table.readings]
    differences = [_difference(line, reading, column) for reading in table.readings]
    return [*_names(line), _printed(line, column), *cells, *differences, *(line.more or [""] * len(table.more))]


def _decimals(column: Column, line: Line) -> int:
    return column.decimals if line.decimals is None else line.decimals


def _printed(line: Line, column: Column) -> str:
    value = line.printed.get(column.key)
    return "" if value is None else f"{value:.{_decimals(column, line)}f}"


def _measured(line: Line, reading: str, column: Column) -> str:
    cell = line.cell(reading, column.key)
    return line.remark if cell is None else value_text(cell, column, line)


def _difference(line: Line, reading: str, column: Column) -> str:
    value = line.difference(reading, column.key)
    return "" if value is None else number(value, _decimals(column, line), "+")


def _as_text(table: PaperTable, lines: Sequence[Line]) -> str:
    return _tabulated(table, lines, "simple", str)


def _as_markdown(table: PaperTable, lines: Sequence[Line]) -> str:
    return _tabulated(table, lines, "github", _markdown)


def _markdown(text: str) -> str:
    """Escape what would make emphasis or a list of a footnote's mark."""
    return text.replace("\\", "\\\\").replace("*", r"\*").replace("<", "&lt;")


def _tabulated(table: PaperTable, lines: Sequence[Line], tablefmt: str, escape: Callable[[str], str]) -> str:
    laid = grid(table, lines)
    rows = [[escape(cell) for cell in row] for entry in laid.entries for row in entry]
    header = stacked([escape(cell) for cell in laid.header], rows, tablefmt)
    body = tabulated(rows, header, tablefmt, laid.align)
    return "\n\n".join([escape(table.title_of(lines)), body, *map(escape, table.all_notes(lines))])


def _as_latex(table: PaperTable, lines: Sequence[Line]) -> str:
    """Return a table for each reading where one of all is too wide for a page."""
    return "\n\n".join(_one_as_latex(*part) for part in table.by_reading(lines))


def _one_as_latex(table: PaperTable, lines: Sequence[Line]) -> str:
    laid = grid(table, lines)
    return latex_table(
        laid.header, laid.entries, laid.align, title=table.title_of(lines), key=table.key, notes=table.all_notes(lines)
    )


def _as_csv(table: PaperTable, lines: Sequence[Line]) -> str:
    """Return a line for each row, reading and column: plain numbers, published ones as printed."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    words = ["result", "footnote", "remark", *table.more]
    writer.writerow(
        ["table", *table.labels, "column", "reading", "published", "measured", "low", "high", "difference", *words]
    )
    for line in lines:
        for reading in table.readings:
            for column in table.columns:
                cell, difference = line.cell(reading, column.key), line.difference(reading, column.key)
                numbers = [None] * 3 if cell is None else [cell.value, *cell.interval]
                writer.writerow(
                    [
                        *(table.key, *line.names, column.key, reading, _printed(line, column)),
                        *(_plain(number, _decimals(column, line) + 2) for number in (*numbers, difference)),
                        *(line.results.get(reading, ""), line.footnote, line.remark),
                        *(line.more or [""] * len(table.more)),
                    ]
                )
    return stream.getvalue().rstrip("\n")


def _plain(value: float | None, decimals: int) -> str:
    return "" if value is None or not math.isfinite(value) else number(value, decimals)


_STYLE = """\
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .6rem; }
th, td { padding: .15rem .7rem .15rem 0; text-align: left; font-weight: normal; white-space: nowrap; }
thead th { border-bottom: 1px solid; font-weight: 600; }
tbody + tbody tr:first-child > * { padding-top: .5rem; }
.number { text-align: right; }
p { max-width: 60rem; }"""


def _as_html(table: PaperTable, lines: Sequence[Line]) -> str:
    """Return a page that needs nothing but itself."""
    laid = grid(table, lines)
    title = html.escape(table.title_of(lines))
    head = "".join(_html_cell("th", laid, i, text, ' scope="col"') for i, text in enumerate(laid.header))
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        f'<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>",
        f'<body>\n<div class="table">\n<table>\n<caption>{title}</caption>\n<thead>\n<tr>{head}</tr>\n</thead>',
    ]
    for entry in laid.entries:
        rows = "\n".join(f"<tr>{_html_row(laid, row)}</tr>" for row in entry)
        parts.append(f"<tbody>\n{rows}\n</tbody>")
    notes = [f"<p>{html.escape(note)}</p>" for note in table.all_notes(lines)]
    return "\n".join([*parts, "</table>\n</div>", *notes, "</body>", "</html>"])


def _html_row(laid: Grid, row: Sequence[str]) -> str:
    heads = [i < laid.left and text != "" for i, text in enumerate(row)]
    return "".join(
        _html_cell("th" if head else "td", laid, i, text, ' scope="row"' if head else "")
        for i, (text, head) in enumerate(zip(row, heads, strict=True))
    )


def _html_cell(tag: str, laid: Grid, place: int, text: str, scope: str) -> str:
    number = ' class="number"' if laid.align[place] == "right" else ""
    return f"<{tag}{scope}{number}>{html.escape(text)}</{tag}>"


def _as_json(table: PaperTable, lines: Sequence[Line]) -> str:
    return json.dumps(table.to_dict(lines), indent=2, allow_nan=False)


FORMATS: dict[str, Callable[[PaperTable, Sequence[Line]], str]] = {
    "text": _as_text,
    "markdown": _as_markdown,
    "latex": _as_latex,
    "csv": _as_csv,
    "html": _as_html,
    "json": _as_json,
}
