"""``fairbench luf`` from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

Cli = Callable[..., Any]

SMALL = ["--arch", "mlp", "--epochs", "1", "--batch-size", "200", "--leave-out", "3"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    arrays = {
        f"{kind}_{split}": rng.integers(0, 256, (n, 6, 6), dtype=np.uint8) if kind == "x" else np.arange(n) % 3
        for split, n in (("train", 40), ("test", 12))
        for kind in "xy"
    }
    np.savez(path, **arrays, classes=np.array(["a", "b", "c"]))
    return path


def test_it_says_what_was_run_and_what_came_out(cli: Cli, tmp_path: Path) -> None:
    command = ["luf", "--method", "standard", "--dataset", "digits", *SMALL, "--out", tmp_path / "run"]
    ran = cli(*command)
    assert ran.code == 0, ran.err
    assert "standard, mlp, digits: 1 epoch, 1,437 training examples, 1 + 3 models" in ran.out
    assert "full model: standard error" in ran.out
    for name in ("LUF_mean", "LUF_t", "LUF_l"):
        assert f"\n{name}" in ran.out
    assert "They do not cover other left-out samples" in ran.out
    examples = pd.read_parquet(tmp_path / "run" / "luf.parquet")
    assert list(examples) == ["index", "label", "full_pred", "luf", "flips"]
    assert len(examples) == 360
    document = json.loads((tmp_path / "run" / "luf.json").read_text())
    summary = document["summary"]
    assert summary["luf_mean"] == pytest.approx(examples["luf"].mean())
    assert summary["luf_t"] * 360 == pytest.approx(summary["luf_l"] * 3)
    assert sum(row["flips"] for row in document["manifest"]["left_out"]) == examples["flips"].sum()
    again = cli(*command, "--json")
    assert json.loads(again.out)["summary"] == summary
    assert "(0 to train" in again.err


def test_a_training_that_learned_nothing_says_so(cli: Cli, tmp_path: Path) -> None:
    command = ["luf", "--method", "standard", "--dataset", "digits", *SMALL, "--out", tmp_path / "run"]
    ran = cli(*command, "--lr", "1e-12")
    assert ran.code == 0, ran.err
    assert "is guessing: the training collapsed" in ran.out.splitlines()[-2]
    assert "warning: the standard error on test images, of the full model, is " in ran.out.splitlines()[-2]


def test_two_runs_are_compared_on_the_same_examples(cli: Cli, data: Path, tmp_path: Path) -> None:
    command = ["luf", "--dataset", data, "--arch", "mlp", "--epochs", "1", "--batch-size", "8", "--leave-out"]
    ran = cli(*command, "2", "--method", "standard", "--out", tmp_path / "one")
    assert ran.code == 0, ran.err
    two = [*command, "2", "--method", "pgd_at", "--set", "steps=1", "--out", tmp_path / "two"]
    ran = cli(*two, "--against", tmp_path / "one")
    assert ran.code == 0, ran.err
    _, told, differences = ran.out.partition("minus that of standard, mlp")
    assert told
    assert [line.split()[0] for line in differences.splitlines()[1:4]] == ["LUF_mean", "LUF_t", "LUF_l"]
    document = json.loads(cli(*two, "--against", tmp_path / "one" / "luf.json", "--json").out)
    assert document["minus"]["luf_mean"]["value"] == pytest.approx(
        document["summary"]["luf_mean"] - json.loads((tmp_path / "one" / "luf.json").read_text())["summary"]["luf_mean"]
    )
    three = [*command, "3", "--method", "standard", "--out", tmp_path / "three", "--against", tmp_path / "one"]
    ran = cli(*three)
    assert (ran.code, ran.err) == (2, f"{OTHER}\n"), "before anything is trained"
    assert not (tmp_path / "three").exists()
    ran = cli(*three[:-1], tmp_path)
    assert ran.code == 2
    assert "is no leave-one-out result" in ran.err


@pytest.mark.parametrize(
    "damage",
    [
        {"options": None},
        {"data_sha256": None},
        {"left_out": [1, 2]},
        {"left_out": [{}, {}]},
        {"training_images": "x"},
        {"recipe": {}},
    ],
    ids=str,
)
def test_a_damaged_other_run_is_refused_before_the_training(damage, cli: Cli, data: Path, tmp_path: Path) -> None:
    command = ["luf", "--dataset", data, "--arch", "mlp", "--epochs", "1", "--batch-size", "8", "--leave-out", "2"]
    assert cli(*command, "--method", "standard", "--out", tmp_path / "one").code == 0
    path = tmp_path / "one" / "luf.json"
    document = json.loads(path.read_text())
    document["manifest"] |= damage
    document["manifest"] = {key: value for key, value in document["manifest"].items() if value is not None}
    path.write_text(json.dumps(document))
    ran = cli(*command, "--method", "standard", "--seed", "0", "--out", tmp_path / "two", "--against", tmp_path / "one")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("fairbench: --against: its luf.json is damaged (")
    assert not (tmp_path / "two").exists()


OTHER = "fairbench: --against: that result is of other data, or leaves out other samples; LUF grows with their number."


def test_without_a_folder_the_run_is_kept_in_the_cache(cli: Cli, data: Path, cache: Path) -> None:
    command = ["luf", "--method", "pgd_at", "--dataset", data, "--arch", "mlp", "--epochs", "1", "--batch-size", "8"]
    ran = cli(*command, "--leave-out", "2", "--set", "steps=1", "--set", "epsilon=4/255")
    assert ran.code == 0, ran.err
    assert "pgd_at (epsilon 0.01569, step 0.007843, steps 1), mlp" in ran.out
    (folder,) = (cache / "luf").iterdir()
    assert (folder / "luf.json").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--leave-out", "0"], "--leave-out 0: give 1 to 39"),
        (["--leave-out", "41"], "--leave-out 41: give 1 to 39"),
        (["--leave-out", "two"], "Invalid value for '--leave-out'"),
        (["--arch", "mlpp"], "unknown architecture 'mlpp'. Did you mean 'mlp'?"),
        (["--arch", "resnet18"], "(BatchNorm2d) cannot be computed for many models at once"),
        (["--method", "bat"], "--method bat: leaving one sample out takes standard, pgd_at, static_augmentation"),
        (["--method", "sgd"], "unknown method 'sgd'"),
        (["--method", "static_augmentation"], "name one with --from"),
        (["--dataset", "digit"], "unknown dataset 'digit'"),
        (["--epochs", "0"], "schedule.epochs: Input should be greater than or equal to 1"),
        (["--batch-size", "41"], "batch size 41 is larger than the 40 training images"),
        (["--batch-size", "1"], "batch size 1: without its sample a batch would be empty"),
        (["--lr", "0"], "optimizer.lr: Input should be greater than 0"),
        (["--chunk", "0"], "--chunk 0: give 1 or more"),
        (["--set", "epsilon=0.1"], "no key 'epsilon'"),
        (["--set", "epsilon"], "give KEY=VALUE"),
        (["--device", "abacus"], "--device abacus cannot be used"),
    ],
)
def test_bad_input_is_one_clear_line(options: list[str], message: str, cli: Cli, data: Path, tmp_path: Path) -> None:
    plain = ["--method", "standard", "--arch", "mlp", "--dataset", data, "--batch-size", "8", "--leave-out", "2"]
    ran = cli("luf", *plain, *options, "--out", tmp_path / "run")
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "run").exists()
