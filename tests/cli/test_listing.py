"""The commands that only tell: help, version, models, datasets, doctor; and how little they import."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairbench.datasets.named import NAMED
from fairbench.models.cards import card_names, load_card

Cli = Callable[..., Any]


NO_TORCH = """
import sys

asked = []


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision"):
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
"""


WITHOUT_TORCH = (
    "leaderboard.check",
    "metrics.summary",
    "outcomes.table",
    "reports.figures",
    "reports.site.pages",
    "reports.tables",
)
"""A few, lest none is walked through."""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_help_lists_the_commands(cli: Cli) -> None:
    ran = cli("--help")
    assert (ran.code, ran.err) == (0, "")
    for command in ("evaluate", "models", "datasets", "doctor"):
        assert re.search(rf"^\s+{command}\s+\w", ran.out, re.MULTILINE), ran.out


def test_no_command_shows_the_help_and_fails(cli: Cli) -> None:
    ran = cli()
    assert (ran.code, ran.out) == (2, "")
    assert "evaluate" in ran.err


def test_evaluates_help_names_its_options(cli: Cli) -> None:
    ran = cli("evaluate", "--help")
    assert ran.code == 0
    options = "model arch dataset data-dir protocol attacks epsilon step steps restarts seed mean std output resize out"
    for option in [*options.split(), "json", "format", "batch-size"]:
        assert f"--{option}" in ran.out


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"fairbench {version('fairbench')}\n", "")


def test_models_lists_the_zoo(cli: Cli) -> None:
    ran = cli("models")
    assert (ran.code, ran.err) == (0, "")
    for name in card_names():
        card = load_card(name)
        (line,) = (line for line in ran.out.splitlines() if line.startswith(name))
        assert card.architecture in line
        assert card.dataset in line


@pytest.mark.parametrize("name", card_names())
def test_models_show_prints_the_card(name: str, cli: Cli) -> None:
    ran = cli("models", "show", name)
    assert (ran.code, ran.err) == (0, "")
    assert yaml.safe_load(ran.out) == load_card(name).model_dump(mode="json", exclude_none=True)


def test_datasets_says_what_is_where(cli: Cli, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRBENCH_DATA", raising=False)
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "svhn.npz").touch()
    ran = cli("datasets", "--data-dir", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert lines.keys() >= NAMED.keys()
    assert str(tmp_path / "svhn" / "svhn.npz") in lines["svhn"]
    assert "not found" in lines["cifar100"]
    assert "shipped" in lines["cifar10"]
    assert "shipped" in lines["fashion_mnist"]
    assert "with scikit-learn" in lines["digits"]
    assert f"looked in: {tmp_path}, {cache / 'data'}" in ran.out


def test_datasets_finds_the_environments_folder(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRBENCH_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar10.npz").touch()
    assert str(tmp_path / "cifar10" / "cifar10.npz") in cli("datasets").out


def test_doctor_says_what_a_bug_report_needs(cli: Cli, cache: Path) -> None:
    ran = cli("doctor")
    assert {line[len("adult_standardized")] for line in ran.out.splitlines()} == {" "}, "a column, however long a name"
    assert (ran.code, ran.err) == (0, "")
    found = {line.split()[0]: line.split(maxsplit=1)[1] for line in ran.out.splitlines()}
    for package in ("fairbench", "torch", "torchvision", "pyautoattack", "robustbench"):
        assert found[package] == version(package)
    assert found["python"] == sys.version.split()[0]
    assert found["threads"].isdigit()
    assert found["bf16"].startswith(("yes", "emulated"))
    assert found["memory"].endswith("GiB")
    assert str(cache.resolve()) in found["cache"]
    assert "writable" in found["cache"]
    assert found.keys() >= NAMED.keys()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["evaluate", "--help"], ["datasets"]])
def test_what_only_tells_does_not_wait_for_torch(arguments: list[str]) -> None:
    ran = python(
        f"import sys; from fairbench.cli import run; code = run({arguments!r})\n"
        "print(code, [m for m in ('torch', 'torchvision', 'robustbench', 'seaborn') if m in sys.modules])"
    )
    assert ran.stdout.splitlines()[-1] == "0 []", ran.stderr


def test_all_that_follows_an_attack_imports_without_torch() -> None:
    """Nor does it import torch where there is one: it does not ask."""
    ran = python(f"""{NO_TORCH}
import importlib, pkgutil
import fairbench.leaderboard, fairbench.metrics, fairbench.outcomes, fairbench.reports

for package in (fairbench.outcomes, fairbench.metrics, fairbench.reports, fairbench.leaderboard):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        print(importlib.import_module(module.name).__name__)
print(asked)
""")
    assert (ran.returncode, ran.stderr) == (0, "")
    *imported, asked = ran.stdout.splitlines()
    assert asked == "[]"
    assert {f"fairbench.{name}" for name in WITHOUT_TORCH} <= {*imported}


def test_a_kept_table_is_summarised_printed_and_drawn_without_torch(tmp_path: Path) -> None:
    ran = python(f"""{NO_TORCH}
import pandas as pd
from fairbench import Outcomes, summarize
from fairbench.reports.figures import class_bars
from fairbench.reports.tables import as_text
from pathlib import Path

folder = Path({str(tmp_path)!r})
table = pd.DataFrame({{"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 1], "pgd20_pred": [1, 0, 1]}})
Outcomes(table, {{"format": 1, "dataset": {{"classes": ["cat", "dog"]}}}}).write(folder)
summary = summarize(Outcomes.read(folder))
class_bars(summary, folder / "classes.png")
print(as_text(summary, "csv"))
""")
    assert ran.returncode == 0, ran.stderr
    assert ",cat,2,0.0000," in ran.stdout
    assert (tmp_path / "classes.png").exists()


def test_a_refusal_by_robustbench_is_one_line_too() -> None:
    """In a process of its own: what its imports warn of must not reach the user."""
    ran = subprocess.run(
        [sys.executable, "-m", "fairbench", "evaluate", "--model", "robustbench:Wong2020Fst"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert "Did you mean 'Wong2020Fast'" in ran.stderr
