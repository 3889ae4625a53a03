"""A model is trained again by its card, and compared with its recorded history."""

import csv
from dataclasses import replace

import pytest

from fairbench.errors import RecipeError
from fairbench.models.cards import read_card
from fairbench.plain_yaml import dump_yaml, parse_yaml
from fairbench.training import load_recipe, train
from fairbench.training.hardware import Hardware
from fairbench.training.recipe import Recipe
from fairbench.training.reproduce import Reproduction, reproduce

RECIPE = Recipe(
    name="small",
    method="pgd_at",
    architecture="small_cnn",
    dataset="digits",
    optimizer={"name": "adam", "lr": 0.001},
    schedule={"epochs": 2},
    validation_per_class=20,
    options={"steps": 1},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    train(RECIPE, folder)
    return folder


@pytest.fixture
def copy(run, tmp_path):
    """Return a finished run's folder that a test may change, and a function that changes the training facts."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("card.yaml", "history.csv"):
        (folder / name).write_bytes((run / name).read_bytes())

    def change(**facts):
        plain = parse_yaml((folder / "card.yaml").read_text())
        plain["training"] |= facts
        (folder / "card.yaml").write_text(dump_yaml(plain))
        return str(folder)

    return change


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_same_machine_gives_the_recorded_epochs_to_the_bit(run, tmp_path, epochs: int) -> None:
    found = reproduce(str(run), tmp_path / "again", epochs=epochs)
    rows = found.differences()
    assert len(rows) == 4 * epochs
    assert all(row["difference"] == 0 and row["recorded"] == row["again"] for row in rows)
    assert found.agrees(0, 0)
    assert not found.notes
    assert (tmp_path / "again" / "card.yaml").exists() == (epochs == 2)  # the last epoch makes it a model


def test_an_epoch_trained_again_goes_on_to_the_same_model(run, tmp_path) -> None:
    reproduce(str(run), tmp_path / "again")
    train(RECIPE, tmp_path / "again")
    assert read_card(tmp_path / "again" / "card.yaml").weights == read_card(run / "card.yaml").weights


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"data_sha256": "0" * 64}, "had other training data"),
        ({"start_sha256": "0" * 64}, "had other start"),
        ({"time_budget": 60.0}, "followed the clock"),
        ({"recipe": None}, "records no training by a recipe"),
        ({"recipe": {"method": "os:system", "architecture": "small_cnn", "dataset": "digits"}}, "runs no code"),
        ({"recipe": {"method": "pgd_at", "architecture": "os:system", "dataset": "digits"}}, "runs no code"),
        ({"recipe": {"method": "pgd_at", "architecture": "small_cnn"}}, "dataset"),
        ({"processes": "x"}, "training.processes is a number"),
        ({"compiled": "false"}, "training.compiled true or false"),
    ],
)
def test_what_cannot_be_the_same_training_is_refused_before_it(copy, tmp_path, facts, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        reproduce(copy(**facts), tmp_path / "again")
    assert not (tmp_path / "again" / "history.csv").exists()


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ("epoch,lr,loss,avg_std,avg_rob\n0,0.1,,,\n", "could not convert"),
        ("epoch,lr,loss,avg_std,avg_rob\n0,,0.5,,\n", "could not convert"),
        ("epoch,lr\n0,0.1\n", "it has no column 'loss'"),
        ("epoch,lr,loss,avg_std,avg_rob\n0,0.1,nan,1,2\n", "not finite"),
        ("epoch,lr,loss,avg_std,avg_rob\n0,0.1,0.5,inf,2\n", "not finite"),
        ("epoch,lr,loss,avg_std,avg_rob\n", "--epochs 1: .* has 0 recorded epochs"),
        ("", "--epochs 1: .* has 0 recorded epochs"),
    ],
)
def test_a_damaged_history_is_refused_before_the_training(copy, tmp_path, history: str, message: str) -> None:
    folder = copy()
    (tmp_path / "copy" / "history.csv").write_text(history)
    with pytest.raises(RecipeError, match=message):
        reproduce(folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_was_trained_before_is_no_reproduction(run, copy, tmp_path) -> None:
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.iterdir() if p.is_file()}
    (tmp_path / "link").symlink_to(run)
    for out in (run, run / "inside", tmp_path / "link", tmp_path / "link" / "inside"):
        with pytest.raises(RecipeError, match="lies in the run that is trained again"):
            reproduce(str(run), out)
    copy()
    with pytest.raises(RecipeError, match="holds a finished run"):
        reproduce(str(run), tmp_path / "copy")
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in run.iterdir() if p.is_file()} == before


def test_what_the_card_does_not_say_is_said_to_be_not_compared(copy, tmp_path) -> None:
    found = reproduce(copy(data_sha256=None, hardware="a text"), tmp_path / "again")
    assert found.notes == ("the card does not say on what data it was trained; not compared",)
    assert found.agrees(0, 0)


@pytest.mark.parametrize(("option", "value"), [("--tolerance", "nan"), ("--points", "-1"), ("--tolerance", "inf")])
def test_the_command_takes_tolerances_from_0(cli, run, tmp_path, option: str, value: str) -> None:
    ran = cli("reproduce", run, "--out", tmp_path / "again", option, value)
    assert (ran.code, ran.out) == (2, "")
    assert f"{option} {value}: give a number from 0" in ran.err


def test_the_command_says_how_it_came_out(cli, run, copy, tmp_path) -> None:
    same = cli("reproduce", run, "--out", tmp_path / "again")
    assert same.code == 0, same.err
    assert same.out.endswith("came out as recorded, to the last bit of each number.\n")
    folder = copy()
    path = tmp_path / "copy" / "history.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    rows[0]["loss"] = str(1.1 * float(rows[0]["loss"]))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    other = cli("reproduce", folder, "--out", tmp_path / "other")
    assert other.code == 1
    assert "did not come out as recorded" in other.out


def test_data_of_ones_own_have_no_command(tmp_path) -> None:
    from fairbench.datasets import load_dataset

    model = train(RECIPE.changed({"schedule.epochs": 1}), tmp_path / "run", dataset=load_dataset("digits", "test"))
    assert model.card.training["command"] is None


@pytest.mark.parametrize("epochs", [0, 3])
def test_only_recorded_epochs_can_be_trained_again(run, tmp_path, epochs: int) -> None:
    with pytest.raises(RecipeError, match=f"--epochs {epochs}: .* 2 recorded epochs"):
        reproduce(str(run), tmp_path / "again", epochs=epochs)


def test_a_model_without_a_history_says_so(tmp_path) -> None:
    with pytest.raises(RecipeError, match="no recorded history"):
        reproduce("standard_lenet5_fashion_mnist", tmp_path / "again")


@pytest.mark.parametrize(
    ("again", "agrees"),
    [
        ({}, True),
        ({"loss": 2.0001}, True),
        ({"loss": 2.01}, False),
        ({"lr": 0.11}, False),
        ({"avg_rob": 40.4}, True),
        ({"avg_rob": 41.0}, False),
        ({"avg_std": None}, True),  # no images held out
    ],
)
def test_agreement_is_of_loss_and_average_errors(again, agrees: bool) -> None:
    recorded = {"epoch": 0, "lr": 0.1, "loss": 2.0, "avg_std": 20.0, "avg_rob": 40.0}
    assert Reproduction([recorded], [recorded | again], ()).agrees(1e-4, 0.5) == agrees


def test_the_card_says_how_it_was_trained(run) -> None:
    facts = read_card(run / "card.yaml").training
    assert facts["command"] == "fairbench reproduce RUN --epochs 2 --out DIR"
    assert (facts["processes"], facts["compiled"]) == (1, False)


@pytest.mark.parametrize(
    ("hardware", "time_budget", "expected"),
    [
        (Hardware(), None, ""),
        (Hardware(compile=True), 90.0, " --compile --time-budget 90s"),
        (Hardware(devices=2, nodes=2), None, " --devices 2 --nodes 2"),
        (Hardware("cuda"), 12345678.5, " --device cuda --time-budget 12345678.5s"),
    ],
)
def test_a_shipped_recipe_is_trained_again_by_its_name(hardware, time_budget, expected: str) -> None:
    from fairbench.training.train import _command, _typed, build_method

    recipe = load_recipe("trades6_resnet18")
    typed = _typed(recipe, build_method(recipe))
    command = "fairbench train --recipe trades6_resnet18 --out DIR"
    assert _command(typed, hardware, time_budget, 4) == command + expected
    changed = _command(typed.model_copy(update={"seed": 1}), hardware, None, 4)
    assert changed is None if hardware.nodes > 1 else changed.startswith("fairbench reproduce RUN --epochs 4 --out DIR")
    assert _command(typed.model_copy(update={"name": "mine", "method": "a:B"}), replace(hardware), None, 4) is None


def test_stopping_early_leaves_a_run_and_no_model(tmp_path) -> None:
    from fairbench.datasets import load_dataset
    from fairbench.training.train import train_epochs

    fitted, _ = train_epochs(RECIPE, tmp_path / "run", load_dataset("digits", "train"), stop_after=1)
    assert not fitted.is_whole
    assert not (tmp_path / "run" / "card.yaml").exists()
    with (tmp_path / "run" / "history.csv").open() as stream:
        assert [row["epoch"] for row in csv.DictReader(stream)] == ["0"]


def test_a_folder_without_a_finished_run_says_so(tmp_path) -> None:
    with pytest.raises(RecipeError, match=r"holds no finished run: it has no card\.yaml"):
        reproduce(str(tmp_path), tmp_path / "again")
