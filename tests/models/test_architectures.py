"""Built-in architectures: what they return, and that a checkpoint tells how it was built."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairbench.datasets import Dataset, load_dataset
from fairbench.errors import ModelError
from fairbench.models import Model, load_model
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.building import fitting

CASES: list[tuple[str, dict[str, Any], tuple[int, int, int]]] = [
    ("lenet5", {"num_classes": 10, "in_channels": 1}, (1, 32, 32)),
    ("lenet5", {"num_classes": 3, "in_channels": 3}, (3, 32, 32)),
    ("small_cnn", {"num_classes": 10, "in_channels": 1}, (1, 8, 8)),
    ("small_cnn", {"num_classes": 2, "in_channels": 3}, (3, 2, 19)),
    ("resnet18", {"num_classes": 10, "in_channels": 3}, (3, 32, 32)),
    ("resnet18", {"num_classes": 4, "in_channels": 1}, (1, 28, 20)),
    ("preact_resnet18", {"num_classes": 100, "in_channels": 3}, (3, 32, 32)),
    ("preact_resnet18", {"num_classes": 2, "in_channels": 1}, (1, 9, 13)),
    ("wrn_28_10", {"num_classes": 7, "in_channels": 3}, (3, 16, 16)),
    ("mlp", {"num_classes": 2, "in_features": 104, "width": 64}, (1, 8, 13)),
    ("mlp", {"num_classes": 5, "in_features": 12, "width": 3}, (3, 2, 2)),
]


def test_the_cases_cover_every_architecture() -> None:
    assert {name for name, _, _ in CASES} == set(ARCHITECTURES)


@pytest.mark.parametrize(("name", "arguments", "shape"), CASES)
def test_output_is_one_logit_per_class(name: str, arguments: dict[str, Any], shape: tuple[int, int, int]) -> None:
    module = ARCHITECTURES[name].build(**arguments).eval()
    with torch.no_grad():
        logits = module(torch.rand(2, *shape))
    assert logits.shape == (2, arguments["num_classes"])
    assert logits.isfinite().all()


@pytest.mark.parametrize(("name", "arguments", "shape"), CASES)
def test_the_weights_tell_how_they_were_built(
    name: str, arguments: dict[str, Any], shape: tuple[int, int, int]
) -> None:
    with torch.device("meta"):
        state = ARCHITECTURES[name].build(**arguments).state_dict()
    assert ARCHITECTURES[name].infer(state) == arguments
    assert fitting(state) == [name]


def test_an_mlp_takes_its_inputs_from_the_shape_of_the_data() -> None:
    module = ARCHITECTURES["mlp"].build(num_classes=3, shape=(1, 8, 8))
    assert module(torch.rand(4, 1, 8, 8)).shape == (4, 3)


def test_only_lenet5_demands_a_size() -> None:
    assert {name: ARCHITECTURES[name].input_size for name in ARCHITECTURES if ARCHITECTURES[name].input_size} == {
        "lenet5": (32, 32)
    }


def test_a_misspelt_architecture_gets_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"unknown architecture 'resnet_18'\. Did you mean 'resnet18'"):
        ARCHITECTURES["resnet_18"]


def class_errors(model: Model, rows: np.ndarray | slice, data: Dataset) -> tuple[float, np.ndarray]:
    """Average and per-class standard error in percent."""
    x, y, _ = data.batch(rows)
    with torch.no_grad():
        wrong = torch.cat([model.module(part).argmax(1) for part in x.split(250)]) != y
    return 100 * wrong.float().mean().item(), np.array([100 * wrong[y == c].float().mean().item() for c in range(10)])


@pytest.mark.parametrize("name", ["lenet5_fashion_natural", "lenet5_fashion_adversarial"])
def test_lenet5_is_that_of_the_real_checkpoints(name: str, shared: Path) -> None:
    model = load_model(shared / "checkpoints" / f"{name}.pt")
    assert model.architecture == "lenet5"
    assert model.input_size == (32, 32)
    assert any("lenet5" in note for note in model.notes)
    assert load_model(shared / "checkpoints" / f"{name}.pt", arch="lenet5").sha256 == model.sha256


def test_lenet5_has_the_known_errors_on_the_sample(shared: Path) -> None:
    model = load_model(shared / "checkpoints" / "lenet5_fashion_adversarial.pt")
    average, by_class = class_errors(model, slice(None), load_dataset("fashion_mnist", "sample").resized(32, 32))
    assert average == pytest.approx(11.6, abs=1e-4)
    assert by_class.max() == pytest.approx(43, abs=1e-4)
    assert by_class.argmax() == 6


def test_natural_resnet18_is_right_on_94_6_percent_of_the_first_500_test_images() -> None:
    sample = load_dataset("cifar10", "sample")
    first = np.flatnonzero(sample.index < 500)
    assert sample.index[first].tolist() == list(range(500))  # no class has its hundredth image before the 500th
    average, _ = class_errors(load_model("natural_resnet18"), first, sample)
    assert 100 - average == pytest.approx(94.6, abs=0.05)
