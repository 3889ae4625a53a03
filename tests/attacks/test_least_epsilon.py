"""Least epsilon: exact for a linear model, the same by both searches, honest about what withstands."""

import numpy as np
import pytest
from linear_models import linear, run

from fairbench import load_dataset, load_model
from fairbench.attacks.base import ThreatModel
from fairbench.attacks.least_epsilon import LeastEpsilon
from fairbench.evaluation import Protocol

RESOLUTION = 1 / 255


@pytest.mark.parametrize("search", ["bisect", "scan"])
def test_for_a_linear_model_it_is_margin_over_l1_norm(search, grey):
    model = linear()
    logits = model(grey)
    y = logits.argmax(1)
    y[::10] = 1 - y[::10]  # these are wrong without attack
    weight = model[1].weight
    exact = (logits[:, 0] - logits[:, 1]).abs() / (weight[0] - weight[1]).abs().sum()
    attack = LeastEpsilon(ThreatModel(32 / 255), RESOLUTION, search=search)
    found, _ = run(attack, model, grey, y)
    epsilon, censored = found["least-epsilon_epsilon"], found["least-epsilon_censored"]
    wrong = np.arange(200) % 10 == 0
    assert (epsilon[wrong] == 0).all()
    assert not censored[wrong].any()
    on_grid = np.ceil(exact.numpy() * 255 - 1e-4) / 255
    right = ~wrong & ~censored
    assert right.sum() > 100
    assert np.allclose(epsilon[right], on_grid[right], atol=1e-6)
    assert (exact.numpy()[censored] > 32 / 255 - 1e-6).all()
    assert np.isnan(epsilon[censored]).all()


def test_what_no_radius_breaks_is_flagged_and_not_called_broken(grey):
    model = linear()
    y = model(grey).argmax(1)
    found, _ = run(LeastEpsilon(ThreatModel(1 / 255), RESOLUTION), model, grey, y)
    assert np.array_equal(found["least-epsilon_censored"], found["least-epsilon_pred"] == y.numpy())
    assert np.array_equal(np.isnan(found["least-epsilon_epsilon"]), found["least-epsilon_censored"])
    assert 0 < found["least-epsilon_censored"].sum() < 200


@pytest.mark.parametrize(("largest", "resolution", "levels"), [(8 / 255, 1 / 255, 8), (0.1, 0.03, 4), (0.01, 0.5, 1)])
def test_the_radii_end_at_the_largest(largest, resolution, levels):
    attack = LeastEpsilon(ThreatModel(largest), resolution)
    assert attack.levels == levels
    assert attack.radius(np.array([0, levels])).tolist() == [0, largest]


def least(model, x, y):
    """Return the least epsilons by scan and by bisect; what withstands is one step beyond the largest."""
    found = {}
    for search in ("scan", "bisect"):
        attack = LeastEpsilon(ThreatModel(32 / 255), RESOLUTION, search=search)
        results, _ = run(attack, model.eval().requires_grad_(False), x, y)
        found[search] = np.nan_to_num(results["least-epsilon_epsilon"], nan=33 / 255)
    return found


@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("bat_lenet5_fashion_mnist", 25),
        *(pytest.param(f"{m}_lenet5_fashion_mnist", 5, marks=pytest.mark.slow) for m in ("pgd_at", "standard")),
    ],
)
def test_bisect_finds_what_scan_finds(name, every):
    """On 40 images, and on 200 where there is time."""
    data = load_dataset("fashion_mnist", "sample").resized(32, 32).subset(np.arange(0, 1000, every))
    x, y, _ = data.batch(slice(None))
    found = least(load_model(name).module, x, y)
    assert np.mean(np.abs(found["scan"] - found["bisect"]) <= RESOLUTION + 1e-6) >= 0.995


def test_features_are_scanned_under_either_name():
    """There what breaks at one radius often withstands a larger one."""
    for attack in ("least-epsilon", "least-epsilon-scan"):
        chosen = Protocol.named("sooksatra2022", attacks=(attack,), max_epsilon=20.0, resolution=5.0)
        (built,) = chosen.build_attacks(2)
        assert built.parameters()["search"] == "scan"
    (built,) = Protocol.named("standard", attacks=("least-epsilon",)).build_attacks(10)
    assert built.parameters()["search"] == "bisect"


def test_a_reported_radius_holds_a_verified_adversarial_example(grey):
    model = linear(3, classes=4)
    y = model(grey).argmax(1)
    attack = LeastEpsilon(ThreatModel(16 / 255), RESOLUTION)
    kept = {}

    def verify(candidates, x, labels):
        wrong = model(candidates).argmax(1) != labels
        for row, image in enumerate(candidates):
            if wrong[row]:
                kept.setdefault(x[row].sum().item(), []).append((image - x[row]).abs().max().item())
        return wrong

    proposal = attack(model, grey, y, np.arange(200), verify=verify, tick=lambda _: None)
    for image, epsilon in zip(grey, proposal.extras["epsilon"], strict=True):
        if np.isfinite(epsilon) and epsilon > 0:
            assert min(kept[image.sum().item()]) <= epsilon + 1e-6


def test_an_example_does_not_depend_on_its_batch(grey):
    model = linear(4, classes=4)
    y = model(grey).argmax(1)
    attack = LeastEpsilon(ThreatModel(16 / 255), RESOLUTION)
    whole, _ = run(attack, model, grey, y)
    halves = [run(attack, model, grey[s], y[s], np.arange(200)[s])[0] for s in (slice(0, 77), slice(77, 200))]
    joined = np.concatenate([half["least-epsilon_epsilon"] for half in halves])
    assert np.array_equal(joined, whole["least-epsilon_epsilon"], equal_nan=True)


def test_the_progress_adds_up(grey):
    model = linear()
    y = model(grey).argmax(1)
    attack = LeastEpsilon(ThreatModel(16 / 255), RESOLUTION)
    assert run(attack, model, grey, y)[1] == pytest.approx(attack.cost * 200)
