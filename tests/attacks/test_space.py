"""Attacks on features: which may change, in which range, and judged by another model."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.attacks.base import UNBOUNDED, Space, ThreatModel, run_attack
from fairbench.attacks.least_epsilon import LeastEpsilon
from fairbench.attacks.pgd import PGDAttack, pgd

X = torch.tensor([[30.0, 1.5e6, 0.0], [60.0, 2.0e5, 1.0]])
Y = torch.tensor([0, 0])


def linear(weight: list[float], bias: float = 0.0) -> nn.Module:
    """Two classes; the second one's logit is w.x + b, the first one's 0."""
    model = nn.Linear(3, 2)
    model.weight.data = torch.tensor([[0.0, 0.0, 0.0], weight])
    model.bias.data = torch.tensor([0.0, bias])
    return model


def test_unbounded_features_go_the_whole_way():
    found = pgd(linear([1.0, -1e-6, 2.0]), X, Y, epsilon=10, step=2.5, steps=20, space=UNBOUNDED).last
    assert torch.allclose(found, X + torch.tensor([10.0, -10.0, 10.0]), rtol=0, atol=0.13)  # float32 of a million


def test_protected_features_stay_exactly():
    space = Space(-math.inf, math.inf, torch.tensor([True, False, False]))
    found = pgd(linear([1.0, 1e-6, 2.0]), X, Y, epsilon=10, step=2.5, steps=20, space=space).last
    assert torch.equal(found[:, 1:], X[:, 1:])
    assert found[:, 0].tolist() == [40.0, 70.0]


def test_a_range_is_kept_and_an_example_outside_it_gets_no_further_out():
    space = Space(torch.tensor([17.0, 0.0, 0.0]), torch.tensor([35.0, 1e6, 1.0]))
    found = pgd(linear([1.0, 1e-6, 2.0]), X, Y, epsilon=10, step=2.5, steps=20, space=space).last
    assert found[:, 0].tolist() == [35.0, 60.0]
    assert found[:, 2].tolist() == [1.0, 1.0]
    assert found[0, 1] == X[0, 1]
    assert space.contains(found, X, 10.0).all()


@pytest.mark.parametrize(("shift", "inside"), [(10.0, True), (10.001, False), (-10.0, True)])
def test_the_ball_is_as_wide_as_epsilon_at_any_scale(shift, inside):
    assert ThreatModel(10.0, UNBOUNDED).contains(X + torch.tensor([shift, 0.0, 0.0]), X).tolist() == [inside] * 2
    assert ThreatModel(10.0, UNBOUNDED).contains(X + torch.tensor([0.0, 10.0, 0.0]), X).all()
    assert not ThreatModel(10.0, UNBOUNDED).contains(X + torch.tensor([0.0, 15.0, 0.0]), X).any()


def test_the_least_epsilon_of_features_is_the_margin_over_the_weights():
    attack = LeastEpsilon(ThreatModel(40.0, UNBOUNDED), 1.0, largest_step=math.inf)
    model = linear([1.0, 0.0, 1.0], bias=-80.5)  # margins 50.5 and 19.5, two weights of 1: 25.25 and 9.75
    verify = lambda x_adv, x, y: model(x_adv).argmax(1) != y  # noqa: E731
    found = attack(model, X, Y, np.array([0, 1]), verify=verify, tick=lambda _work: None)
    assert found.extras["epsilon"].tolist() == [26.0, 10.0]


def test_in_a_transfer_the_source_is_attacked_and_the_other_judges():
    source, judge = linear([1.0, 0.0, 0.0], bias=-65.0), linear([-1.0, 0.0, 0.0], bias=20.0)
    attack = PGDAttack(ThreatModel(10.0, UNBOUNDED), 2.5)
    batch = X, Y, np.array([0, 1])
    columns = run_attack(attack, source, source, batch, num_classes=2, tick=lambda _w: None, judge=judge)
    assert list(columns) == ["pgd20_pred"]
    assert columns["pgd20_pred"].tolist() == [0, 0]  # raised by 10, which the judge likes
    white_box = run_attack(attack, judge, judge, batch, num_classes=2, tick=lambda _w: None, confidences=True)
    assert white_box["pgd20_pred"].tolist() == [0, 0]
    assert white_box["pgd20_label_confidence"] == pytest.approx([0.5, 1.0], abs=1e-3)
