"""Tables as text: the one way to call tabulate, and headers of a terminal that do not widen their columns."""

import re
from collections.abc import Sequence
from textwrap import wrap

from fairbench.reports.latex import needs

_LINES = 3
"""A header has no more; beyond that it is the column that widens."""
_PADDING = 2
"""Columns that tabulate adds to a header."""


def tabulated(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    tablefmt: str,
    align: str | Sequence[str] | None = None,
    *,
    closing: int = 0,
) -> str:
    """Return a table of texts in one of tabulate's formats; LaTeX says which package it needs.

    Parameters
    ----------
    rows, headers
        Cells as they are to be read: in Markdown a bar in one is marked as no border.
    align
        "left" or "right", for all or for each column; default: the first left, the others right.
    closing
        How many of the last rows sum up the others: LaTeX has a rule above them.
    """
    from tabulate import tabulate

    if tablefmt == "github":
        rows, headers = [_no_borders(row) for row in rows], _no_borders(headers)
    align = [align] * len(headers) if isinstance(align, str) else align or ("left", *["right"] * (len(headers) - 1))
    table = tabulate(rows, headers, tablefmt=tablefmt, disable_numparse=True, colalign=align if rows else None)
    if tablefmt != "latex_booktabs":
        return str(table)
    lines = [needs(["booktabs"]), *table.splitlines()]
    if 0 < closing < len(rows):
        lines.insert(-2 - closing, r"\midrule")  # before the last rows, \bottomrule and \end
    return "\n".join(lines)


def markdown_table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Return a table in Markdown whose columns are not padded: for pages with long cells, where one would widen all."""
    lines = [f"| {' | '.join(headers)} |", "|" + "---|" * len(headers)]
    lines += [f"| {' | '.join(_no_borders(row))} |" for row in rows]
    return "\n".join(lines)


def _no_borders(cells: Sequence[str]) -> list[str]:
    return [cell.replace("|", r"\|") for cell in cells]


def stacked(header: Sequence[str], rows: Sequence[Sequence[str]], tablefmt: str) -> list[str]:
    """Return the header broken at its spaces so that its cells make the width, in at most three lines.

    Markdown, HTML and LaTeX, which break lines themselves, get it as it is.

    Examples
    --------
    >>> stacked(["model", "worst boundary error"], [["bat", "12.00"]], "simple")
    ['model', 'worst\\nboundary\\nerror']
    >>> stacked(["worst boundary error"], [["12.00"]], "github")
    ['worst boundary error']
    """
    if tablefmt not in ("simple", "plain"):
        return list(header)
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(len(header))]
    return [_broken(text, width) for text, width in zip(header, widths, strict=True)]


def _broken(text: str, width: int) -> str:
    whole = re.sub(r"\[[^]]*\]", lambda found: found[0].replace(" ", "\xa0"), text)  # brackets stay together
    for wide in range(max(width - _PADDING, 1), len(text)):
        lines = wrap(whole, wide, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= _LINES:
            return "\n".join(lines).replace("\xa0", " ")
    return text
