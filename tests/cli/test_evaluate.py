"""``fairbench evaluate``: what it prints and what it keeps."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fairbench.models.architectures.small_cnn import SmallCNN

Cli = Callable[..., Any]
ZOO = "bat_lenet5_fashion_mnist"
FILES = {"outcomes.parquet", "manifest.json", "summary.json", "classes.png"}
ATTACK_KEYS = set(
    "epsilon avg_std worst_std worst_std_class avg_bndy worst_bndy worst_bndy_class avg_rob worst_rob worst_rob_class "
    "strict_bndy_avg cau cru_s cru_s_correct intervals classes".split()
)
DOCUMENT_KEYS = {"model", "dataset", "protocol", "n", "seed", "attacks", "warnings"}


def evaluate(model: Path, dataset: object, *more: object) -> list[object]:
    return ["evaluate", "--model", model, "--dataset", dataset, "--steps", 2, *more]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_json_is_one_document_on_stdout_with_the_promised_keys(cli: Cli, checkpoint: Path) -> None:
    ran = cli(*evaluate(checkpoint, "digits", "--json", "--seed", 3, "--epsilon", "4/255"))
    assert ran.code == 0
    document = json.loads(ran.out)
    assert document.keys() >= DOCUMENT_KEYS
    assert (document["model"], document["dataset"]) == ("one", "digits")
    assert (document["protocol"], document["n"], document["seed"]) == ("quick", 360, 3)
    assert list(document["attacks"]) == ["pgd2"]
    attack = document["attacks"]["pgd2"]
    assert attack.keys() >= ATTACK_KEYS
    assert attack["epsilon"] == pytest.approx(4 / 255)
    assert len(attack["classes"]) == 10
    assert all(row.keys() == {"class", "n", "std", "bndy", "rob", "strict_bndy"} for row in attack["classes"])
    assert sum(row["n"] for row in attack["classes"]) == 360
    figures = [name for name in attack["intervals"] if name != "classes"]
    assert {"avg_std", "avg_bndy", "avg_rob", "worst_std", "worst_bndy", "worst_rob", "cau", "cru_s"} <= set(figures)
    for name in figures:
        low, high = attack["intervals"][name]
        assert low <= attack[name] <= high


def test_errors_are_percent_and_cau_a_fraction(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    """Each figure recomputed from the table by a mask."""
    ran = cli(*evaluate(checkpoint, "digits", "--json", "--epsilon", "16/255", "--out", tmp_path / "out"))
    attack = json.loads(ran.out)["attacks"]["pgd2"]
    table = pd.read_parquet(tmp_path / "out" / "outcomes.parquet")
    clean = table["clean_pred"].to_numpy() != table["label"].to_numpy()
    robust = table["pgd2_pred"].to_numpy() != table["label"].to_numpy()
    assert attack["avg_std"] == pytest.approx(100 * clean.mean())
    assert attack["avg_rob"] == pytest.approx(100 * robust.mean())
    assert attack["avg_bndy"] == pytest.approx(attack["avg_rob"] - attack["avg_std"])
    assert attack["strict_bndy_avg"] == pytest.approx(100 * (robust & ~clean).mean())
    classes = [table["label"].to_numpy() == c for c in range(10)]
    standard = np.array([100 * clean[rows].mean() for rows in classes])
    broken = np.array([100 * robust[rows].mean() for rows in classes])
    assert [row["std"] for row in attack["classes"]] == pytest.approx(standard.tolist())
    assert [row["rob"] for row in attack["classes"]] == pytest.approx(broken.tolist())
    assert attack["worst_std"] == pytest.approx(standard.max())
    assert attack["worst_std_class"] == str(standard.argmax())
    assert attack["cau"] == pytest.approx((standard.max() - standard.min()) / 100)
    assert attack["cru_s"] == pytest.approx(broken.max() - broken.min())


def test_what_was_not_measured_is_null_and_said(cli: Cli, checkpoint: Path, uneven: Path) -> None:
    ran = cli(*evaluate(checkpoint, uneven, "--json"))
    assert ran.code == 0
    document = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    rows = {row["class"]: row for row in document["attacks"]["pgd2"]["classes"]}
    assert (rows["zero"]["n"], rows["one"]["n"], rows["two"]["n"]) == (3, 20, 0)
    assert all(rows["two"][error] is None for error in ("std", "bndy", "rob", "strict_bndy"))
    assert rows["one"]["std"] is not None
    assert document["attacks"]["pgd2"]["worst_rob_class"] in ("zero", "one")
    assert any("no example of the class(es) two, three" in warning for warning in document["warnings"])
    assert any("fewer than 50 examples in zero (3), one (20)" in warning for warning in document["warnings"])
    assert "warning: no example of the class(es)" in ran.err


def test_the_table_has_a_line_per_class_and_says_what_was_measured(cli: Cli, checkpoint: Path) -> None:
    ran = cli(*evaluate(checkpoint, "digits"))
    assert ran.code == 0
    first, *lines = ran.out.splitlines()
    assert first.startswith("one on digits: 360 test examples")
    assert "protocol quick" in first
    labels = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert labels == [*"0123456789", "average", "worst class", ""]
    for text in ("standard error", "boundary error", "robust error", "average", "worst class", "CAU", "CRU_s"):
        assert text in ran.out


def test_csv_is_a_line_per_class(cli: Cli, checkpoint: Path, uneven: Path) -> None:
    ran = cli(*evaluate(checkpoint, uneven, "--format", "csv"))
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [row["class"] for row in rows] == "zero one two three four five six seven eight nine".split()
    assert [row["n"] for row in rows[:3]] == ["3", "20", "0"]
    assert 0 <= float(rows[0]["std_low"]) <= float(rows[0]["std"]) <= float(rows[0]["std_high"]) <= 100
    assert rows[2]["std"] == rows[2]["rob"] == ""


@pytest.mark.parametrize(
    ("format", "marks"),
    [
        ("markdown", ["| class ", "|-----", "| average "]),
        ("latex", [r"% needs \usepackage{booktabs}", r"\begin{tabular}", r"\toprule", "\\midrule\n average "]),
    ],
)
def test_other_formats_print_that_table(format: str, marks: list[str], cli: Cli, checkpoint: Path) -> None:
    ran = cli(*evaluate(checkpoint, "digits", "--format", format))
    assert ran.code == 0
    assert all(mark in ran.out for mark in marks), ran.out


def test_out_keeps_four_files(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    ran = cli(*evaluate(checkpoint, "digits", "--json", "--out", out))
    assert {path.name for path in out.iterdir()} == FILES
    assert json.loads((out / "summary.json").read_text()) == json.loads(ran.out)
    assert json.loads((out / "manifest.json").read_text())["dataset"]["n"] == 360
    assert len(pd.read_parquet(out / "outcomes.parquet")) == 360
    assert (out / "classes.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_same_run_again_is_a_cache_hit_and_changes_no_file(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    command = evaluate(checkpoint, "digits", "--json", "--out", tmp_path / "out")
    first = cli(*command)
    before = contents(tmp_path / "out")
    second = cli(*command)
    assert second.code == 0
    assert second.out == first.out
    assert contents(tmp_path / "out") == before


def test_computing_afresh_gives_the_same_table(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        cli(*evaluate(checkpoint, "digits", "--fresh", "--out", tmp_path / folder))
    assert contents(tmp_path / "first")["outcomes.parquet"] == contents(tmp_path / "second")["outcomes.parquet"]


@pytest.mark.parametrize("change", ["model", "epsilon", "dataset"])
def test_another_run_into_the_same_folder_is_refused_and_leaves_the_old_files(
    change: str, cli: Cli, checkpoint: Path, other_checkpoint: Path, uneven: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert cli(*evaluate(checkpoint, "digits", "--out", out)).code == 0
    before = contents(out)
    model = other_checkpoint if change == "model" else checkpoint
    dataset = uneven if change == "dataset" else "digits"
    more = ["--epsilon", "4/255"] if change == "epsilon" else []
    ran = cli(*evaluate(model, dataset, "--out", out, *more))
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert "holds another run" in ran.err
    assert "Choose another --out" in ran.err
    assert contents(out) == before


def test_a_failed_run_leaves_the_old_files(cli: Cli, checkpoint: Path, nets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cli(*evaluate(checkpoint, "digits", "--out", out))
    before = contents(out)
    assert cli(*evaluate(nets, "digits", "--arch", "cli_nets:NaN", "--out", out)).code == 2
    assert contents(out) == before


def test_an_output_is_picked(cli: Cli, nets: Path) -> None:
    plain = cli(*evaluate(nets, "digits", "--arch", "cli_nets:Net", "--json"))
    first = cli(*evaluate(nets, "digits", "--arch", "cli_nets:Pair", "--output", "0", "--json"))
    named = cli(*evaluate(nets, "digits", "--arch", "cli_nets:Named", "--output", "logits", "--json"))
    attacks = [json.loads(ran.out)["attacks"] for ran in (plain, first, named)]
    assert attacks[0] == attacks[1] == attacks[2]


def test_normalisation_and_resize_are_taken_and_a_resize_is_said(cli: Cli, uneven: Path, tmp_path: Path) -> None:
    torch.save(SmallCNN(num_classes=10, in_channels=1).state_dict(), tmp_path / "net.pt")
    ran = cli(*evaluate(tmp_path / "net.pt", uneven, "--mean", "0.5", "--std", "0.25", "--resize", "10x12", "--json"))
    assert ran.code == 0, ran.err
    assert "note: images resized from 8x8 to 10x12 (bilinear)" in ran.err


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_work_under_autoattack_and_the_report_says_what_it_was(
    classes: int, cli: Cli, nets: Path, tmp_path: Path
) -> None:
    """A radius that leaves nothing standing, so that it is quick."""
    torch.manual_seed(0)
    torch.save({"fc.weight": torch.randn(classes, 64), "fc.bias": torch.zeros(classes)}, tmp_path / "net.pt")
    images = np.random.default_rng(0).integers(64, 192, (4 * classes, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", x=images, y=np.arange(4 * classes) % classes)
    ran = cli(
        "evaluate", "--model", tmp_path / "net.pt", "--arch", "cli_nets:Net", "--dataset", tmp_path / "own.npz",
        "--attacks", "pgd20,autoattack", "--epsilon", "0.9", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    attacks = json.loads(ran.out)["attacks"]
    assert attacks["autoattack"].keys() == attacks["pgd20"].keys()
    assert attacks["autoattack"]["avg_rob"] == 100
    assert f"AutoAttack for {classes} classes is APGD-CE, FAB and Square" in ran.err


def test_attacks_together_are_a_table_more_and_no_column(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    asked = ["evaluate", "--model", checkpoint, "--dataset", "digits", "--attacks", "pgd1,pgd3", "--epsilon", "0.1"]
    ran = cli(*asked, "--union", "--json", "--out", tmp_path / "out")
    attacks = json.loads(ran.out)["attacks"]
    assert list(attacks) == ["pgd1", "pgd3", "any"]
    frame = pd.read_parquet(tmp_path / "out" / "outcomes.parquet")
    assert "any_pred" not in frame
    assert list(json.loads((tmp_path / "out" / "summary.json").read_text())["attacks"]) == ["pgd1", "pgd3"]
    broken = (frame["pgd1_pred"] != frame["label"]) | (frame["pgd3_pred"] != frame["label"])
    assert attacks["any"]["avg_rob"] == pytest.approx(100 * broken.mean())
    assert "any attack, epsilon 0.1:" in cli(*asked, "--union").out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model", ZOO], "--union is for two attacks or more, such as --attacks pgd20,autoattack"),
        (["--model", ZOO, "--attacks", "pgd20,least-epsilon"], "--union is for two attacks or more"),
        (["--models", "zoo:*", "--attacks", "pgd20,pgd10"], "--union is for one --model"),
    ],
)
def test_a_union_of_one_is_refused(more: list[str], message: str, cli: Cli) -> None:
    ran = cli("evaluate", "--union", *more)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_a_seed_is_said_once(cli: Cli, checkpoint: Path) -> None:
    first = cli(*evaluate(checkpoint, "digits", "--seed", 3)).out.splitlines()[0]
    assert first.count("seed 3") == 1


@pytest.mark.parametrize(
    ("model", "message"),
    [("minee.pt", "checkpoint minee.pt does not exist"), ("result", "is the result of an evaluation, not a model")],
)
def test_what_is_no_model_is_said_before_its_data_are_asked_for(
    model: str, message: str, cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli(*evaluate(checkpoint, "digits", "--out", "result"))
    ran = cli("evaluate", "--model", model)
    assert ran.code == 2
    assert message in ran.err
