"""Static augmentation: a new model beside its source, on examples that the seed decides."""

import numpy as np
import pytest
import torch
import yaml
from made_runs import Stop, crash_after, recipe, same, weights

from fairbench import load_dataset, load_model
from fairbench.training import train
from fairbench.training.data import TrainingData
from fairbench.training.fit import build_method
from fairbench.training.method import Context


def test_static_augmentation_trains_a_new_model_beside_its_source(start, tmp_path):
    before = weights(start)
    chosen = recipe("static_augmentation", start=str(start), options={"epsilon": 0.1, "steps": 3})
    train(chosen, tmp_path / "run")
    assert same(weights(start), before)
    card = yaml.safe_load((tmp_path / "run" / "card.yaml").read_text())
    assert card["training"]["training_images"] == 1437 - 200, "clean ones; as many adversarial beside them"
    with pytest.raises(Stop):
        train(chosen, tmp_path / "cut", report=crash_after(0))
    train(chosen, tmp_path / "cut")
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "run"))


def test_static_examples_start_where_the_seed_says(start):
    images = []
    for seed in (0, 0, 1):
        method = build_method(recipe("static_augmentation", start=str(start)))
        generator, source = torch.Generator(), load_model(start).module
        context = Context(10, torch.device("cpu"), generator, lambda module: module, source=source, seed=seed)
        method.setup(context)
        data = TrainingData.of(load_dataset("digits", "train").subset(np.arange(30)), torch.device("cpu"))
        images.append(method.training_set(data).inputs[30:])
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])
