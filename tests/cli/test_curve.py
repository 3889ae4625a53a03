"""``fairbench curve`` from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from fairbench.cli.curve import grid_step
from fairbench.cli.options import epsilons

Cli = Callable[..., Any]


def test_two_models_side_by_side(checkpoint: Path, other_checkpoint: Path, cli: Cli, tmp_path: Path) -> None:
    models = ["--model", checkpoint, "--model", other_checkpoint]
    ran = cli("curve", *models, "--dataset", "digits", "--epsilons", "0:0.2:0.05", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "broken, worst class" in ran.out
    frame = pd.read_csv(tmp_path / "out" / "curves.csv")
    assert set(frame["model"]) == {"one", "two"}
    assert len(frame) == 2 * 5 * 10
    rising = frame.sort_values("epsilon").groupby(["model", "class"])["broken"]
    assert (rising.diff().dropna() >= 0).all()
    overall = pd.read_csv(tmp_path / "out" / "overall.csv").set_index(["model", "epsilon"])
    spread = frame.groupby(["model", "epsilon"])["broken"].agg(lambda rates: rates.max() - rates.min())
    assert overall["cru_s"].to_dict() == pytest.approx(spread.to_dict(), abs=1e-3)
    means = pd.read_csv(tmp_path / "out" / "least_epsilon.csv")
    assert means.groupby("model").size().to_dict() == {"one": 10, "two": 10}
    assert means["mean"].between(0, 0.2).all()
    assert {line.rpartition("/")[2] for line in ran.err.splitlines() if line.startswith("written")} == {
        path.name for path in (tmp_path / "out").iterdir()
    }
    with Image.open(tmp_path / "out" / "curves.png") as picture:
        assert picture.width > picture.height > 500


@pytest.mark.parametrize(
    ("command", "options"),
    [("curve", ["--epsilons", "0:0.1:0.1"]), ("tendency", ["--max-steps", "5"])],
)
def test_two_files_of_one_name_are_not_shown_as_one(
    command: str, options: list[str], checkpoint: Path, cli: Cli, tmp_path: Path
) -> None:
    copied = tmp_path / checkpoint.name
    copied.write_bytes(checkpoint.read_bytes())
    ran = cli(command, "--model", checkpoint, "--model", copied, "--dataset", "digits", *options)
    assert ran.code == 2
    assert f"two models are called {checkpoint.stem}; rename a file" in ran.err


def test_a_curve_starts_at_the_standard_error(checkpoint: Path, cli: Cli, tmp_path: Path) -> None:
    cli("curve", "--model", checkpoint, "--dataset", "digits", "--epsilons", "0,0.1", "--out", tmp_path / "c")
    ran = cli("evaluate", "--model", checkpoint, "--dataset", "digits", "--format", "csv", "--steps", "1")
    rows = [line.split(",") for line in ran.out.splitlines()]
    standard = {row[rows[0].index("class")]: float(row[rows[0].index("std")]) for row in rows[1:]}
    frame = pd.read_csv(tmp_path / "c" / "curves.csv", dtype={"class": str})
    start = frame[frame["epsilon"] == 0].set_index("class")["broken"]
    assert {name: start[name] for name in standard} == pytest.approx(standard, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "radii"),
    [("0:4/255:2/255", (0, 2 / 255, 4 / 255)), ("0,0.1,0.3", (0, 0.1, 0.3)), ("0.1:0.1:0.1", (0.1,))],
)
def test_radii_as_people_type_them(text: str, radii: tuple[float, ...]) -> None:
    assert epsilons(text) == pytest.approx(radii)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("8/255,12/255,18/255", 2 / 255),
        ("0,0.1,0.25", 0.05),
        ("0:20:5", 5),
        ("0,0.031", 0.031),
        ("1/255:8/255:1/255", 1 / 255),
    ],
)
def test_the_search_takes_the_largest_step_that_meets_all_radii(text: str, step: float) -> None:
    assert grid_step(epsilons(text), text) == pytest.approx(step, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty text after --epsilons"),
        ("0.2,0.1", "give rising radii"),
        ("0:0.1", "give FIRST:LAST:STEP"),
        ("0.1:0:0.1", "give FIRST:LAST:STEP"),
        ("0:1:0", "give FIRST:LAST:STEP"),
        ("0:1:1e-9", "more than 1,000 radii"),
        ("0", "give one radius above 0 at least"),
        ("0,0.1,0.10001", "that of these has more than 1,000 steps; give rounder ones"),
        ("0:8:1", "max_epsilon 8: pixels are in [0, 1] here"),
        ("0,x", "--epsilons 'x': give a number"),
        ("0:nan:0.1", "nan is no radius"),
        ("0:inf:0.1", "inf is no radius"),
        ("0,nan", "nan is no radius"),
        ("1e400", "1e400 is no radius"),
        ("-1/255,1/255", "-1/255 is no radius"),
        ("1e-12", "below what the search tells from 0"),
        ("0:1e-320:1e-321", "below what the search tells from 0"),
    ],
)
def test_bad_radii_are_one_clear_line(text: str, message: str, checkpoint: Path, cli: Cli, tmp_path: Path) -> None:
    ran = cli("curve", "--model", checkpoint, "--dataset", "digits", "--epsilons", text, "--out", tmp_path / "out")
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
