"""Training on feature vectors: normalisation inside the model, balanced classes, radii on the raw scale."""

import numpy as np
import pytest
import torch

from fairbench.datasets import load_dataset
from fairbench.errors import FairbenchError, RecipeError
from fairbench.models import load_model
from fairbench.training import train
from fairbench.training.recipe import Recipe, load_recipe, parse_recipe

PLAIN = {
    "name": "small",
    "architecture": "mlp",
    "dataset": "adult",
    "optimizer": {"name": "adam", "lr": 0.01, "weight_decay": 0},
    "schedule": {"name": "constant", "epochs": 2},
    "batch_size": 50,
    "validation_per_class": 20,
    "validation_epsilon": 5.0,
    "normalize": True,
    "balance": True,
}


def recipe(method: str = "standard", **changes) -> Recipe:
    return parse_recipe(PLAIN | {"method": method} | changes, "test")


def test_the_folder_is_a_model_with_its_normalisation_inside(small_adult, tmp_path):
    notes = []
    model = train(recipe(), tmp_path / "run", data_dir=small_adult, report=lambda row: notes.append(row.get("note")))
    data = load_dataset("adult", "train", data_dir=small_adult)
    assert "rows, 40 more held out" in notes[0]
    assert (model.card.in_features, model.card.in_channels) == (len(data.features.names), None)
    assert model.card.normalization.mean == pytest.approx(data.inputs.mean(axis=0, dtype=np.float64).tolist(), rel=1e-5)
    x, y, _ = data.batch(slice(None))
    with torch.no_grad():
        errors = (load_model(tmp_path / "run").module(x).argmax(1) != y).float().mean()
    assert errors < 0.25


@pytest.mark.parametrize("method", ["pgd_at", "static_augmentation"])
def test_methods_take_radii_on_the_raw_scale(small_adult, tmp_path, method):
    start = {}
    if method == "static_augmentation":
        train(recipe(), tmp_path / "start", data_dir=small_adult)
        start = {"start": str(tmp_path / "start")}
    options = {"epsilon": 5.0, "step": 1.25, "steps": 4}
    model = train(recipe(method, options=options, **start), tmp_path / "run", data_dir=small_adult)
    assert (model.card.threat_model.norm, model.card.threat_model.epsilon) == ("Linf", 5.0)
    assert model.card.training["recipe"]["balance"] is True


def test_balanced_classes_are_equally_many(small_adult, tmp_path):
    data = load_dataset("adult", "train", data_dir=small_adult)
    counts = np.bincount(data.labels)
    model = train(recipe(validation_per_class=0), tmp_path / "run", data_dir=small_adult)
    assert model.card.training["training_images"] == 2 * counts.max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augmentation": {"flip": True}}, "features, which are not cropped or flipped"),
        ({"dataset": "cifar10"}, "less than or equal to 1"),
        ({"validation_epsilon": -1}, "greater than 0"),
    ],
)
def test_a_recipe_that_does_not_fit_its_inputs_is_refused(changes, message):
    with pytest.raises(RecipeError, match=message):
        recipe(**changes)


@pytest.mark.parametrize(
    ("architecture", "message"), [("lenet5", "cannot be resized"), ("small_cnn", "cannot take rows")]
)
def test_an_architecture_for_images_is_refused(small_adult, tmp_path, architecture, message):
    with pytest.raises(FairbenchError, match=message):
        train(recipe(architecture=architecture, normalize=False), tmp_path / "run", data_dir=small_adult)


def test_a_radius_of_features_must_be_above_0(small_adult, tmp_path):
    with pytest.raises(RecipeError, match="epsilon 0: it must be greater than 0"):
        train(recipe("pgd_at", options={"epsilon": 0}), tmp_path / "run", data_dir=small_adult)


@pytest.mark.parametrize("method", ["standard", "static_augmentation", "pgd_at"])
@pytest.mark.parametrize(("suffix", "epsilon"), [("mlp_adult", 10.0), ("small_cnn_cifar10", 0.01)])
def test_the_recipes_of_the_paper_have_its_settings(method, suffix, epsilon):
    found = load_recipe(f"{method}_{suffix}")
    assert (found.optimizer.name, found.batch_size, found.schedule.epochs) == ("adam", 250, 20)
    if method != "standard":
        from fairbench.training.fit import build_method

        assert build_method(found).epsilon == epsilon
