"""Tables and figures of a summary: every format, an absent class, ties, and the folder they are kept in."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console

from fairbench import Outcomes, summarize
from fairbench.errors import OutcomesError
from fairbench.reports import folder, tables
from fairbench.reports.figures import class_bars


def outcomes(run="r1", classes=("cat", "dog", "fox"), attacks=("pgd20", "autoattack")):
    """90 cats, 60 dogs, no fox; half the cats and a third of the dogs are broken."""
    label = np.repeat([0, 1], [90, 60])
    frame = pd.DataFrame({"index": range(150), "label": label, "clean_pred": label})
    for attack in attacks:
        frame[f"{attack}_pred"] = np.where(np.arange(150) % (2 + label) == 0, 1 - label, label)
    manifest = {
        "format": 1,
        "run": run,
        "model": {"name": "m"},
        "dataset": {"name": "d", "classes": list(classes)},
        "protocol": {"name": "quick", "seed": 0, "modified": {"epsilon": 0.5, "attacks": ["pgd20", "autoattack"]}},
        "attacks": {attack: {"epsilon": 4 / 255} for attack in attacks},
    }
    return Outcomes(frame, manifest)


def test_the_headline_says_that_a_sample_is_a_sample_and_what_was_modified():
    line = tables.headline(summarize(outcomes()))
    assert "a quick look" in line
    assert "modified: epsilon 0.5, attacks pgd20+autoattack" in line


@pytest.mark.parametrize(("format", "mark"), [("markdown", "\n|---"), ("latex", "\\toprule")])
def test_text_tables_have_every_class_the_average_and_the_worst(format, mark):
    text = tables.as_text(summarize(outcomes()), format)
    assert text.count(mark) == 2
    for word in ("cat", "dog", "fox", "average", "worst class", "n/a", "50.00 [39.9, 60.1]", "4/255"):
        assert word in text


def test_csv_is_one_line_a_class_and_attack_with_missing_numbers_empty():
    rows = list(csv.DictReader(io.StringIO(tables.as_text(summarize(outcomes()), "csv"))))
    assert [(row["attack"], row["class"]) for row in rows] == [
        (attack, name) for attack in ("pgd20", "autoattack") for name in ("cat", "dog", "fox")
    ]
    assert (rows[0]["rob"], rows[2]["rob"], rows[2]["n"]) == ("50.0000", "", "0")


def test_the_terminal_table_names_the_worst_class_and_counts_ties():
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(tables.as_rich(summarize(outcomes()).attacks["pgd20"]))
    text = console.export_text()
    assert "cat (and 1 more)" in text, "both classes have a standard error of 0"
    assert "n/a" in text


@pytest.mark.parametrize("classes", [("cat", "dog"), ("cat", "dog", "fox"), tuple(f"class {i}" for i in range(100))])
def test_the_figure_is_drawn_also_with_absent_classes_and_grows_with_their_number(tmp_path, classes):
    class_bars(summarize(outcomes(classes=classes)), tmp_path / "classes.png")
    with Image.open(tmp_path / "classes.png") as image:
        width, height = image.size
    assert width == 1200
    assert height > 40 * len(classes)


def test_the_figure_is_the_same_bytes_for_the_same_summary(tmp_path):
    for name in ("a.png", "b.png"):
        class_bars(summarize(outcomes()), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_report_is_four_files_and_can_be_written_again(tmp_path):
    for _ in range(2):
        folder.keep(outcomes(), summarize(outcomes()), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(folder.FILES)
    assert json.loads((tmp_path / "summary.json").read_text())["n"] == 150


def test_a_folder_of_another_run_is_left_alone(tmp_path):
    folder.keep(outcomes(), summarize(outcomes()), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(OutcomesError, match="another run"):
        folder.keep(outcomes("r2"), summarize(outcomes("r2")), tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_files_that_no_run_wrote_are_left_alone(tmp_path):
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(OutcomesError, match=r"summary\.json; nothing was overwritten"):
        folder.keep(outcomes(), summarize(outcomes()), tmp_path)
    assert (tmp_path / "summary.json").read_text() == "mine"


def fails_inside(target):
    with folder.claimed(target):
        assert target.is_dir()
        raise KeyError


def test_a_folder_made_for_a_run_that_failed_goes_again_and_one_that_was_there_stays(tmp_path):
    (tmp_path / "old").mkdir()
    for target in (tmp_path / "new" / "inner", tmp_path / "old"):
        with pytest.raises(KeyError):
            fails_inside(target)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
