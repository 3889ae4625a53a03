"""What a review broke in training once: each case keeps the right answer."""

import json
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import yaml
from made_runs import FAST, recipe, train_on_two

from fairbench import load_dataset, load_model
from fairbench.errors import RecipeError
from fairbench.training import train
from fairbench.training.data import TrainingData
from fairbench.training.fit import build_method
from fairbench.training.method import Context, Method, option
from fairbench.training.run_folder import RunFolder


class Keeps(Method):
    """A method whose state lies where the run computes."""

    name = "keeps"
    source = "test"
    state_fields = ("weights", "text")


def test_a_resumed_state_goes_where_setup_made_it():
    """On a GPU some methods keep their state there, some on the CPU; "meta" is the other device that is everywhere."""
    method = Keeps()
    method.weights, method.text = torch.zeros(3, device="meta"), "before"
    method.load_state({"weights": torch.ones(3), "text": "after"})
    assert (method.weights.device.type, method.text) == ("meta", "after")
    method.weights = {"a": [torch.zeros(3, device="meta"), 1]}
    method.load_state({"weights": {"a": [torch.ones(3), 2]}, "text": "after"})
    assert (method.weights["a"][0].device.type, method.weights["a"][1]) == ("meta", 2)
    method.weights = None
    method.load_state({"weights": torch.ones(3), "text": "after"})
    assert method.weights.device.type == "cpu"


def test_a_state_is_read_on_the_cpu_whatever_wrote_it(start, monkeypatch):
    asked = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **options: asked.append(options) or load(*args, **options))
    assert RunFolder(start).load() is not None
    assert asked == [{"map_location": "cpu", "weights_only": True}]


def test_held_out_images_count_that_any_model_before_was_trained_on(start, tmp_path):
    """The first held out 20 a class, the second 5, of the last: so the third may adapt to 5 alone."""
    one_epoch = {"options": FAST, "schedule": {"epochs": 1}}
    train(recipe("pgd_at", start=str(start), validation_per_class=5, **one_epoch), tmp_path / "second")
    train(recipe("pgd_at", start=str(tmp_path / "second"), validation_per_class=20, **one_epoch), tmp_path / "third")
    cards = [yaml.safe_load((tmp_path / name / "card.yaml").read_text()) for name in ("second", "third")]
    assert [card["training"]["unseen_per_class"] for card in cards] == [5, 5]
    third = {"start": str(tmp_path / "third"), **one_epoch}
    with pytest.raises(RecipeError, match="or a model it came from, was trained on some of these images"):
        train(recipe("frl", validation_per_class=6, **third), tmp_path / "six")
    train(recipe("frl", validation_per_class=5, **third), tmp_path / "five")


NORMED = textwrap.dedent("""
    from torch import nn

    def build(num_classes, in_channels):
        layers = nn.Conv2d(in_channels, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, num_classes)
        return nn.Sequential(*layers)
""")

SHOWN = textwrap.dedent("""
    import sys
    from fairbench.training.methods.frl import FRL
    ended = FRL.end_epoch
    def end_epoch(self, validate):
        ended(self, validate)
        open(f"{sys.argv[1]}.{self.context.rank}", "a").write(repr(self.lambda0.tolist()) + chr(10))
    FRL.end_epoch = end_epoch
""")


def test_processes_with_batch_norm_adapt_to_the_same_errors(tmp_path, monkeypatch):
    (tmp_path / "normed.py").write_text(NORMED)
    monkeypatch.syspath_prepend(str(tmp_path))
    train(recipe("standard", architecture="normed:build", schedule={"epochs": 1}), tmp_path / "start")
    chosen = recipe("frl", architecture="normed:build", start=str(tmp_path / "start"), options=FAST)
    train_on_two({tmp_path / "out": chosen}, tmp_path, SHOWN)
    seen = [(tmp_path / f"out.{rank}").read_text().splitlines() for rank in (0, 1)]
    assert len(seen[0]) == 3
    assert seen[0] == seen[1]
    assert any(float(weight) for weight in json.loads(seen[0][-1]))


OPTIONS = """
import torch.nn.functional as F
from fairbench.training import Method, option

class Plain(Method):
    name = "plain"
    source = "mine"
    share: float = option(0.1, "mine")

    def loss(self, model, x, y):
        return self.share * F.cross_entropy(model(x), y)
"""


def test_options_of_ones_own_method(tmp_path, monkeypatch):
    (tmp_path / "own_options.py").write_text(OPTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    message = "method plain: the class Plain declares the option share and is no dataclass; write @dataclass above it"
    for options in ({}, {"share": 0.3}):
        with pytest.raises(RecipeError, match=message):
            build_method(recipe("own_options:Plain", options=options))


@dataclass
class WholeDefault(Method):
    """An option whose default is written without a point."""

    name = "whole"
    source = "test"
    beta: float = option(6, "test")
    count: int = option(3, "test")


def test_an_option_is_of_the_type_it_is_annotated_with():
    assert WholeDefault.configured({"beta": "1.5"}).beta == 1.5
    assert WholeDefault.configured({"count": "2"}).count == 2
    with pytest.raises(RecipeError, match="count is a int"):
        WholeDefault.configured({"count": "1.5"})


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
