"""Where tables go, a terminal or a pipe: either has all of a table, and rows too long are for the terminal to wrap."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPED = 120
"""Columns where nothing says how many there are."""
_ANY = 10_000


def wide_enough(*tables: "RenderableType") -> "Console":
    """Return the console of stdout, as wide as it is, or as the widest of these: a number cut in two is another."""
    from rich.console import Console
    from rich.measure import Measurement

    shown = Console(highlight=False)
    plain = Console(width=_ANY)
    widest = [Measurement.get(plain, plain.options, table).maximum for table in tables]
    return Console(highlight=False, width=max(shown.width if shown.is_terminal else _PIPED, *widest))
