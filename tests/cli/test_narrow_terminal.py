"""Tables in a narrow terminal: every number, and every name that one has to type, stays whole."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from fairbench.cli.terminal import wide_enough
from fairbench.datasets.named import NAMED
from fairbench.models.cards import card_names
from fairbench.training.recipe import recipe_names

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the pipe for a terminal then


@pytest.mark.parametrize(
    ("command", "names"), [("models", card_names()), ("recipes", recipe_names()), ("datasets", NAMED)]
)
def test_lists_have_whole_names(command: str, names: Any, cli: Cli) -> None:
    out = cli(command).out
    assert "…" not in out
    assert [name for name in names if name not in out] == []


def test_a_report_has_all_its_digits(checkpoint: Path, cli: Cli) -> None:
    out = cli("evaluate", "--model", checkpoint, "--dataset", "digits", "--steps", "1").out
    assert "…" not in out
    assert "largest gap" in out or "average" in out


def test_a_console_is_as_wide_as_the_widest_table() -> None:
    table = Table("x" * 300)
    table.add_row("y" * 310)
    console = wide_enough(Table("short"), table)
    assert console.width >= 310
    assert wide_enough(Table("short")).width == Console().width
    stream = io.StringIO()
    Console(file=stream, width=console.width).print(table)
    assert "y" * 310 in stream.getvalue()
