"""The inner maximisation, on a linear model where the optimal L-inf perturbation is epsilon * sign(w)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairbench.attacks import ThreatModel, pgd
from fairbench.attacks.base import run_attack
from fairbench.attacks.pgd import PGDAttack


def linear(weights: torch.Tensor, bias: torch.Tensor) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(weights.shape[1], weights.shape[0]))
    with torch.no_grad():
        model[1].weight.copy_(weights)
        model[1].bias.copy_(bias)
    return model.requires_grad_(False)


@pytest.fixture
def problem():
    """A two-class linear model whose boundary runs through the middle of the box, and 400 inputs well inside it."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, 12, generator=generator)
    x = 0.3 + 0.4 * torch.rand(400, 3, 2, 2, generator=generator)
    difference = weights[0] - weights[1]
    bias = torch.tensor([-float(difference @ torch.full((12,), 0.5)), 0.0])
    model = linear(weights, bias)
    y = model(x).argmax(1)
    margin = (model(x)[:, 0] - model(x)[:, 1]).abs()
    return model, x, y, margin, float(difference.abs().sum())


@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("init", ["none", "uniform", "gaussian"])
@pytest.mark.parametrize("stop", [None, "misclassified"])
@pytest.mark.parametrize("loss", ["ce", "cw"])
def test_breaks_exactly_the_examples_whose_margin_is_at_most_epsilon_times_the_l1_norm(
    problem, epsilon, init, stop, loss
):
    model, x, y, margin, l1 = problem
    result = pgd(model, x, y, epsilon=epsilon, step=epsilon / 4, steps=12, init=init, stop=stop, loss=loss)
    broken = model(result.last).argmax(1) != y
    reachable = margin <= epsilon * l1
    sure = (margin - epsilon * l1).abs() > 1e-5 * l1  # leave out ties at float32
    assert reachable.any()
    assert not reachable.all()
    assert torch.equal(broken[sure], reachable[sure])
    if stop is None:
        best = x - epsilon * torch.sign((model[1].weight[0] - model[1].weight[1]).view(3, 2, 2)) * (1 - 2 * y).view(
            -1, 1, 1, 1
        )
        assert torch.allclose(result.last, best, atol=1e-6)


@pytest.mark.parametrize("loss", ["ce", "kl", "cw"])
def test_stays_in_the_ball_and_in_the_box_with_one_radius_and_step_an_example(problem, loss):
    model, x, y, _, _ = problem
    epsilon = torch.linspace(0, 0.5, len(x))
    found = pgd(model, x, y, epsilon=epsilon, step=epsilon / 2, steps=5, loss=loss).last
    distance = (found - x).abs().flatten(1).amax(1)
    assert (distance <= epsilon + 1e-6).all()
    assert (distance[1:] > 0).all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_the_kl_loss_moves_away_from_the_clean_prediction_and_not_from_the_label(problem):
    model, x, y, _, _ = problem
    by_label = pgd(model, x, 1 - y, epsilon=0.05, step=0.05, steps=1, init="none", loss="ce").last
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    by_kl = pgd(model, x, 1 - y, epsilon=0.05, step=0.05, steps=2, init="gaussian", noise=noise, loss="kl").last
    clean = model(x).softmax(1)
    confidence = [model(found).softmax(1).gather(1, y[:, None]).mean() for found in (x, by_label, by_kl)]
    assert confidence[1] > confidence[0]
    assert (model(by_kl).softmax(1) - clean).abs().mean() > 0.01


@pytest.mark.parametrize("stop", [None, "misclassified"])
def test_the_margin_climbs_where_the_cross_entropy_is_flat(problem, stop):
    model, x, y, margin, l1 = problem
    sure = linear(1e4 * model[1].weight, 1e4 * model[1].bias)  # the same decisions, at softmaxes of exactly 0 and 1
    near = (1e4 * margin > 200) & (margin < 0.05 * l1)  # flat, and within reach
    assert near.sum() > 20
    broken = {}
    for loss in ("ce", "cw"):
        found = pgd(sure, x, y, epsilon=0.05, step=0.0125, steps=12, init="none", loss=loss, stop=stop).last
        broken[loss] = sure(found).argmax(1) != y
    assert not broken["ce"][near].any()
    assert broken["cw"][near].all()


def test_the_margin_is_to_the_nearest_of_all_other_classes():
    model = linear(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, -0.5, 0.0]))
    x, y = torch.tensor([[0.5, 0.5]]).view(1, 1, 1, 2), torch.tensor([0])
    moved = pgd(model, x, y, epsilon=0.25, step=0.125, steps=1, init="none", loss="cw").last - x
    assert moved.flatten().tolist() == [0.0, 0.125]  # towards class 2 at 0.5, not class 1 at 0


def test_zero_steps_return_the_start(problem):
    model, x, y, _, _ = problem
    noise = torch.rand_like(x) * 2 - 1
    result = pgd(model, x, y, epsilon=0.1, step=0.1, steps=0, noise=noise)
    assert torch.equal(result.last, (x + 0.1 * noise).clamp(0, 1).clamp(x - 0.1, x + 0.1))


class Recorder(nn.Module):
    """A model that remembers how many examples each call had."""

    def __init__(self, model):
        super().__init__()
        self.model, self.sizes = model, []

    def forward(self, x):
        self.sizes.append(len(x))
        return self.model(x)


def by_hand(model, x, y, *, epsilon, step, steps):
    """One example at a time: the iterates, the first wrong one, the last right one before it, steps from right ones."""
    iterates = [x]
    for _ in range(steps):
        current = iterates[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(current), y), current)
        moved = current.detach() + step * gradient.sign()
        iterates.append(torch.minimum(torch.maximum(moved, x - epsilon), x + epsilon).clamp(0, 1))
    wrong = [bool(model(iterate).argmax(1) != y) for iterate in iterates]
    first = wrong.index(True) if any(wrong) else None
    return iterates, first


@pytest.mark.parametrize("tau", [0, 1, 3])
def test_stopping_finds_the_same_points_as_one_example_at_a_time(problem, tau):
    model, x, y, _, _ = problem
    x, y = x[:60], y[:60].clone()
    y[:5] = 1 - y[:5]  # wrong from the start
    options = {"epsilon": 0.06, "step": 0.01, "steps": 7}
    recorder = Recorder(model)
    result = pgd(recorder, x, y, init="none", stop="misclassified", tau=tau, **options)
    for i in range(len(x)):
        iterates, first = by_hand(model, x[i : i + 1], y[i : i + 1], **options)
        end = 7 if first is None else min(first + tau, 7)
        assert bool(result.broken[i]) == (first is not None)
        assert torch.allclose(result.last[i], iterates[end][0], atol=1e-6)
        assert torch.allclose(result.first_wrong[i], iterates[7 if first is None else first][0], atol=1e-6)
        last_right = 7 if first is None else max(first - 1, 0)
        assert torch.allclose(result.last_right[i], iterates[last_right][0], atol=1e-6)
        assert int(result.steps_right[i]) == (7 if first is None else first)
    assert recorder.sizes[0] == 60
    assert recorder.sizes[-1] < 60, "finished examples leave the batch"


@settings(deadline=None, max_examples=30, derandomize=True)
@given(
    epsilon=st.floats(1e-3, 1.0), step=st.floats(1e-3, 1.0), steps=st.integers(1, 4), seed=st.integers(0, 2**62)
)  # fmt: skip
def test_the_attack_never_leaves_its_threat_model(epsilon, step, steps, seed):
    model = linear(torch.eye(3, 12), torch.zeros(3))
    x = torch.rand(5, 3, 2, 2, generator=torch.Generator().manual_seed(seed % 2**32))
    attack = PGDAttack(ThreatModel(epsilon), step, steps, seed=seed)
    y = model(x).argmax(1)
    found = attack(model, x, y, np.arange(5), verify=lambda a, *_: model(a).argmax(1) != y, tick=lambda _: None)
    assert attack.threat_model.contains(found.adversarial, x).all()


def wobbly(scale: float = 40.0) -> nn.Module:
    """A model whose loss surface has many maxima, so that starts and restarts matter."""

    class Wobbly(nn.Module):
        def forward(self, x):
            flat = x.flatten(1)
            return torch.stack([torch.sin(scale * flat).sum(1) + 1.0, torch.zeros(len(x))], 1)

    return Wobbly()


def run(attack, model, x, y, index=None):
    index = np.arange(len(x)) if index is None else index

    def verify(a, _x, labels):
        return model(a).argmax(1) != labels

    return attack(model, x, y, index, verify=verify, tick=lambda _: None)


def test_the_start_depends_on_seed_and_index_and_not_on_the_batch():
    x, model = torch.rand(20, 1, 3, 3, generator=torch.Generator().manual_seed(0)), wobbly()
    y = model(x).argmax(1)
    attack = PGDAttack(ThreatModel(0.05), 0.01, steps=3, seed=7)
    whole = run(attack, model, x, y).adversarial
    order = np.random.default_rng(0).permutation(20)
    shuffled = run(attack, model, x[order], y[order], order).adversarial
    assert torch.equal(whole[order], shuffled)
    other_seed = run(PGDAttack(ThreatModel(0.05), 0.01, steps=3, seed=8), model, x, y).adversarial
    assert not torch.equal(whole, other_seed)


def test_more_restarts_break_at_least_as_many_examples_and_never_change_a_broken_one():
    x, model = torch.rand(300, 1, 3, 3, generator=torch.Generator().manual_seed(3)), wobbly()
    y = model(x).argmax(1)
    broken, found = {}, {}
    for restarts in (1, 2, 5):
        attack = PGDAttack(ThreatModel(0.015), 0.005, steps=1, restarts=restarts)
        found[restarts] = run(attack, model, x, y).adversarial
        broken[restarts] = model(found[restarts]).argmax(1) != y
    assert broken[1].sum() < broken[2].sum() < broken[5].sum()
    assert (broken[5] | ~broken[2]).all()
    assert torch.equal(found[1][broken[1]], found[5][broken[1]])


def test_scoring_any_iterate_breaks_at_least_what_scoring_the_last_does():
    x, model = torch.rand(300, 1, 3, 3, generator=torch.Generator().manual_seed(4)), wobbly()
    y = model(x).argmax(1)
    broken = {}
    for score in ("last", "any"):
        attack = PGDAttack(ThreatModel(0.06), 0.03, steps=4, score=score)
        columns = run_attack(attack, model, model, (x, y, np.arange(300)), num_classes=2, tick=lambda _: None)
        broken[score] = columns["pgd4_pred"] != y.numpy()
        at = columns["pgd4_broken_at"]
        assert (np.ma.getmaskarray(at) <= ~broken[score]).all(), "what is broken has a step"
        if score == "any":
            assert np.array_equal(~np.ma.getmaskarray(at), broken["any"])
        assert at.compressed().min() >= 0
        assert at.compressed().max() <= 4
    assert broken["any"].sum() > broken["last"].sum()
    assert (broken["any"] | ~broken["last"]).all()


@pytest.mark.parametrize(("shape", "classes"), [((1, 5, 9), 2), ((3, 4, 4), 3), ((3, 8, 6), 100)])
def test_any_shape_and_class_count(shape, classes):
    size = int(np.prod(shape))
    model = linear(torch.randn(classes, size, generator=torch.Generator().manual_seed(0)), torch.zeros(classes))
    x = torch.rand(6, *shape, generator=torch.Generator().manual_seed(1))
    y = model(x).argmax(1)
    found = run(PGDAttack(ThreatModel(0.6), 0.15, steps=5), model, x, y).adversarial
    assert (model(found).argmax(1) != y).all()
