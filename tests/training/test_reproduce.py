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
    assert not found.differs_in
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
    ],
)
def test_what_cannot_be_the_same_training_is_refused_before_it(copy, tmp_path, facts, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        reproduce(copy(**facts), tmp_path / "again")
    assert not (tmp_path / "again" / "history.csv").exists()


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
    ],
)
def test_a_shipped_recipe_is_trained_again_by_its_name(hardware, time_budget, expected: str) -> None:
    from fairbench.training.train import _command, _typed, build_method

    recipe = load_recipe("trades6_resnet18")
    typed = _typed(recipe, build_method(recipe))
    command = "fairbench train --recipe trades6_resnet18 --out DIR"
    assert _command(typed, hardware, time_budget, 4) == command + expected
    changed = typed.model_copy(update={"seed": 1})
    assert _command(changed, hardware, None, 4).startswith("fairbench reproduce RUN")
    assert _command(typed.model_copy(update={"name": "mine", "method": "a:B"}), replace(hardware), None, 4) is None


def test_stopping_early_leaves_a_run_and_no_model(tmp_path) -> None:
    from fairbench.datasets import load_dataset
    from fairbench.training.train import train_epochs

    fitted, _ = train_epochs(RECIPE, tmp_path / "run", load_dataset("digits", "train"), stop_after=1)
    assert not fitted.is_whole
    assert not (tmp_path / "run" / "card.yaml").exists()
    with (tmp_path / "run" / "history.csv").open() as stream:
        assert [row["epoch"] for row in csv.DictReader(stream)] == ["0"]
