"""What the zoo keeps of its trainings is what training does: a model's first epoch is trained again."""

import csv

import pytest

from fairbench.files import data_folder
from fairbench.models.cards import load_card
from fairbench.training.recipe import load_recipe, recipe_names
from fairbench.training.reproduce import reproduce

HISTORY = data_folder("model_zoo") / "history"
NAMES = sorted(path.stem for path in HISTORY.glob("*.csv"))


def read(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_history_is_of_a_recipe_and_has_every_epoch(name: str) -> None:
    assert name in recipe_names()
    assert [int(row["epoch"]) for row in read(HISTORY / f"{name}.csv")] == list(
        range(load_recipe(name).schedule.epochs)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_card_has_the_command_that_made_it(name: str) -> None:
    assert load_card(name).training["command"] == f"fairbench train --recipe {name} --out DIR"


@pytest.mark.slow
def test_the_first_epoch_comes_out_as_the_kept_history_says(data_dir, tmp_path) -> None:
    """To the bit where it was recorded; another processor rounds differently, and an epoch lets that grow."""
    name = "trades6_lenet5_fashion_mnist"
    found = reproduce(name, tmp_path / "run", data_dir=data_dir("fashion_mnist"))
    print(found.notes, found.differences())
    assert found.agrees(tolerance=0.03, points=3)
