"""Training on feature vectors: normalisation inside the model, balanced classes, radii on the raw scale."""

import numpy as np
import pytest
import torch

from fairbench.attacks.base import PIXELS, UNBOUNDED
from fairbench.datasets import load_dataset
from fairbench.errors import FairbenchError, RecipeError
from fairbench.models import load_model
from fairbench.training import train
from fairbench.training.method import Context
from fairbench.training.methods.refrl_remargin import RefrlRemargin
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
    counts, notes = np.bincount(data.labels), []
    report = lambda row: notes.append(row.get("note"))  # noqa: E731
    model = train(recipe(validation_per_class=0), tmp_path / "run", data_dir=small_adult, report=report)
    assert f" {2 * counts.max()} rows, " in notes[0]
    assert model.card.training["training_images"] == len(data), "each counts once"


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


def test_held_out_rows_are_attacked_at_the_methods_own_radius(small_adult, tmp_path):
    options = {"epsilon": 5.0, "step": 1.25, "steps": 4}
    plain = {key: value for key, value in PLAIN.items() if key != "validation_epsilon"}
    chosen = parse_recipe(plain | {"method": "pgd_at"}, "test").changed(options | {"schedule.epochs": "2"})
    assert chosen.changed({"validation_epsilon": "2.0"}).changed({"steps": "3"}).validation_epsilon == 2.0
    model = train(chosen, tmp_path / "run", data_dir=small_adult)
    assert model.card.training["recipe"]["validation_epsilon"] == 5.0
    same = train(recipe("pgd_at", options=options), tmp_path / "named", data_dir=small_adult)
    assert same.sha256 == model.sha256
    assert (tmp_path / "run" / "classes.csv").read_bytes() == (tmp_path / "named" / "classes.csv").read_bytes()


@pytest.mark.parametrize("brings", [True, False])
def test_a_start_that_is_normalised_otherwise_is_told_so(small_adult, tmp_path, brings):
    train(recipe(normalize=brings), tmp_path / "start", data_dir=small_adult)
    chosen = recipe(
        "pgd_at", start=str(tmp_path / "start"), normalize=not brings, options={"epsilon": 5.0, "step": 1.0}
    )
    has = (
        "a normalisation of its own: pass --set normalize=true"
        if brings
        else "no normalisation: pass --set normalize=false"
    )
    with pytest.raises(RecipeError, match=has):
        train(chosen, tmp_path / "run", data_dir=small_adult)


@pytest.mark.parametrize(("space", "radii"), [(UNBOUNDED, [121.825, 331.155, 10.0]), (PIXELS, [1.0, 1.0, 1.0])])
def test_class_radii_of_features_are_not_bounded_by_those_of_pixels(space, radii):
    method = RefrlRemargin(epsilon=10.0, step=2.5, measured_epsilon=10.0)
    method.setup(Context(3, torch.device("cpu"), torch.Generator(), lambda module: module, space=space))
    labels, changed = torch.arange(3).repeat(100), torch.zeros(300, dtype=torch.bool)
    for which, count in enumerate((30, 40, 5)):
        changed[which : 3 * count : 3] = True
    method.recent.add(labels, torch.zeros(300, dtype=torch.bool), changed)
    method.adapt()
    assert method.radii.tolist() == pytest.approx(radii, rel=1e-4)
