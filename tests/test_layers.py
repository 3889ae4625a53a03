"""Imports point one way (docs/design.md): data flows from datasets and models to reports, never back."""

import ast
from pathlib import Path

import pytest

import fairbench

ROOT = Path(fairbench.__file__).parent
BASE = {
    "errors",
    "registry",
    "files",
    "plain_yaml",
    "provenance",
    "randomness",
    "memory",
    "download",
    "guessing",
    "own_code",
    "loaded_state",
    "float32",
}
MAY_IMPORT = {
    "datasets": set(),
    "outcomes": set(),
    "metrics": {"outcomes"},
    "leaderboard": {"metrics", "outcomes"},
    "reports": {"metrics", "outcomes", "leaderboard"},
    "models": set(),
    "attacks": {"models"},
    "training": {"datasets", "models", "attacks"},
    "evaluation": {"datasets", "models", "attacks", "outcomes", "metrics"},
}


def imported(path: Path) -> set[str]:
    """Return the rooms of fairbench that a file imports."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "fairbench" else [f"fairbench.{a.name}" for a in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("fairbench.")} - {"__version__"}
    return rooms


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_lies_before_it(room):
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        beyond = imported(path) - MAY_IMPORT[room] - BASE - {room}
        assert not beyond, f"{path.relative_to(ROOT)} imports {beyond}"


@pytest.mark.parametrize("module", sorted(BASE))
def test_the_base_imports_no_room(module):
    assert imported(ROOT / f"{module}.py") <= BASE


def test_every_room_has_its_rule():
    rooms = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert rooms == {*MAY_IMPORT, "cli"}
