"""A submission without fault, and the rules it is held to."""

from collections.abc import Callable
from pathlib import Path

import pytest
from made_submissions import locked, submit, truth

from fairbench.leaderboard.checked import Rules


@pytest.fixture
def rules() -> Rules:
    return Rules(locked, truth, {})


@pytest.fixture
def whole(tmp_path: Path) -> Callable[..., Path]:
    """``whole()`` is the folder of a submission without fault."""
    return lambda name="mine", **changes: submit(tmp_path / f"{name}_submission", name, **changes)
