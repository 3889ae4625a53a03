"""What the zoo keeps of its trainings is what training does: a recipe's first epoch is trained again."""

import csv

import pytest

from fairbench.files import data_folder
from fairbench.training.recipe import load_recipe, recipe_names
from fairbench.training.train import train

HISTORY = data_folder("model_zoo") / "history"
NAMES = sorted(path.stem for path in HISTORY.glob("*.csv"))


class SecondEpoch(Exception):
    """Raised by a report once the first epoch is done."""


def stop_after_the_first_epoch(row: dict[str, object]) -> None:
    if "progress" in row and row["epoch"] == 1:
        raise SecondEpoch


def read(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_history_is_of_a_recipe_and_has_every_epoch(name: str) -> None:
    assert name in recipe_names()
    assert [int(row["epoch"]) for row in read(HISTORY / f"{name}.csv")] == list(
        range(load_recipe(name).schedule.epochs)
    )


@pytest.mark.slow
def test_the_first_epoch_comes_out_as_the_kept_history_says(data_dir, tmp_path) -> None:
    """Another processor rounds differently, and an epoch lets that grow: equal to a point or two, not to the bit."""
    name = "trades6_lenet5_fashion_mnist"
    with pytest.raises(SecondEpoch):
        train(
            load_recipe(name), tmp_path / "run", data_dir=data_dir("fashion_mnist"), report=stop_after_the_first_epoch
        )
    found, kept = read(tmp_path / "run" / "history.csv")[0], read(HISTORY / f"{name}.csv")[0]
    assert float(found["loss"]) == pytest.approx(float(kept["loss"]), rel=0.03)
    assert float(found["lr"]) == float(kept["lr"])
    for column in ("avg_std", "avg_rob"):  # 3,000 held-out images
        assert float(found[column]) == pytest.approx(float(kept[column]), abs=3)
    assert found["worst_rob_class"] == kept["worst_rob_class"]
