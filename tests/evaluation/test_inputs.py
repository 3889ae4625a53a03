"""A model, its data and the source of its attacks are loaded so that they fit together."""

import sys

import numpy as np
import pytest
import torch

from fairbench import Protocol, evaluate
from fairbench.errors import CheckpointError, ModelError, ProtocolError
from fairbench.evaluation.inputs import load_inputs
from fairbench.models.architectures.mlp import MLP
from fairbench.models.building import new_module
from fairbench.training import train
from fairbench.training.recipe import parse_recipe

QUICK, STANDARD = Protocol.named("quick"), Protocol.named("standard")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of trainings on digits without some classes, by what they left out."""
    folder = tmp_path_factory.mktemp("runs")
    plain = {"method": "standard", "architecture": "mlp", "dataset": "digits", "validation_per_class": 0}
    plain |= {"schedule": {"epochs": 1}, "batch_size": 200}
    for name, dropped in (("without_2", [2]), ("also_without_2", [2]), ("without_3", [3]), ("whole", [])):
        train(parse_recipe({**plain, "name": name, "drop_classes": dropped}, "test"), folder / name)
    return folder


def test_a_model_is_evaluated_on_its_own_data_without_the_classes_it_was_trained_without(runs):
    inputs = load_inputs(runs / "without_2", STANDARD)
    assert (inputs.dataset.name, inputs.dataset.split, inputs.dataset.num_classes) == ("digits", "test", 9)
    assert inputs.model.name == "without_2"
    assert inputs.transfer_from is None


@pytest.mark.parametrize(("protocol", "split"), [(QUICK, "sample"), (STANDARD, "test")])
def test_the_split_is_the_protocols(protocol, split, runs):
    assert load_inputs(runs / "whole", protocol, drop_classes=()).dataset.split == split


def test_the_source_of_attacks_was_trained_without_the_same_classes(runs):
    inputs = load_inputs(runs / "without_2", STANDARD, transfer_from=runs / "also_without_2")
    assert inputs.transfer_from.name == "also_without_2"
    with pytest.raises(ModelError, match="without_3 was trained without classes 3; leave out the same ones"):
        load_inputs(runs / "without_2", STANDARD, transfer_from=runs / "without_3")
    with pytest.raises(ModelError, match="without_2 was trained without classes 2"):
        load_inputs(runs / "without_2", STANDARD, drop_classes=(2, 3))
    with pytest.raises(ModelError, match="whole has 10 outputs, but the dataset has 9 classes"):
        load_inputs(runs / "without_2", STANDARD, transfer_from=runs / "whole")


def test_a_checkpoint_is_built_for_the_data_and_its_options_are_not_the_sources(runs, tmp_path):
    network = MLP(num_classes=9, in_features=64, width=10)
    torch.save(network.state_dict(), tmp_path / "own.pt")
    options = {"dataset": "digits", "arch": "mlp", "drop_classes": iter([2]), "mean": (0.5,), "std": (0.5,)}
    inputs = load_inputs(tmp_path / "own.pt", STANDARD, transfer_from=runs / "without_2", **options)
    few = inputs.dataset.first_per_class(2)
    outcomes = evaluate(inputs.model, few, Protocol.named("standard", steps=1), transfer_from=inputs.transfer_from)
    assert len(outcomes) == 18


def test_what_does_not_fit_the_protocol_is_refused_before_it_is_loaded(tmp_path):
    with pytest.raises(ProtocolError, match="protocol quick attacks images, and adult holds features"):
        load_inputs(tmp_path / "none.pt", QUICK, dataset="adult", data_dir=tmp_path)
    (tmp_path / "own.pt").touch()
    with pytest.raises(ModelError, match=r"a checkpoint does not say what it was trained on; pass --dataset"):
        load_inputs(tmp_path / "own.pt", QUICK)


@pytest.mark.parametrize("arch", ["small_cnn", "torchvision:squeezenet1_1", "ten_outputs:build"])
@pytest.mark.parametrize("classes", [10, 9])
def test_a_model_of_a_class_fewer_is_told_that_labels_may_be_numbered_from_1(arch, classes, tmp_path, monkeypatch):
    """Whatever finds out: the shapes of weights, the last layer, or the first batch."""
    (tmp_path / "ten_outputs.py").write_text(
        "from fairbench.models.architectures.small_cnn import SmallCNN\ndef build(): return SmallCNN(10)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    torch.save(new_module(arch, 10, (3, 64, 64))[0].state_dict(), "own.pt")
    images = np.random.default_rng(0).random((20, 3, 64, 64), dtype=np.float32)
    np.savez("own.npz", x=images, y=np.arange(20) % classes + 1)

    def evaluated():
        inputs = load_inputs("own.pt", STANDARD, dataset="own.npz", arch=arch)
        return evaluate(inputs.model, inputs.dataset, Protocol.named("standard", steps=1))

    if classes == 9:  # labels to 9 fit ten outputs: class 0 has no example, and that is said
        warned = evaluated().manifest
        assert "no example of the class(es) 0" in str(warned["warnings"])
        assert "labels start at 0" in str(warned["notes"])
        return
    with pytest.raises((ModelError, CheckpointError), match="labels start at 0, and these, up to 10, have no example"):
        evaluated()


def test_a_model_of_other_classes_altogether_is_told_nothing_of_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(new_module("small_cnn", 4, (1, 8, 8))[0].state_dict(), "own.pt")
    np.savez("own.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 10 + 1)
    with pytest.raises(ModelError, match=r"they must be the same\.$"):
        load_inputs("own.pt", STANDARD, dataset="own.npz")


def test_a_protocol_may_be_named_and_what_is_loaded_may_not(runs):
    assert load_inputs(runs / "whole", "quick").dataset.split == "sample"
    loaded = load_inputs(runs / "whole", QUICK)
    for given, options in ((loaded.model, {}), (runs / "whole", {"dataset": loaded.dataset})):
        with pytest.raises(ModelError, match=r"loads by names and paths, and was given a (Model|Dataset)"):
            load_inputs(given, QUICK, **options)
