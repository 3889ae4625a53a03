"""``evaluate --attacks least-epsilon`` from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairbench import Outcomes

Cli = Callable[..., Any]


@pytest.mark.parametrize("attack", ["least-epsilon", "least-epsilon-scan"])
def test_the_report_has_class_means_and_cru(attack: str, checkpoint: Path, cli: Cli, tmp_path: Path) -> None:
    command = ["evaluate", "--model", checkpoint, "--dataset", "digits", "--attacks", attack, "--max-epsilon", "0.2"]
    ran = cli(*command, "--resolution", "0.02", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert f"modified: attacks {attack}, max_epsilon 0.2, resolution 0.02" in ran.out
    assert "least epsilon, mean of each class [95 % interval]" in ran.out
    assert "CRU_eps 0." in ran.out
    frame = Outcomes.read(tmp_path / "out").frame
    radius, censored = frame[f"{attack}_epsilon"], frame[f"{attack}_censored"]
    assert radius.isna().equals(censored)
    assert ((radius.dropna() / 0.02).round() * 0.02 - radius.dropna()).abs().max() < 1e-6
    assert (radius[frame["clean_pred"] != frame["label"]] == 0).all()
    found = json.loads(cli(*command, "--resolution", "0.02", "--json").out)["attacks"][attack]["least_epsilon"]
    assert found["censored"] == int(censored.sum())
    assert len(found["classes"]) == 10


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_other_forms(form: str, checkpoint: Path, cli: Cli) -> None:
    command = ["evaluate", "--model", checkpoint, "--dataset", "digits", "--attacks", "least-epsilon"]
    ran = cli(*command, "--resolution", "4/255", "--format", form)
    assert ran.code == 0
    assert ("least_epsilon" if form == "csv" else "mean least epsilon") in ran.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-epsilon", "32"], "max_epsilon 32: pixels are in [0, 1] here"),
        (["--resolution", "0"], "resolution 0: it must be greater than 0"),
        (["--resolution", "0.5"], "resolution 0.5: with max_epsilon 0.12549 it must be"),
        (["--resolution", "1e-9"], "resolution 1e-09: with max_epsilon"),
        (["--max-epsilon", "1e-9"], "max_epsilon 1e-09: float32 pixels round by as much; give 1e-06 or more"),
        (["--max-epsilon", "x"], "--max-epsilon 'x': give a number"),
        (["--attacks", "least-epsilons"], "Did you mean 'least-epsilon'"),
    ],
)
def test_bad_radii_are_one_clear_line(options: list[str], message: str, checkpoint: Path, cli: Cli) -> None:
    ran = cli("evaluate", "--model", checkpoint, "--dataset", "digits", "--attacks", "least-epsilon", *options)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
