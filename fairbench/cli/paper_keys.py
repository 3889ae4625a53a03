"""Keys of papers, their tables and their figures look alike: who asks one command for another's is told which."""

from typing import Any

from fairbench.errors import FairbenchError
from fairbench.registry import Registry


def entry(registry: Registry, key: str) -> Any:
    """Return what has a key among the papers, tables or figures.

    Raises
    ------
    FairbenchError
        There is no such key; the command that knows it is named, or the nearest.
    """
    from fairbench.cli.figure import FIGURES
    from fairbench.cli.paper import PAPERS
    from fairbench.cli.table import TABLES

    begun = any(known.startswith(key) for known in registry)
    for other in (TABLES, FIGURES, PAPERS):
        if key in other and not begun:
            raise FairbenchError(f"{key} is a {other.kind}, not a {registry.kind}: fairbench {other.kind} {key}.")
    return registry[key]
