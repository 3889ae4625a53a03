"""The progress bar of long work."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairbench.evaluation.execution import Progress

_SAY_EVERY = 60.0
"""Seconds between lines of progress where there is no terminal to draw a bar on."""


@contextmanager
def progress_bar(title: str, worked: list[float]) -> "Iterator[Progress]":
    """Show work done and time left on stderr; ``worked`` stays empty where nothing had to be done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_interactive  # elsewhere nothing could be drawn, yet a line would be left
    with Progress(*columns, console=console, transient=True, disable=quiet, speed_estimate_period=300) as bar:
        task = bar.add_task(title, total=None)
        said = [time.monotonic()]

        def report(done: float, total: float) -> None:
            worked[:] = [done]
            bar.update(task, completed=done, total=total)
            if quiet and time.monotonic() - said[0] > _SAY_EVERY:
                said[0] = time.monotonic()
                print(f"{title}: {done / total:.0%} done", file=sys.stderr, flush=True)

        yield report
