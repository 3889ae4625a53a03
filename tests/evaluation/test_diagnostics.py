"""Warnings that protect a conclusion: each is given when it should be, and not otherwise."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fairbench import load_dataset, summarize
from fairbench.datasets import Dataset
from fairbench.evaluation import diagnostics
from fairbench.models.base import Normalize
from fairbench.outcomes import Outcomes


@pytest.fixture
def batch():
    return load_dataset("cifar10", "sample").batch(slice(0, 64))


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).eval()


MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def masked(x):
    return plain()(torch.round(x * 4) / 4)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.inner = function, plain()

    def forward(self, x):
        return self.function(self.inner, x)


def trained_to_agree(module, batch):
    """Labels are the module's own predictions, so that every example is correctly classified."""
    x, _, index = batch
    with torch.no_grad():
        return x, module(x).argmax(1), index


@pytest.mark.parametrize(
    ("module", "warning"),
    [
        (plain(), None),
        (nn.Sequential(Normalize(MEAN, STD), plain()), None),
        (nn.Sequential(plain()[0], nn.Dropout(0.5).train(), plain()[1]), "change between two clean passes"),
        (nn.Sequential(plain(), nn.Softmax(1)), "look like probabilities"),
        (Function(lambda inner, x: inner(torch.round(x * 4) / 4)), "gradient is exactly zero for 64 of 64"),
        (Function(lambda inner, x: inner(x.detach())), "do not depend on the input by any gradient"),
        (nn.Sequential(Normalize(MEAN, STD), Normalize(MEAN, STD), plain()), "normalised twice"),
        (Function(lambda inner, x: inner(x * 255)), "normalised twice"),
    ],
)
def test_a_model_is_warned_of_and_a_sound_one_is_not(module, warning, batch):
    torch.manual_seed(0)
    found = diagnostics.check_model(module, trained_to_agree(module, batch), 10)
    assert [w for w in found if warning and warning in w] if warning else not found, found


def dataset(counts, classes=("a", "b", "c"), pixels=None):
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
    inputs = np.full((len(labels), 1, 2, 2), 0.5, dtype=np.float32) if pixels is None else pixels
    return Dataset("d", inputs, labels, classes)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((60, 50, 70), []),
        ((60, 49, 70), ["b (49)"]),
        ((60, 70, 0), ["class(es) c"]),
        ((5, 70, 0), ["a (5)", "class(es) c"]),
    ],
)
def test_small_and_absent_classes_are_named(counts, words):
    found = " ".join(diagnostics.check_dataset(dataset(counts)))
    assert all(word in found for word in words)
    assert bool(found) == bool(words)


def test_images_divided_by_255_twice_are_noticed():
    pixels = np.random.default_rng(0).integers(0, 256, (180, 1, 2, 2)).astype(np.float32) / 255
    assert not diagnostics.check_dataset(dataset((60, 60, 60), pixels=pixels))
    assert "twice" in diagnostics.check_dataset(dataset((60, 60, 60), pixels=pixels / 255))[0]


@pytest.mark.parametrize(
    ("pgd_broken", "autoattack_broken", "warned"), [(20, 29, False), (20, 31, True), (40, 20, False)]
)
def test_autoattack_far_stronger_than_pgd_is_noticed(pgd_broken, autoattack_broken, warned):
    label = np.zeros(100, dtype=int)
    label[50:] = 1
    frame = pd.DataFrame({"index": range(100), "label": label, "clean_pred": label})
    for attack, broken in (("pgd20", pgd_broken), ("autoattack", autoattack_broken)):
        frame[f"{attack}_pred"] = np.where(np.arange(100) < broken, 1 - label, label)
    found = diagnostics.check_results(summarize(Outcomes(frame, {"dataset": {"classes": ["a", "b"]}})))
    assert bool(found) == warned
