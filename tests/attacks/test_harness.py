"""The harness: it projects, it re-scores with the original model, and a fault is an error, never "robust"."""

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.attacks import Proposal, ThreatModel
from fairbench.attacks.base import logits_of, run_attack
from fairbench.errors import ModelError


class Liar:
    """An attack that claims whatever it was told to."""

    name, cost, threat_model = "liar", 1.0, ThreatModel(0.1)

    def __init__(self, delta):
        self.delta = delta

    def parameters(self):
        return {}

    def __call__(self, model, x, y, index, *, verify, tick):
        return Proposal(x + self.delta, {"claim": np.zeros(len(x), dtype=np.int16)})


class Threshold(nn.Module):
    """Class 1 where the mean pixel is above a half."""

    def forward(self, x):
        mean = x.flatten(1).mean(1) - 0.5
        return torch.stack([-mean, mean], 1)


@pytest.mark.parametrize(("start", "delta", "broken"), [(0.45, 0.08, True), (0.35, 0.3, False), (0.45, -0.3, False)])
def test_a_proposal_outside_the_ball_is_projected_before_it_is_scored(start, delta, broken):
    x, y = torch.full((3, 1, 2, 2), start), torch.zeros(3, dtype=torch.int64)
    found = run_attack(Liar(delta), Threshold(), Threshold(), (x, y, np.arange(3)), num_classes=2, tick=print)
    assert ((found["liar_pred"] != 0) == broken).all()
    assert "liar_claim" in found


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda x: (torch.zeros(len(x), 2), 1), "--output"),
        (lambda x: {"logits": torch.zeros(len(x), 2)}, "dict with logits"),
        (lambda x: torch.zeros(len(x)), r"to \(4,\)"),
        (lambda x: torch.zeros(2, 2), "a batch of shape"),
        (lambda x: torch.zeros(len(x), 7), "7 outputs, but the dataset has 2 classes"),
        (lambda x: torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, float("nan")], [0.0, 1.0]]), "example 12"),
        (lambda x: torch.full((len(x), 2), float("inf")), "example 10"),
    ],
)
def test_an_output_that_is_not_finite_logits_is_one_clear_error(output, message):
    class Odd(nn.Module):
        def forward(self, x):
            return output(x)

    with pytest.raises(ModelError, match=message):
        logits_of(Odd(), torch.zeros(4, 1, 2, 2), np.arange(10, 14), 2)


def test_containment_allows_rounding_and_nothing_more():
    x = torch.full((4, 1, 1, 1), 0.5)
    inside = ThreatModel(0.1).contains(x + torch.tensor([0.1, 0.1 + 5e-7, 0.1 + 1e-4, 0.7]).view(4, 1, 1, 1), x)
    assert inside.tolist() == [True, True, False, False]
