"""``fairbench evaluate --models``: one queue; a model that fails costs nobody else's result."""

import csv
import io
import json
from pathlib import Path

import pytest
import torch

from fairbench.errors import ModelError
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.patterns import matching
from fairbench.reports.folder import claimed

OPTIONS = ["--dataset", "digits", "--steps", 2, "--device", "cpu"]
FILES = {"outcomes.parquet", "manifest.json", "summary.json", "classes.png"}


def both(checkpoint, other_checkpoint):
    return ["evaluate", "--models", checkpoint, "--models", other_checkpoint, *OPTIONS]


def test_a_search_has_its_column(cli, checkpoint, other_checkpoint):
    asked = (*both(checkpoint, other_checkpoint), "--attacks", "least-epsilon", "--max-epsilon", "2/255")
    asked = [text for text in asked if text not in ("--steps", 2)]
    ran = cli(*asked, "--format", "csv")
    assert ran.code == 0, ran.err
    for row in csv.DictReader(io.StringIO(ran.out)):
        assert float(row["cru_eps_low"]) <= float(row["cru_eps"]) <= float(row["cru_eps_high"]) <= 2 / 255
        assert int(row["censored"]) > 0
    table = cli(*asked).out
    assert "CRU_eps" in table
    assert "up to 2/255" in table


def test_a_row_and_a_folder_a_model_and_the_same_bytes_as_alone(cli, checkpoint, other_checkpoint, tmp_path):
    ran = cli(*both(checkpoint, other_checkpoint), "--out", tmp_path / "all", "--format", "csv")
    assert ran.code == 0, ran.err
    said = [line for line in ran.err.splitlines() if not line.startswith("warning: ")]
    assert said[-2:] == ["one: done", "two: done"]
    assert "warning: two: fewer than 50 examples in 0" in ran.err
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert sorted(row["model"] for row in rows) == ["one", "two"]
    assert [float(row["worst_rob"]) for row in rows] == sorted(float(row["worst_rob"]) for row in rows)
    assert (tmp_path / "all" / "models.csv").read_text() == ran.out
    document = json.loads((tmp_path / "all" / "models.json").read_text())
    assert document["failed"] == {}
    for row in rows:
        summary = document["models"][row["model"]]["attacks"]["pgd2"]
        assert float(row["avg_rob"]) == pytest.approx(summary["avg_rob"], abs=1e-4)
        for gap in ("cau", "cru_s"):
            assert float(row[gap]) == pytest.approx(summary[gap], abs=1e-4)
            assert float(row[f"{gap}_low"]) == pytest.approx(summary["intervals"][gap][0], abs=1e-4)
        assert row["cru_eps"] == ""
        assert float(row["worst_bndy_high"]) == pytest.approx(summary["intervals"]["worst_bndy"][1], abs=1e-4)
    assert "| one" in (tmp_path / "all" / "models.md").read_text()
    assert {path.name for path in (tmp_path / "all" / "one").iterdir()} == FILES
    alone = cli("evaluate", "--model", checkpoint, *OPTIONS, "--fresh", "--out", tmp_path / "alone")
    assert alone.code == 0, alone.err
    one, two = (tmp_path / name / "outcomes.parquet" for name in ("all/one", "alone"))
    assert one.read_bytes() == two.read_bytes()


def test_asking_again_computes_nothing(cli, checkpoint, other_checkpoint):
    assert cli(*both(checkpoint, other_checkpoint)).code == 0
    again = cli(*both(checkpoint, other_checkpoint), "--json")
    assert again.code == 0
    assert again.err.count("computed before") == 2
    assert list(json.loads(again.out)["models"]) == ["one", "two"]


def test_a_model_that_fails_is_named_with_its_reason_and_the_others_are_there(cli, checkpoint, nets, tmp_path):
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"no weights")
    ran = cli("evaluate", "--models", broken, "--models", checkpoint, *OPTIONS, "--json", "--out", tmp_path / "out")
    assert ran.code == 1
    document = json.loads(ran.out)
    assert list(document["models"]) == ["one"]
    assert list(document["failed"]) == ["broken"]
    assert "broken: failed: " in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "out" / "broken").exists()
    assert (tmp_path / "out" / "one" / "manifest.json").is_file()


def test_a_folder_of_another_run_is_refused_for_that_model_alone(cli, checkpoint, other_checkpoint, tmp_path):
    assert cli("evaluate", "--model", checkpoint, *OPTIONS, "--seed", 7, "--out", tmp_path / "all" / "one").code == 0
    ran = cli(*both(checkpoint, other_checkpoint), "--out", tmp_path / "all")
    assert ran.code == 1
    assert "one: failed: " in ran.err
    assert "holds another run" in ran.err
    assert (tmp_path / "all" / "two" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --model, or --models for many"),
        (["--model", "a", "--models", "b"], "give not both --model and --models"),
        (["--models", "zoo:*/pgd*", "--mean", "0.5", "--std", "0.5"], "brings its own normalisation"),
        (["--models", "zoo:*/pgd*", "--epsilon", "eight"], "give a number such as 8/255"),
        (["--models", "zoo:*/pgd*", "--attacks", "pgd0"], "PGD takes 1 to 10,000 steps"),
        (["--models", "zoo:cifra10/*"], "Did you mean 'cifar10'"),
        (["--models", "zoo:adult/nothing*"], "no model of that name. Known: pgd_at_mlp_adult, standard_mlp_adult, "),
        (["--models", "zoo:*/nothing*"], "no model of that name. `fairbench models` lists them."),
        (["--models", "zoo:*/bat_lenet5"], "no model of that name. Did you mean 'bat_lenet5_fashion_mnist'?"),
        (["--models", "nowhere/*.pt"], "nothing there has such a name"),
        (["--models", "zoo:*", "--group", "sex"], "--group is for one --model"),
        (["--model", "natural_resnet18", "--precision", "fp16"], "'fp16' is not one of"),
    ],
)
def test_what_makes_no_sense_is_one_clear_line(cli, options, message):
    ran = cli("evaluate", *options)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_patterns_stand_for_models_each_once_and_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "last.pt").touch()
    found = matching(["zoo:adult/*at*", "b/last.pt", "*/last.pt", "./b/last.pt", "zoo:pgd_at_mlp*"])
    assert found == {
        "pgd_at_mlp_adult": "pgd_at_mlp_adult",
        "static_augmentation_mlp_adult": "static_augmentation_mlp_adult",
        "last": "b/last.pt",
        "last-2": str(Path("a") / "last.pt"),
    }
    with pytest.raises(ModelError, match="adult, cifar10, fashion_mnist"):
        matching(["zoo:svhn/*"])


def test_the_table_of_other_models_is_not_overwritten(cli, checkpoint, other_checkpoint, tmp_path):
    assert cli("evaluate", "--models", checkpoint, *OPTIONS, "--out", tmp_path / "out").code == 0
    before = (tmp_path / "out" / "models.csv").read_bytes()
    ran = cli("evaluate", "--models", other_checkpoint, *OPTIONS, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "holds the table of one too; nothing was overwritten" in ran.err
    assert (tmp_path / "out" / "models.csv").read_bytes() == before
    assert cli(*both(checkpoint, other_checkpoint), "--out", tmp_path / "out").code == 0
    assert len((tmp_path / "out" / "models.csv").read_text().splitlines()) == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "models.csv").write_text("mine")
    ran = cli("evaluate", "--models", checkpoint, *OPTIONS, "--out", tmp_path / "mine")
    assert (ran.code, (tmp_path / "mine" / "models.csv").read_text()) == (2, "mine")
    assert "already has models.csv" in ran.err


def test_what_is_not_the_protocols_own_is_said_with_the_table_and_in_the_files(
    cli, checkpoint, other_checkpoint, tmp_path
):
    asked = ["evaluate", "--models", checkpoint, *OPTIONS, "--step", "1/255", "--transfer-from", other_checkpoint]
    ran = cli(*asked, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    said = "one: protocol quick, modified: attacks pgd2, step 1/255; transfer: attacks made for two"
    assert said in ran.out
    assert said in (tmp_path / "out" / "models.md").read_text()
    alone = ["--model", *asked[2:]]
    for document in ((tmp_path / "out" / "models.csv").read_text(), cli("evaluate", *alone, "--format", "csv").out):
        row = next(csv.DictReader(io.StringIO(document)))
        expected = {"seed": "0", "modified": "attacks pgd2, step 1/255", "transfer_from": "two", "precision": "float32"}
        assert {key: row[key] for key in expected} == expected


def test_a_mistyped_model_does_not_lock_the_folder(cli, checkpoint, tmp_path):
    out = ("--out", tmp_path / "out")
    assert cli("evaluate", "--models", checkpoint, "--models", "nope.pt", *OPTIONS, *out).code == 1
    assert cli("evaluate", "--models", checkpoint, *OPTIONS, *out).code == 0


def test_a_network_of_narrow_layers_is_said_to_be_attacked_in_float32(cli, narrow_checkpoint):
    asked = ["evaluate", "--models", narrow_checkpoint, *OPTIONS, "--precision", "bf16"]
    assert "note: narrow: a network of such narrow layers is slower in bf16: gradients are float32" in cli(*asked).err


@pytest.fixture
def narrow_checkpoint(tmp_path):
    torch.manual_seed(0)
    state = ARCHITECTURES["lenet5"].build(num_classes=10, in_channels=1).state_dict()
    torch.save(state, tmp_path / "narrow.pt")
    return tmp_path / "narrow.pt"


def test_a_folder_that_another_process_writes_is_refused(cli, checkpoint, tmp_path):
    """A thread of this one stands for it: the lock is the same."""
    with claimed(tmp_path / "out"):
        for asked in (["--models", checkpoint], ["--model", checkpoint]):
            ran = cli("evaluate", *asked, *OPTIONS, "--out", tmp_path / "out")
            assert ran.code == 2
            assert f"{tmp_path / 'out'} is being written by another process (lock " in ran.err
    assert list((tmp_path / "out").iterdir()) == []
    assert cli("evaluate", "--model", checkpoint, *OPTIONS, "--out", tmp_path / "out").code == 0


def test_where_no_lock_can_be_had_a_report_is_written_all_the_same(cli, checkpoint, tmp_path, monkeypatch):
    def refuse(*_arguments, **_named):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("filelock.BaseFileLock.acquire", refuse)
    assert cli("evaluate", "--model", checkpoint, *OPTIONS, "--out", tmp_path / "out").code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
