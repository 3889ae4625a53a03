"""Least steps: exact for a linear model, censored where nothing broke, the same with and without an early leave."""

import numpy as np
import pytest
import torch
from linear_models import linear, run

from fairbench import load_dataset, load_model
from fairbench.attacks import pgd
from fairbench.attacks.base import ThreatModel
from fairbench.attacks.least_steps import LeastSteps
from fairbench.attacks.pgd import PGDAttack
from fairbench.randomness import uniform_noise

STEP = 0.4 / 255


def test_for_a_linear_model_the_steps_are_those_of_the_straight_way(grey):
    """Each step moves every pixel by the step towards the boundary until it meets the ball: the margin is known."""
    model, epsilon = linear(), 8 / 255
    logits = model(grey)
    y = logits.argmax(1)
    y[::10] = 1 - y[::10]  # these are wrong without attack
    weight = (model[1].weight[1] - model[1].weight[0]).double()
    towards = torch.where(y == 0, 1.0, -1.0)[:, None].double() * weight.sign()
    noise = torch.from_numpy(uniform_noise(0, np.arange(200), (16,))).double() * epsilon
    margin = torch.where(y == 0, 1, -1) * (logits[:, 0] - logits[:, 1]).double()
    steps = np.full(200, -1)
    for k in range(1_000, -1, -1):
        moved = torch.clamp(noise + k * STEP * towards, -epsilon, epsilon)
        wrong = (margin - moved @ weight * torch.where(y == 0, 1, -1)) < 0
        steps[wrong.numpy()] = k
    steps[::10] = 0
    found, _ = run(LeastSteps(ThreatModel(epsilon)), model, grey, y)
    at = found["least-steps_broken_at"]
    assert np.array_equal(np.ma.getmaskarray(at), steps < 0)
    assert np.array_equal(found["least-steps_censored"], steps < 0)
    assert 10 < (steps < 0).sum() < 180
    known = steps >= 0
    assert np.mean(at[known] == steps[known]) > 0.97, "float32 may shift a step at the boundary"
    assert np.abs(at[known].astype(int) - steps[known]).max() <= 1


def test_who_withstands_all_is_flagged_and_not_called_broken(grey):
    model = linear()
    y = model(grey).argmax(1)
    found, passes = run(LeastSteps(ThreatModel(4 / 255), steps=7), model, grey, y)
    assert np.array_equal(found["least-steps_censored"], found["least-steps_pred"] == y.numpy())
    assert 0 < found["least-steps_censored"].sum() < 200
    assert found["least-steps_broken_at"].max() <= 7
    assert passes == 7 * 200


def test_clean_errors_count_no_steps_and_stay_as_they_are(grey):
    model = linear()
    y = 1 - model(grey).argmax(1)
    found, _ = run(LeastSteps(ThreatModel(4 / 255)), model, grey, y)
    assert (found["least-steps_broken_at"] == 0).all()
    assert not found["least-steps_censored"].any()
    assert np.array_equal(found["least-steps_pred"], 1 - y.numpy())


def test_it_starts_where_pgd_starts_and_an_example_does_not_depend_on_its_batch(grey):
    model = linear(4, classes=4)
    y = model(grey).argmax(1)
    attack = LeastSteps(ThreatModel(8 / 255), seed=3)
    whole, _ = run(attack, model, grey, y)
    halves = [run(attack, model, grey[s], y[s], np.arange(200)[s])[0] for s in (slice(0, 77), slice(77, 200))]
    joined = np.ma.concatenate([half["least-steps_broken_at"] for half in halves])
    assert np.ma.allequal(joined, whole["least-steps_broken_at"])
    like = PGDAttack(ThreatModel(8 / 255), STEP, steps=1_000, score="any", seed=3)
    assert np.ma.allequal(run(like, model, grey, y)[0]["pgd1000_broken_at"], whole["least-steps_broken_at"])


@pytest.mark.parametrize("steps", [149, 150])
def test_who_moves_in_a_circle_may_leave_without_changing_a_result(steps):
    model = load_model("bat_lenet5_fashion_mnist").module.eval().requires_grad_(False)
    x, y, _ = load_dataset("fashion_mnist", "sample").resized(32, 32).subset(np.arange(0, 1000, 60)).batch(slice(None))
    calls = []
    model.register_forward_pre_hook(lambda _, inputs: calls.append(len(inputs[0])))
    results, passes = [], []
    for settle in (False, True):
        calls.clear()
        noise = torch.from_numpy(uniform_noise(0, np.arange(len(x)), tuple(x.shape[1:])))
        common = {"epsilon": 8 / 255, "step": STEP, "steps": steps, "noise": noise, "stop": "misclassified"}
        results.append(pgd(model, x, y, **common, settle=settle))
        passes.append(sum(calls))
    assert passes[1] < 0.9 * passes[0]
    plain, settled = results
    assert torch.equal(plain.steps_right, settled.steps_right)
    assert torch.equal(plain.broken, settled.broken)
    assert torch.equal(plain.first_wrong[plain.broken], settled.first_wrong[plain.broken])
    for name in ("last", "last_right"):
        assert torch.allclose(getattr(plain, name), getattr(settled, name), atol=1e-6), name
