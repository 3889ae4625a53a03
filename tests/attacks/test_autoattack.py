"""AutoAttack per example: every success confirmed, survivors only, starts of (seed, index) alone, any K >= 2."""

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.attacks import ThreatModel
from fairbench.attacks import autoattack as module
from fairbench.attacks.autoattack import AutoAttack
from fairbench.attacks.base import run_attack
from fairbench.attacks.pgd import pgd


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    """Full-length stages take minutes; what is tested here does not depend on their length."""
    monkeypatch.setattr(module, "ITERATIONS", 15)
    monkeypatch.setattr(module, "QUERIES", 40)
    monkeypatch.setattr(module, "MAX_TARGETS", 2)


def network(classes: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 24), nn.Tanh(), nn.Linear(24, classes))
    with torch.no_grad():
        model[3].weight.mul_(3)
    return model.eval().requires_grad_(False)


def batch(model, n=40, seed=1, wrong=4):
    x = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    y = model(x).argmax(1)
    y[:wrong] = (y[:wrong] + 1) % model[3].out_features
    return x, y, np.arange(n)


def rows(model, attack, examples, prepared=None):
    classes = model[3].out_features
    return run_attack(attack, model, prepared or model, examples, num_classes=classes, tick=lambda _: None)


@pytest.mark.parametrize(
    ("classes", "first_stages"), [(2, ("apgd-ce", "fab")), (3, ("apgd-ce", "fab")), (5, ("apgd-ce", "apgd-t"))]
)
def test_each_row_says_what_broke_it_and_the_model_agrees(classes, first_stages):
    model = network(classes)
    x, y, index = batch(model)
    attack = AutoAttack(ThreatModel(0.03), classes)
    assert attack.stages[:2] == first_stages
    found = rows(model, attack, (x, y, index))
    broken_by, wrong = found["autoattack_broken_by"], found["autoattack_pred"] != y.numpy()
    assert set(broken_by[:4]) == {"clean"}
    assert set(broken_by[4:].compressed()) <= set(attack.stages)
    assert np.array_equal(np.ma.getmaskarray(broken_by), ~wrong)
    assert 0 < wrong.sum() < len(x)


def test_the_verdicts_do_not_depend_on_the_batch_an_example_rides_in():
    model = network(4)
    x, y, index = batch(model)
    attack = AutoAttack(ThreatModel(0.03), 4, seed=3)
    whole = rows(model, attack, (x, y, index))
    parts = [rows(model, attack, (x[s], y[s], index[s])) for s in (slice(0, 7), slice(7, 8), slice(8, 40))]
    for column, values in whole.items():
        joined = np.ma.concatenate([part[column] for part in parts])
        assert np.ma.allequal(joined, values) if values.dtype != object else list(joined) == list(values)


def test_the_global_generator_is_left_as_it_was():
    model = network(4)
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    rows(model, AutoAttack(ThreatModel(0.03), 4), batch(model, n=8))
    assert torch.equal(torch.rand(3), expected)


def test_a_success_that_the_original_model_does_not_show_does_not_count():
    model, other = network(4), network(4)
    with torch.no_grad():
        other[3].weight.copy_(model[3].weight.roll(1, 0))  # the attacked copy answers with shifted classes
    x, y, index = batch(model, wrong=0)
    found = rows(model, AutoAttack(ThreatModel(1e-6), 4), (x, y, index), prepared=other)
    assert (found["autoattack_pred"] == y.numpy()).all()
    assert np.ma.getmaskarray(found["autoattack_broken_by"]).all()


def test_every_adversarial_input_is_inside_the_threat_model():
    model = network(4)
    x, y, index = batch(model)
    threat_model = ThreatModel(0.03)
    seen = []

    def verify(a, original, labels):
        seen.append(threat_model.contains(a, original))
        return (model(a).argmax(1) != labels) & seen[-1]

    proposal = AutoAttack(threat_model, 4)(model, x, y, index, verify=verify, tick=lambda _: None)
    assert threat_model.contains(proposal.adversarial, x).all()
    assert all(inside.all() for inside in seen)


def test_progress_adds_up_to_the_promised_cost():
    model, ticks = network(4), []
    x, y, index = batch(model)
    attack = AutoAttack(ThreatModel(0.01), 4)
    run_attack(attack, model, model, (x, y, index), num_classes=4, tick=ticks.append)
    assert sum(ticks) == pytest.approx(attack.cost * len(x))


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100])
def test_targets_are_capped_at_the_other_classes(classes, monkeypatch):
    monkeypatch.undo()
    assert AutoAttack(ThreatModel(0.03), classes).parameters()["targets"] == min(9, classes - 1)


@pytest.mark.parametrize("stage", ["apgd-ce", "apgd-t", "fab-t"])
def test_each_gradient_stage_alone_breaks_what_pgd_does(stage, monkeypatch):
    monkeypatch.setattr(module, "MAX_TARGETS", 9)
    model = network(5)
    x, y, index = batch(model, wrong=0)
    threat = ThreatModel(0.03)
    attack = AutoAttack(threat, 5)
    found = [attack_once(model, attack._batch(x, y, index)) for name, _, attack_once in attack._plan() if name == stage]
    assert len(found) == (1 if stage == "apgd-ce" else 4), "a run for each other class"
    broken = torch.stack([(model(f).argmax(1) != y) & threat.contains(f, x) for f in found]).any(0)
    plain = model(pgd(model, x, y, epsilon=0.03, step=0.0075, steps=20).last).argmax(1) != y
    assert 0 < plain.sum() < len(x)
    assert (broken | ~plain).all()
