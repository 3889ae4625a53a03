"""From images to errors, CRU_eps and curve, where all is known: a linear model's least epsilon is margin / L1 norm."""

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.datasets import Dataset
from fairbench.evaluation import Protocol, evaluate
from fairbench.metrics import summarize
from fairbench.metrics.curves import success_curves
from fairbench.outcomes import Outcomes

LEVELS = ([1, 1, 2, 3, 3, 3, 5, 8, 8, 0, 0], [4, 6, 6, 9, 12, 12, 15, 20, 33, 40])
"""Least epsilon of each image in 1/255, by class: none up to 32/255 breaks the last two, and 0 is wrong clean."""
LARGEST = 32


def linear() -> nn.Module:
    """The class is the sign of w.(x - 0.5)."""
    torch.manual_seed(0)
    net = nn.Linear(16, 2)
    weight = 0.01 * torch.randn(16)
    net.weight.data = torch.stack((weight, -weight))
    net.bias.data = -0.5 * net.weight.data.sum(1)
    return nn.Sequential(nn.Flatten(), net).eval()


def images(model: nn.Module) -> Dataset:
    """Return images whose margin over the L1 norm is half a level less than their least epsilon on the grid."""
    weight = model[1].weight.data[0]
    inputs, labels = [], []
    for label, levels in enumerate(LEVELS):
        towards = weight.sign() * (1 - 2 * label)
        for level in levels:
            distance = (level - 0.5) / 255  # below 0: on the other side
            inputs.append(0.5 + distance * towards)
            labels.append(label)
    pixels = torch.stack(inputs).view(-1, 1, 4, 4).numpy().astype(np.float32)
    return Dataset("made", pixels, np.array(labels), ("near", "far"))


@pytest.fixture(scope="module", params=["bisect", "scan"])
def outcomes(request, tmp_path_factory) -> Outcomes:
    model = linear()
    name = {"bisect": "least-epsilon", "scan": "least-epsilon-scan"}[request.param]
    protocol = Protocol.named("standard", attacks=(name,), max_epsilon=LARGEST / 255)
    found = evaluate(model, images(model), protocol)
    return Outcomes.read(found.write(tmp_path_factory.mktemp("run")))


def test_cru_eps_is_the_difference_of_the_mean_margins(outcomes: Outcomes) -> None:
    (attack,) = outcomes.attacks
    found = summarize(outcomes).attacks[attack].least_epsilon
    means = [np.minimum(levels, LARGEST).mean() / 255 for levels in LEVELS]
    assert found.classes["mean"].tolist() == pytest.approx(means)
    assert found.classes["censored"].tolist() == [0, 2]
    assert found.cru_eps == pytest.approx(means[1] - means[0])
    low, high = found.cru_eps_interval
    assert low < found.cru_eps < high


def test_the_curve_is_the_share_of_margins_that_the_radius_exceeds(outcomes: Outcomes) -> None:
    (attack,) = outcomes.attacks
    curves = success_curves(outcomes, attack, [k / 255 for k in range(LARGEST + 1)])
    broken = curves.classes.pivot(index="epsilon", columns="class", values="broken").to_numpy()
    near, far = (100 * (np.array(levels)[None] <= np.arange(LARGEST + 1)[:, None]).mean(1) for levels in LEVELS)
    expected = np.stack((far, near), 1)  # by name
    assert np.allclose(broken, expected)
    assert curves.overall["cru_s"].to_numpy() == pytest.approx(np.abs(near - far))
    assert near[0] == pytest.approx(200 / 11)
    assert far[-1] == pytest.approx(80)


class FarApart(nn.Module):
    """Two classes that change places where every pixel has moved by 0.29 in its direction."""

    def forward(self, x):
        score = x.flatten(1).mean(1) - 0.5
        return torch.stack((-score, score), 1)


def test_pgd_reaches_the_border_of_a_large_ball():
    inputs = np.full((40, 1, 4, 4), 0.5 + 0.29, dtype=np.float32)
    inputs[::2] = 0.5 - 0.29
    data = Dataset("far", inputs, np.arange(40) % 2, ("low", "high"))
    found = summarize(evaluate(FarApart(), data, Protocol.named("standard", epsilon=0.3))).attacks["pgd20"]
    assert (found.avg_std, found.avg_rob) == (0.0, 100.0)
