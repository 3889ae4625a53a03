"""The progress bars of long work: an evaluation's, and a training's."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from fairbench.evaluation.execution import Progress
    from fairbench.training.fit import Report

_SAY_EVERY = 60.0
"""Seconds between lines of progress where there is no terminal to draw a bar on."""


@contextmanager
def progress_bar(title: str, worked: list[float]) -> "Iterator[Progress]":
    """Show work done and time left on stderr; ``worked`` stays empty where nothing had to be done."""
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(console, speed_estimate_period=300) as bar:
        task = bar.add_task(title, total=None)
        said = [time.monotonic()]

        def report(done: float, total: float) -> None:
            worked[:] = [done]
            bar.update(task, completed=done, total=total)
            if not console.is_interactive and time.monotonic() - said[0] > _SAY_EVERY:
                said[0] = time.monotonic()
                print(f"{title}: {done / total:.0%} done", file=sys.stderr, flush=True)

        yield report


@contextmanager
def training_bar(title: str) -> "Iterator[Report]":
    """Show a training on stderr: how far, the loss, and after each epoch the errors on held-out images."""
    from rich.console import Console

    with _bar(Console(stderr=True, highlight=False, soft_wrap=True)) as bar:
        task = bar.add_task(title, total=1.0)

        def report(row: dict[str, Any]) -> None:
            if "warning" in row:
                bar.console.print(f"warning: {row['warning']}", style="yellow", markup=False)
            elif "note" in row:
                bar.console.print(row["note"], markup=False)
            elif "progress" in row:
                bar.update(task, completed=row["progress"], description=f"{title} loss {row['loss']:.3f}")
            else:
                bar.console.print(_epoch_line(row), markup=False)

        yield report


def _bar(console: "Console", **options: Any) -> "Bar":
    """Return a bar with the share done, time gone and time left; a console that is no terminal shows none."""
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
    quiet = not console.is_interactive  # nothing could be drawn there, yet a line would be left
    return Progress(*columns, console=console, transient=True, disable=quiet, **options)


def _epoch_line(row: dict[str, Any]) -> str:
    """Return an epoch in a line."""
    text = f"epoch {row['epoch']:3d}  {row['seconds']:7.0f} s  lr {row['lr']:.5f}  loss {row['loss']:.4f}"
    if row["avg_rob"] is None:
        return text
    return (
        f"{text}  held-out std {row['avg_std']:.1f}, worst {row['worst_std']:.1f} ({row['worst_std_class']}); "
        f"rob {row['avg_rob']:.1f}, worst {row['worst_rob']:.1f} ({row['worst_rob_class']})"
    )
