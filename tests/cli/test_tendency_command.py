"""``fairbench tendency`` and ``evaluate --attacks least-steps`` from the command line."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from fairbench import Outcomes

Cli = Callable[..., Any]


def test_two_models_side_by_side(checkpoint: Path, other_checkpoint: Path, cli: Cli, tmp_path: Path) -> None:
    models = ["--model", checkpoint, "--model", other_checkpoint]
    ran = cli("tendency", *models, "--dataset", "digits", "--max-steps", "50", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("one on digits: ")
    assert "a quick look" in ran.out.splitlines()[0]
    for text in ("robust accuracy (pgd10)", "withstand 50", "total variation 0.", "one: predicted under pgd10"):
        assert text in ran.out
    written = {line.removeprefix("written: ") for line in ran.err.splitlines() if line.startswith("written: ")}
    assert written == {str(path) for path in (tmp_path / "out").iterdir()}
    classes = pd.read_csv(tmp_path / "out" / "tendency.csv")
    assert classes.groupby("model").size().to_dict() == {"one": 10, "two": 10}
    assert classes.groupby("model")["target"].sum().tolist() == pytest.approx([100, 100])
    confusion = pd.read_csv(tmp_path / "out" / "confusion.csv")
    assert len(confusion) == 200
    right = confusion[confusion["label"] == confusion["predicted"]].set_index(["model", "label"])["share"]
    assert right.tolist() == pytest.approx(classes["rob_acc"].tolist(), abs=1e-3)
    overall = pd.read_csv(tmp_path / "out" / "overall.csv")
    assert set(overall["measure"]) >= {"total_variation", "kl", "steps_and_robustness"}
    with Image.open(tmp_path / "out" / "tendency.png") as picture:
        assert picture.height > 1000


def test_markdown(checkpoint: Path, cli: Cli) -> None:
    ran = cli("tendency", "--model", checkpoint, "--dataset", "digits", "--max-steps", "5", "--markdown")
    assert ran.code == 0
    assert ran.out.count("|--") > 2


def test_absent_classes_are_not_called_robust(checkpoint: Path, uneven: Path, cli: Cli, tmp_path: Path) -> None:
    ran = cli("tendency", "--model", checkpoint, "--dataset", uneven, "--max-steps", "5", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    classes = pd.read_csv(tmp_path / "out" / "tendency.csv").set_index("class")
    assert classes.loc["two":, ["rob_acc", "steps", "steps_broken"]].isna().all().all()
    assert "n/a" in ran.out


def test_evaluate_reports_least_steps(checkpoint: Path, cli: Cli, tmp_path: Path) -> None:
    command = ["evaluate", "--model", checkpoint, "--dataset", "digits", "--attacks", "pgd5,least-steps"]
    ran = cli(*command, "--max-steps", "40", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "modified: attacks pgd5+least-steps, max_steps 40" in ran.out
    assert "those that withstand all 40 count as that" in ran.out
    frame = Outcomes.read(tmp_path / "out").frame
    assert frame["least-steps_broken_at"].isna().equals(frame["least-steps_censored"])
    assert (frame["least-steps_broken_at"][frame["clean_pred"] != frame["label"]] == 0).all()
    found = json.loads(cli(*command, "--max-steps", "40", "--json").out)["attacks"]
    assert found["least-steps"]["least_steps"]["censored"] == int(frame["least-steps_censored"].sum())
    assert "least_steps" not in found["pgd5"]


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_other_forms(form: str, checkpoint: Path, cli: Cli) -> None:
    attacks = "least-steps,least-epsilon"
    command = ["evaluate", "--model", checkpoint, "--dataset", "digits", "--attacks", attacks, "--max-steps", "5"]
    ran = cli(*command, "--resolution", "16/255", "--format", form)
    assert ran.code == 0, ran.err
    assert ("least_steps" if form == "csv" else "mean least steps") in ran.out
    if form == "csv":
        header, *rows = csv.reader(ran.out.splitlines())
        assert {len(row) for row in rows} == {len(header)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-steps", "0"], "max_steps 0: it must be 1 to 10,000"),
        (["--max-steps", "99999"], "max_steps 99999: it must be"),
        (["--epsilon", "8"], "epsilon 8: pixels are in [0, 1] here"),
        (["--epsilon", "x"], "--epsilon 'x': give a number"),
        (["--protocol", "quik"], "Did you mean 'quick'"),
        (["--model", "no_such_model"], "no_such_model"),
    ],
)
def test_bad_input_is_one_clear_line(
    options: list[str], message: str, checkpoint: Path, cli: Cli, tmp_path: Path
) -> None:
    ran = cli("tendency", "--model", checkpoint, "--dataset", "digits", *options, "--out", tmp_path / "out")
    assert ran.code == 2
    said = [line for line in ran.err.splitlines() if not line.startswith("warning: one: ")]
    assert len(said) == 1
    assert message in said[0]


def test_models_of_other_classes_are_not_shown_together(checkpoint: Path, cli: Cli) -> None:
    models = ["--model", checkpoint, "--model", "standard_lenet5_fashion_mnist"]
    ran = cli("tendency", *models, "--dataset", "fashion_mnist", "--max-steps", "1")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
