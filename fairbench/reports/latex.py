"""A table as LaTeX that fits a page of a conference's two-column style.

Headings break into lines no wider than their column. What is still too wide gets columns of words that wrap
(``tabularx``), and lies on its side (``rotating``) where numbers alone fill most of the width.
"""

import textwrap
from collections.abc import Sequence

PAGE_WIDTH = 500
"""Points of ``\\textwidth`` the tables are made for; styles with two columns have 500 to 510."""
_CHARACTER = 4.15
"""Points of a character of ``\\footnotesize``, on average."""
_GAP = 6
"""Points between columns."""
_WRAPS = 14
"""Columns of words that are wider than so many characters may wrap."""
_NARROW = 75
"""Points below which wrapped columns are not readable."""

_ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "[": "{[}",  # after a line's end it would be the space to leave
        "λ": r"$\lambda$",
        "ε": r"$\varepsilon$",
    }
)


def latex_table(
    header: Sequence[str],
    entries: Sequence[Sequence[Sequence[str]]],
    align: Sequence[str],
    *,
    title: str,
    key: str,
    notes: Sequence[str],
) -> str:
    """Return a table of text as LaTeX (booktabs).

    Parameters
    ----------
    header
        A heading for each column.
    entries
        Groups of rows; a little space separates groups of more than one.
    align
        "left" or "right", for each column.
    title, key, notes
        The caption, its label without ``tab:``, and what stands below.
    """
    widths = [max((len(row[i]) for rows in entries for row in rows), default=0) for i in range(len(header))]
    headings = [_lines(name, width) for name, width in zip(header, widths, strict=True)]
    columns = [max(width, *map(len, lines)) for width, lines in zip(widths, headings, strict=True)]
    flexible = [how == "left" and width > _WRAPS for how, width in zip(align, columns, strict=True)]
    wraps = _points(columns) > PAGE_WIDTH
    fixed = [width for width, flexes in zip(columns, flexible, strict=True) if not flexes]
    left = PAGE_WIDTH - _points(fixed) - _GAP * sum(flexible)
    sideways = wraps and left < _NARROW * sum(flexible)
    letters = [
        r">{\raggedright\arraybackslash}X" if wraps and flexes else how[0]
        for how, flexes in zip(align, flexible, strict=True)
    ]
    packages = ["booktabs", *(["tabularx"] if wraps else []), *(["rotating"] if sideways else [])]
    environment, floating = "tabularx" if wraps else "tabular", "sidewaystable*" if sideways else "table*"
    between = "\n\\addlinespace\n" if any(len(rows) > 1 for rows in entries) else "\n"
    return "\n".join(
        [
            rf"{needs(packages)}; for a \textwidth of {PAGE_WIDTH} pt, of two columns",
            rf"\begin{{{floating}}}",
            r"\centering",
            rf"\caption{{{latex(title)}}}",
            rf"\label{{tab:{key}}}",
            r"\scriptsize" if sideways else r"\footnotesize",
            r"\setlength{\tabcolsep}{3pt}",
            rf"\begin{{{environment}}}" + (r"{\linewidth}" if wraps else "") + f"{{{''.join(letters)}}}",
            r"\toprule",
            " & ".join(_heading(lines, how) for lines, how in zip(headings, align, strict=True)) + r" \\",
            r"\midrule",
            between.join("\n".join(" & ".join(map(latex, row)) + r" \\" for row in rows) for rows in entries),
            r"\bottomrule",
            rf"\end{{{environment}}}",
            *(rf"\par\smallskip\raggedright {latex(note)}" for note in notes),
            rf"\end{{{floating}}}",
        ]
    )


def needs(packages: Sequence[str]) -> str:
    """Return the comment that says which packages a table needs."""
    return rf"% needs \usepackage{{{','.join(packages)}}}"


def latex(text: str) -> str:
    """Return text with the characters that mean something to LaTeX escaped."""
    return text.translate(_ESCAPES)


def _points(widths: Sequence[int]) -> float:
    return sum(widths) * _CHARACTER + _GAP * len(widths)


def _lines(heading: str, width: int) -> list[str]:
    """Break a heading at spaces, to its column's width where its words allow it."""
    longest = max(map(len, heading.split()), default=0)
    return textwrap.wrap(heading, max(width, longest), break_on_hyphens=False) or [""]


def _heading(lines: Sequence[str], how: str) -> str:
    escaped = list(map(latex, lines))
    if len(lines) == 1:
        return escaped[0]
    return rf"\shortstack[{how[0]}]{{" + r"\\".join(escaped) + "}"
