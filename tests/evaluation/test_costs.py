"""The cost model: hand-computed sums, and AutoAttack's passes as they are counted against an evaluation's own."""

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.attacks import autoattack
from fairbench.attacks.autoattack import AutoAttack
from fairbench.attacks.base import ThreatModel
from fairbench.attacks.least_steps import LeastSteps
from fairbench.attacks.pgd import PGDAttack
from fairbench.errors import ProtocolError
from fairbench.evaluation.costs import Survivors, Work, autoattack_work, clean_cost, cost, nearest, shares
from fairbench.evaluation.speed import BatchSpeed, Flops, Rate

BALL = ThreatModel(8 / 255)
FLOPS = Flops(forward=10, backward=20)


def speed(batch: int, forward: float, step: float) -> BatchSpeed:
    return BatchSpeed(batch, Rate(forward, forward, forward, 3), Rate(step, step, step, 3), None)


SPEEDS = [speed(32, 100.0, 25.0), speed(128, 200.0, 50.0)]


def test_pgd_is_its_steps_and_a_verdict():
    found = cost(PGDAttack(BALL, 2 / 255, steps=20), 1_000, SPEEDS, FLOPS)
    assert (found.attack, found.examples, found.forwards, found.backwards) == ("pgd20", 1_000, 21, 20)
    assert found.flops == 1_000 * (21 * 10 + 20 * 20)
    assert found.seconds == pytest.approx(1_000 * (20 / 50 + 1 / 200))


def test_a_small_dataset_goes_at_the_speed_of_a_small_batch():
    found = cost(PGDAttack(BALL, 2 / 255, steps=10, restarts=2), 40, SPEEDS, FLOPS)
    assert found.seconds == pytest.approx(40 * (20 / 25 + 1 / 100))


def test_autoattack_attacks_survivors_alone():
    stages = {"apgd-ce": Work(3, 2, 0.5), "square": Work(10, 0, 0.25)}
    survivors = Survivors(correct=0.75, withstanding=0.25, source="a table")
    found = cost(AutoAttack(BALL, 10), 1_000, SPEEDS, FLOPS, survivors=survivors, stages=stages)
    # Stage one: 96 images, near 128: a forward takes 1/200 s, a backward 1/50 - 1/200. Stage two: 32, 1/100 s.
    first = 0.75 * (3 / 200 + 2 * (1 / 50 - 1 / 200) + 0.5)
    second = 0.25 * (10 / 100 + 0.25)
    assert found.seconds == pytest.approx(1_000 * (first + second + 2 / 200))
    assert found.forwards == pytest.approx(0.75 * 3 + 0.25 * 10 + 2)
    assert found.backwards == pytest.approx(1.5)
    assert found.flops == pytest.approx(1_000 * (10 * (2.25 + 2.5 + 2) + 20 * 1.5))


def test_nobody_survives():
    stages = {"apgd-ce": Work(3, 2), "square": Work(10, 0)}
    found = cost(AutoAttack(BALL, 10), 100, SPEEDS, FLOPS, survivors=Survivors(0, 0, ""), stages=stages)
    assert (found.forwards, found.backwards) == (2, 0)


@pytest.mark.parametrize("attack", [LeastSteps(BALL, 0.4 / 255, 1_000), AutoAttack(BALL, 10)])
def test_what_there_is_no_model_of_is_refused(attack):
    with pytest.raises(ProtocolError, match=rf"no model of what {attack.name} costs"):
        cost(attack, 100, SPEEDS, FLOPS)


def test_clean_predictions_cost_a_forward_pass_and_a_file_a_batch():
    found = clean_cost(1_000, SPEEDS, FLOPS)
    assert (found.forwards, found.backwards, found.flops) == (1, 0, 10_000)
    assert found.seconds > 1_000 / 200


@pytest.mark.parametrize(("batch", "at"), [(0, 32), (33, 32), (63, 32), (65, 128), (1_000, 128)])
def test_the_nearest_size_is_nearest_by_ratio(batch, at):
    assert nearest(SPEEDS, batch).batch == at


def test_shares_of_a_kept_table():
    found = shares(["clean", "clean", "apgd-ce", "apgd-t", "square", None, None, None], "made up")
    assert (found.correct, found.withstanding) == (0.75, 0.625)


class Counting(nn.Module):
    """Never broken, and counts what it is shown."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes, self.shown = classes, 0

    def forward(self, x):
        self.shown += len(x)
        first = 10 + x.flatten(1).mean(1, keepdim=True)
        return torch.cat([first, x.flatten(1)[:, : self.classes - 1]], 1)


@pytest.mark.parametrize(("classes", "stages"), [(6, ["apgd-ce", "apgd-t", "fab-t", "square"])])
def test_autoattack_is_counted_as_it_runs(classes, stages, monkeypatch):
    """With fewer iterations and queries: both sides run the same ones."""
    monkeypatch.setattr(autoattack, "ITERATIONS", 15)
    monkeypatch.setattr(autoattack, "QUERIES", 40)
    found = autoattack_work((1, 4, 4), classes)
    assert list(found) == stages
    model = Counting(classes)
    x, y = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)
    AutoAttack(BALL, classes)(
        model, x, y, np.arange(2), verify=lambda a, _x, _y: torch.zeros(len(a), dtype=torch.bool), tick=lambda _: None
    )
    assert sum(work.forwards for work in found.values()) == pytest.approx(model.shown / 2, rel=0.01)
    assert found["square"].backwards == 0
    assert all(work.backwards > 0 for stage, work in found.items() if stage != "square")
    assert all(work.own_seconds > 0 for work in found.values())
