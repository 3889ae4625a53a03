"""Warnings that protect a conclusion: each is given when it should be, and not otherwise."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fairbench import load_dataset, summarize
from fairbench.datasets import Dataset
from fairbench.errors import ModelError
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
        (nn.Sequential(Normalize(MEAN, STD), Normalize(MEAN, STD), plain()), "normalised twice"),
        (Function(lambda inner, x: inner(x * 255)), "normalised twice"),
    ],
)
def test_a_model_is_warned_of_and_a_sound_one_is_not(module, warning, batch):
    torch.manual_seed(0)
    found = diagnostics.check_model(module, trained_to_agree(module, batch), 10)
    assert [w for w in found if warning and warning in w] if warning else not found, found


def test_a_model_without_any_gradient_is_an_error_and_not_robust(batch):
    with pytest.raises(ModelError, match="do not depend on its input by any gradient"):
        diagnostics.check_model(Function(lambda inner, x: inner(x.detach())), batch, 10)


def subtracted(inner, x):
    with torch.no_grad():
        x.sub_(0.1)
    return inner(x)


def test_a_model_that_writes_into_its_input_is_refused(batch):
    with pytest.raises(ModelError, match="changes its input in place"):
        diagnostics.check_model(Function(subtracted), batch, 10)


def test_a_random_layer_is_seen_before_it_changes_a_prediction(batch):
    def noisy(inner, x):
        logits = inner(x)
        return 100 * torch.nn.functional.one_hot(logits.argmax(1), 10) + logits + torch.rand_like(logits)

    torch.manual_seed(0)
    found = " ".join(diagnostics.check_model(Function(noisy), batch, 10))
    assert "logits change by up to" in found
    assert "a layer is random" in found


@pytest.mark.parametrize(("mean", "std"), [((0.286,), (0.353,)), ((0.1307,), (0.3081,)), ((0.5,), (0.05,))])
def test_normalising_twice_is_seen_whatever_the_statistics(mean, std):
    torch.manual_seed(0)
    x = torch.rand(64, 1, 28, 28)
    once = nn.Sequential(Normalize(mean, std), nn.Flatten(), nn.Linear(784, 10))
    twice = nn.Sequential(Normalize(mean, std), once)
    labels = torch.zeros(64, dtype=torch.int64)
    assert not diagnostics.check_model(once, (x, labels, np.arange(64)), 10)
    assert "normalised twice" in " ".join(diagnostics.check_model(twice, (x, labels, np.arange(64)), 10))


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
    ("broken", "warnings"),
    [
        ({"pgd20": 20, "autoattack": 29}, []),
        ({"pgd20": 20, "autoattack": 31}, ["AutoAttack breaks 11.0 points more than pgd20"]),
        ({"pgd20": 40, "autoattack": 20}, []),
        ({"pgd20": 20, "cw20": 26}, []),
        ({"pgd20": 20, "cw20": 27}, ["cw20 breaks 7.0 points more than pgd20"]),
        ({"pgd20": 26, "cw20": 20}, []),
        ({"pgd1": 20, "cw20": 90}, []),
        ({"pgd20": 20, "pgd40": 26, "cw20": 27}, ["cw20 breaks 7.0 points more than pgd20"]),
        ({"pgd20": 20, "cw20": 27, "autoattack": 35}, ["cw20 breaks 7.0 points more than pgd20"]),
        ({"cw20": 20, "autoattack": 31}, ["AutoAttack breaks 11.0 points more than cw20"]),
        ({"pgd20": 20, "cw-of-mine": 90}, []),
    ],
)
def test_an_attack_far_stronger_than_pgd_is_noticed(broken, warnings):
    label = np.zeros(100, dtype=int)
    label[50:] = 1
    frame = pd.DataFrame({"index": range(100), "label": label, "clean_pred": label})
    for attack, examples in broken.items():
        frame[f"{attack}_pred"] = np.where(np.arange(100) < examples, 1 - label, label)
    found = diagnostics.check_results(summarize(Outcomes(frame, {"dataset": {"classes": ["a", "b"]}})))
    assert [one.partition(":")[0] for one in found] == warnings


@pytest.mark.parametrize(("broken", "warned"), [(50, False), (96, True), (100, True)])
def test_a_model_that_is_broken_everywhere_is_not_called_fair(broken, warned):
    label = np.repeat([0, 1], 100)
    wrong = np.tile(np.arange(100), 2) < broken
    frame = pd.DataFrame({"index": range(200), "label": label, "clean_pred": label})
    frame["pgd20_pred"] = np.where(wrong, 1 - label, label)
    found = diagnostics.check_results(summarize(Outcomes(frame, {"dataset": {"classes": ["a", "b"]}})))
    assert ("no sign of fairness" in " ".join(found)) == warned


def test_a_layer_that_uses_statistics_of_the_batch_is_noticed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(64, 10)).eval()
    x, y, index = load_dataset("digits").batch(slice(0, 100))
    x = torch.cat([x[:50] * 0.2, x[50:]])  # halves of other brightness than the whole
    found = diagnostics.check_model(model, (x, y, index), 10)
    assert any("change with the batch an example rides in" in warning for warning in found)
