"""Tables for a terminal: a header takes several lines rather than widening its column."""

import re
from collections.abc import Sequence
from textwrap import wrap

_LINES = 3
"""A header has no more; beyond that it is the column that widens."""
_PADDING = 2
"""Columns that tabulate adds to a header."""


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
