"""The maths of every loss, against a reference written out in float64 on a tiny network."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.attacks import pgd
from fairbench.errors import RecipeError
from fairbench.training.data import TrainingData
from fairbench.training.method import ClassErrors, Context, Method
from fairbench.training.methods import METHODS
from fairbench.training.methods.dafa import distance_weights
from fairbench.training.methods.frl import FRL, class_weights
from fairbench.training.methods.gairat import geometry_weights
from fairbench.training.methods.refrl_held_out import violation_weights
from fairbench.training.recent import RecentErrors

CLASSES = 4


@pytest.fixture
def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    with torch.no_grad():
        model[3].weight.mul_(6)
        model[3].bias.sub_(model(torch.rand(4000, 3, 2, 2)).mean(0))  # so that every class is predicted
    return model


@pytest.fixture
def batch(network):
    pool = torch.rand(4000, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    predicted = network(pool).argmax(1)
    rows = torch.cat([(predicted == c).nonzero()[:10, 0] for c in range(CLASSES)])
    x = pool[rows[torch.randperm(40, generator=torch.Generator().manual_seed(2))]]
    y = network(x).argmax(1)
    y[:4] = (y[:4] + 1) % CLASSES  # misclassified from the start
    return x, y


def ready(method: Method, seed: int = 3) -> Method:
    """Set a method up with a generator of its own and the network itself as the copy that is attacked."""
    generator = torch.Generator().manual_seed(seed)
    method.setup(Context(CLASSES, torch.device("cpu"), generator, lambda model: model))
    method.start_epoch(0, 0.0)
    return method


def build(name, variant=None, **options) -> Method:
    return ready(METHODS[name].configured(options, variant))


def value(loss):
    return float(loss.detach())


def softmax(logits):
    z = logits.detach().double().numpy()
    z = np.exp(z - z.max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


def cross_entropy(logits, y):
    return -np.log(softmax(logits)[np.arange(len(y)), y.numpy()])


def kl(p, q):
    return (p * np.log(p / q)).sum(1)


def gaussian(x, seed=3):
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))


def uniform(x, seed=3):
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_standard_is_the_mean_cross_entropy(network, batch):
    x, y = batch
    assert value(build("standard").loss(network, x, y)) == pytest.approx(cross_entropy(network(x), y).mean(), rel=1e-5)


def test_pgd_at_is_the_cross_entropy_on_the_last_iterate(network, batch):
    x, y = batch
    last = pgd(network, x, y, epsilon=8 / 255, step=2 / 255, steps=10, noise=uniform(x)).last
    found = value(build("pgd_at").loss(network, x, y))
    assert found == pytest.approx(cross_entropy(network(last), y).mean(), rel=1e-5)
    assert found > cross_entropy(network(x), y).mean()


@pytest.mark.parametrize("beta", [1.0, 6.0])
def test_trades_adds_beta_times_the_kl_of_the_clean_from_the_attacked_prediction(network, batch, beta):
    x, y = batch
    options = {"epsilon": 0.2, "step": 0.05, "steps": 4}
    last = pgd(network, x, y, loss="kl", init="gaussian", noise=gaussian(x), **options).last
    p, q = softmax(network(x)), softmax(network(last))
    expected = cross_entropy(network(x), y).mean() + beta * kl(p, q).mean()
    found = value(build("trades", beta=beta, **options).loss(network, x, y))
    assert found == pytest.approx(expected, rel=1e-4)
    other_way = cross_entropy(network(x), y).mean() + beta * kl(q, p).mean()
    assert abs(found - other_way) > 1e-3, "the direction matters here"


def boundary_points(network, x, y, *, epsilon, step, steps, slack=0):
    """Algorithm 1 of sun2023 by hand, one example at a time; the iterates of all come from one noise draw."""
    start = (x + 0.001 * gaussian(x)).clamp(0, 1)
    clean, adversarial = [], []
    for i in range(len(x)):
        origin, label = x[i : i + 1], int(y[i])
        target = network(origin).softmax(1).detach()
        iterates = [start[i : i + 1]]
        for _ in range(steps):
            current = iterates[-1].clone().requires_grad_()
            loss = (target * (target.log() - network(current).log_softmax(1))).sum()
            (gradient,) = torch.autograd.grad(loss, current)
            moved = current.detach() + step * gradient.sign()
            iterates.append(torch.clamp(moved, (origin - epsilon).clamp(min=0), (origin + epsilon).clamp(max=1)))
        wrong = [int(network(iterate).argmax(1)) != label for iterate in iterates]
        if wrong[0]:
            clean.append(origin), adversarial.append(origin)
        elif any(wrong):
            first = wrong.index(True)
            clean.append(iterates[first - 1])
            adversarial.append(iterates[min(first + slack, steps)])
        else:
            clean.append(iterates[-1]), adversarial.append(iterates[-1])
    return torch.cat(clean), torch.cat(adversarial)


STRENGTH = {"epsilon": 0.25, "step": 0.05, "steps": 6}


@pytest.mark.parametrize("slack", [0, 1])
def test_bat_takes_the_last_correct_and_the_first_wrong_iterate(network, batch, slack):
    x, y = batch
    found = build("bat", slack=slack, **STRENGTH).boundary_points(network, x, y)
    expected = boundary_points(network, x, y, slack=slack, **STRENGTH)
    for points, by_hand in zip(found, expected, strict=True):
        assert torch.allclose(points, by_hand, atol=1e-6)
    right = network(found[0]).argmax(1) == y
    assert right[4:].all()
    assert torch.equal(found[0][:4], x[:4])


@pytest.mark.parametrize(
    ("variant", "points", "reverse"),
    [
        (None, ("clean", "adversarial"), False),
        ("authors_code", ("clean", "adversarial"), True),
        ("table2_row1", (), False),
        ("table2_row2", ("clean",), False),
        ("table2_row3", ("adversarial",), False),
        ("table2_row4", ("full",), False),
        ("table2_row5", ("clean", "adversarial"), False),
        ("table2_row6", ("clean", "adversarial"), False),
    ],
)
def test_bat_and_its_variants_add_up_as_written(network, batch, variant, points, reverse):
    x, y = batch
    method = build("bat", variant, **STRENGTH)
    clean, adversarial = boundary_points(network, x, y, slack=method.slack, **STRENGTH)
    noise = torch.Generator().manual_seed(3)
    torch.randn(x.shape, generator=noise)  # the boundary attack's draw; the full-strength one has the next
    full = pgd(network, x, y, loss="kl", init="gaussian", noise=torch.randn(x.shape, generator=noise), **STRENGTH).last
    logits = {"clean": network(clean), "adversarial": network(adversarial), "full": network(full)}
    p = softmax(network(x))
    if variant == "table2_row6":
        source = cross_entropy(network(x), y).mean() + 6 * kl(p, softmax(logits["full"])).mean()
    else:
        source = cross_entropy(logits["clean"], y).mean() + 6 * kl(p, softmax(logits["adversarial"])).mean()
    flat = np.full((1, CLASSES), 1 / CLASSES)
    target = sum((kl(softmax(logits[k]), flat) if reverse else kl(flat, softmax(logits[k]))).mean() for k in points)
    assert value(method.loss(network, x, y)) == pytest.approx(source + target, rel=1e-4)


@pytest.mark.parametrize(("progress", "tau"), [(0.0, 0), (0.41, 0), (0.42, 1), (0.74, 1), (0.76, 2)])
def test_fat_goes_tau_steps_past_the_boundary_and_tau_grows(progress, tau):
    method = build("fat")
    method.start_epoch(5, progress)
    assert method.tau == tau


@pytest.mark.parametrize(("progress", "tau"), [(0.0, 0), (0.5, 1), (0.9, 2)])
def test_fat_is_the_cross_entropy_where_it_stops(network, batch, progress, tau):
    x, y = batch
    method = build("fat", **STRENGTH)
    method.start_epoch(1, progress)
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(x.shape, generator=generator) * 2 - 1
    last = pgd(
        network, x, y, noise=noise, stop="misclassified", tau=tau, jitter=0.001, generator=generator, **STRENGTH
    ).last
    found = value(method.loss(network, x, y))
    assert found == pytest.approx(cross_entropy(network(last), y).mean(), rel=1e-5)


def test_fat_trains_on_weaker_examples_than_pgd_at(network, batch):
    x, y = batch
    friendly = value(build("fat", **STRENGTH).loss(network, x, y))
    full = value(build("pgd_at", **STRENGTH).loss(network, x, y))
    assert cross_entropy(network(x), y).mean() < friendly < full


def test_gairat_weighs_by_the_steps_an_example_withstood(network, batch):
    kappa = torch.tensor([0, 3, 10])
    by_hand = [(1 + math.tanh(-1 + 5 * (1 - 2 * k / 10))) / 2 for k in (0, 3, 10)]
    assert geometry_weights(kappa, 10, -1.0).tolist() == pytest.approx(by_hand, abs=1e-6)
    x, y = batch
    early, late = build("gairat"), build("gairat")
    late.start_epoch(9, 0.9)
    plain = value(early.loss(network, x, y))
    assert plain == pytest.approx(value(build("pgd_at", epsilon=0.031, step=0.007).loss(network, x, y)), rel=1e-6)
    assert value(late.loss(network, x, y)) != pytest.approx(plain, rel=1e-3)
    counts = torch.zeros(len(x), dtype=torch.int64)
    last = pgd(
        network,
        x,
        y,
        epsilon=0.031,
        step=0.007,
        steps=10,
        noise=uniform(x),
        on_step=lambda _k, logits: counts.add_(logits.argmax(1) == y),
    ).last
    weights = (1 + np.tanh(-1 + 5 * (1 - 2 * counts.numpy() / 10))) / 2
    expected = (weights * cross_entropy(network(last), y)).sum() / weights.sum()
    late = build("gairat")
    late.start_epoch(9, 0.9)
    assert value(late.loss(network, x, y)) == pytest.approx(expected, rel=1e-4)


def errors(std, rob, loss=None):
    std, rob = torch.tensor(std, dtype=torch.float64), torch.tensor(rob, dtype=torch.float64)
    known = torch.isfinite(std)
    loss = rob if loss is None else torch.tensor(loss, dtype=torch.float64)
    return ClassErrors(std, rob, loss, *(float(rates[known].mean()) for rates in (std, rob)))


def test_frl_moves_its_multipliers_by_the_violations():
    method = build("frl", tolerance=0.05)
    method.adapt(errors([0.30, 0.10, 0.10, 0.10], [0.50, 0.40, 0.20, 0.10]))
    std, bndy = 0.15, 0.15  # averages
    gamma0 = [0.30 - std - 0.05, 0.10 - std - 0.05, 0.10 - std - 0.05, 0.10 - std - 0.05]
    gamma1 = [0.20 - bndy - 0.05, 0.30 - bndy - 0.05, 0.10 - bndy - 0.05, 0.0 - bndy - 0.05]
    assert method.lambda0.tolist() == pytest.approx([max(0.05 * g, 0) for g in gamma0], abs=1e-7)
    assert method.lambda1.tolist() == pytest.approx([max(2 * 0.05 * g, 0) for g in gamma1], abs=1e-7)
    assert method.lambda2.tolist() == pytest.approx([0.2 * g for g in gamma1], abs=1e-7)
    expected = [min(max(math.exp(2 * 0.2 * g), 0.98), 3.0) for g in gamma1]
    assert method.margins().tolist() == pytest.approx(expected, rel=1e-6)
    weights = class_weights(method.lambda0)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] == pytest.approx(0.25 + 0.75 * 0.005, rel=1e-5)


def test_frl_scales_its_multipliers_to_half_and_leaves_absent_classes():
    method = build("frl", rate1=10.0)
    method.adapt(errors([0.9, 0.1, 0.1, float("nan")], [0.95, 0.2, 0.2, float("nan")]))
    assert float(method.lambda0.sum()) == pytest.approx(0.5)
    assert float(method.lambda1.sum()) <= 0.5
    assert method.lambda0[3] == 0
    assert method.lambda2[3] == 0


@pytest.mark.parametrize(
    ("variant", "lambda1", "lambda2"), [("reweight", True, False), ("remargin", False, True), ("both", True, True)]
)
def test_frl_variants_use_their_half(variant, lambda1, lambda2):
    method = build("frl", variant)
    method.adapt(errors([0.1, 0.1, 0.1, 0.1], [0.9, 0.2, 0.2, 0.2]))
    assert bool(method.lambda1.any()) == lambda1
    assert bool(method.lambda2.any()) == lambda2


def test_frl_loss_is_weighted_by_class_and_attacks_within_the_class_radius(network, batch):
    x, y = batch
    method = build("frl", epsilon=0.1, steps=4)
    method.lambda0, method.lambda1 = torch.tensor([0.2, 0.0, 0.0, 0.1]), torch.tensor([0.0, 0.3, 0.0, 0.0])
    method.lambda2 = torch.tensor([0.2, 0.0, -0.5, 0.4])
    radius = 0.1 * torch.exp(2 * method.lambda2).clamp(0.98, 3.0)[y]
    last = pgd(
        network,
        x,
        y,
        epsilon=radius,
        step=float(radius.max()) / 4,
        steps=4,
        loss="kl",
        init="gaussian",
        noise=gaussian(x),
    ).last
    assert ((last - x).abs().flatten(1).amax(1) <= radius + 1e-6).all()
    w0, w1 = (class_weights(m).double().numpy()[y.numpy()] for m in (method.lambda0, method.lambda1))
    ce, div = cross_entropy(network(x), y), kl(softmax(network(x)), softmax(network(last)))
    expected = (w0 * ce).sum() / w0.sum() + 1.5 * (w1 * div).sum() / w1.sum()
    assert value(method.loss(network, x, y)) == pytest.approx(expected, rel=1e-4)


def test_refrl_weights_are_a_softmax_of_the_violations():
    found = violation_weights(torch.tensor([0.4, 0.1], dtype=torch.float64), 0.25, 0.05, 5.0)
    raw = np.exp([1 + 5 * 0.1, 1 + 5 * -0.2])
    assert found.tolist() == pytest.approx((raw / raw.sum()).tolist(), rel=1e-6)


def seen(method, std, changed):
    """Let a method have seen 100 held-out images of each class, with these errors."""
    method.recent.counts[0] = 100 * torch.tensor([[1.0] * CLASSES, std, changed])
    method.adapt()
    return method


def test_recent_errors_pool_the_last_measurements_and_forget_older_ones():
    recent = RecentErrors.empty(2, 3)
    recent.add(torch.tensor([0, 0, 1]), torch.tensor([True, True, True]), torch.tensor([True, True, True]))
    recent.add(torch.tensor([0, 0, 1]), torch.tensor([True, False, False]), torch.tensor([False, False, True]))
    recent.add(torch.tensor([0, 1, 1]), torch.tensor([False, False, True]), torch.tensor([True, False, False]))
    wrong, changed = recent.shares()
    assert wrong[:2].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert changed[:2].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert torch.isnan(wrong[2])
    assert recent.averages() == pytest.approx((2 / 6, 2 / 6))


@pytest.mark.parametrize("name", ["refrl_reweight", "refrl_remargin"])
def test_refrl_methods_follow_the_errors_on_held_out_images_batch_by_batch(network, batch, name):
    x, y = batch
    method = build(name, window=3, held_out=40)
    method.context = replace(method.context, held=TrainingData(x, y))
    method.loss(network, x, y)
    assert (method.recent.place, int(method.recent.counts[:, 0].sum())) == (3, 120), "full from the first batch on"
    first = method.natural_weights.clone()
    with torch.no_grad():
        network[3].bias[0] -= 100  # class 0 is never predicted now
    for _ in range(3):
        method.loss(network, x, y)
    wrong, _ = method.recent.shares()
    assert wrong[0] == 1
    average = method.recent.averages()[0]
    assert torch.equal(method.natural_weights, violation_weights(wrong, average, 0.05, 5.0))
    assert method.natural_weights[0] > first[0]
    state = method.state()
    again = build(name, window=3, held_out=40)
    again.load_state(state)
    again.adapt()
    assert torch.equal(again.natural_weights, method.natural_weights)


def test_refrl_at_attacks_half_of_the_batch(network, batch):
    x, y = batch
    last = pgd(network, x[::2], y[::2], epsilon=8 / 255, step=2 / 255, steps=20, noise=uniform(x[::2])).last
    order = torch.cat([y[::2], y[1::2]])
    expected = cross_entropy(network(torch.cat([last, x[1::2]])), order).mean()
    assert value(build("refrl_at").loss(network, x, y)) == pytest.approx(expected, rel=1e-5)


def test_refrl_reweight_pulls_the_attacked_towards_the_clean_prediction(network, batch):
    x, y = batch
    method = seen(build("refrl_reweight"), std=[0.4, 0.1, 0.1, 0.2], changed=[0.2, 0.1, 0.1, 0.1])
    last = pgd(network, x, y, epsilon=16 / 255, step=1 / 255, steps=20, noise=uniform(x)).last
    w0, w1 = (w.double().numpy()[y.numpy()] for w in (method.natural_weights, method.boundary_weights))
    ce, change = cross_entropy(network(x), y), cross_entropy(network(last), network(x).argmax(1))
    expected = (w0 * ce).sum() / w0.sum() + (w1 * change).sum() / w1.sum()
    assert value(method.loss(network, x, y)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("variant", [None, "as_published"])
def test_refrl_remargin_scores_the_mixed_batch_against_its_labels_or_as_published(network, batch, variant):
    x, y = batch
    method = seen(build("refrl_remargin", variant), std=[0.4, 0.1, 0.1, 0.2], changed=[0.2, 0.1, 0.05, 0.0])
    radii = [8 / 255 * math.exp(10 * (c - 0.05)) for c in (0.2, 0.1, 0.05, 0.0)]
    assert method.radii.tolist() == pytest.approx(radii, rel=1e-5)
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(x[::2].shape, generator=generator) * 2 - 1
    last = pgd(network, x[::2], y[::2], epsilon=method.radii[y[::2]], step=1 / 255, steps=20, noise=noise).last
    order = torch.randperm(40, generator=generator)
    labels = y[order] if variant is None else y
    mixed = cross_entropy(network(torch.stack([last, x[1::2]], 1).flatten(0, 1)[order]), labels).mean()
    w = method.natural_weights.double().numpy()[y.numpy()]
    expected = (w * cross_entropy(network(x), y)).sum() / w.sum() + mixed
    assert value(method.loss(network, x, y)) == pytest.approx(expected, rel=1e-4)


def test_dafa_weights_move_from_easy_to_hard_classes_by_similarity():
    s = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.25, 0.15, 0.6]])
    expected = [
        1 + 0.3 * 0.8 + 0.2 * 0.6,  # class 0 is the hardest: gains from both
        1 - 0.3 * 0.8 - 0.15 * 0.8,  # class 1 is the easiest: gives to both
        1 + 0.15 * 0.8 - 0.2 * 0.6,
    ]
    assert distance_weights(s, 1.0).tolist() == pytest.approx(expected, rel=1e-6)
    assert distance_weights(s, 1.0).sum() == pytest.approx(3.0), "what one gains another gives"


def test_dafa_weighs_after_its_warm_up_and_once(network, batch):
    x, y = batch
    method = build("dafa")
    method.loss(network, x, y)
    method.end_epoch(lambda: None)
    assert (method.weights == 1).all()
    method.start_epoch(8, 0.8)
    method.loss(network, x, y)
    method.end_epoch(lambda: None)
    weights = method.weights.clone()
    assert (weights != 1).any()
    method = build("dafa")
    method.weights, method.weighted = weights, True
    found = value(method.loss(network, x, y))
    w = weights[y]
    last = pgd(
        network,
        x,
        y,
        epsilon=0.031 * w,
        step=0.007 * w,
        steps=10,
        loss="kl",
        init="gaussian",
        noise=gaussian(x),
    ).last
    clean = network(x)
    divergence = kl(softmax(clean), softmax(network(last)))
    assert found == pytest.approx((w.numpy() * cross_entropy(clean, y) + 6 * divergence).mean(), rel=1e-4)
    method.end_epoch(lambda: None)
    assert torch.equal(method.weights, weights)


def test_dafa_measures_similarity_on_attacked_examples_of_the_epoch_alone(network, batch):
    x, y = batch
    method = build("dafa")
    method.loss(network, x, y)  # of an epoch before
    method.start_epoch(8, 0.8)
    method.context.generator.manual_seed(3)
    method.loss(network, x, y)
    method.end_epoch(lambda: None)
    last = pgd(network, x, y, epsilon=0.031, step=0.007, steps=10, loss="kl", init="gaussian", noise=gaussian(x)).last
    mean = torch.stack([torch.tensor(softmax(network(last)))[y == c].mean(0) for c in range(CLASSES)])
    assert method.weights.tolist() == pytest.approx(distance_weights(mean, 1.0).tolist(), rel=1e-4)


def test_cfa_has_radii_and_weights_of_each_class(network, batch):
    x, y = batch
    method = build("cfa")
    method.factor = torch.tensor([0.5, 0.9, 1.2, 1.5])
    factor = method.factor[y]
    last = pgd(
        network, x, y, epsilon=8 / 255 * factor, step=2 / 255, steps=10, loss="kl", init="gaussian", noise=gaussian(x)
    ).last
    beta = 6 * factor.double().numpy()
    divergence = kl(softmax(network(x)), softmax(network(last)))
    expected = ((cross_entropy(network(x), y) + beta * divergence) / (1 + beta)).mean()
    assert value(method.loss(network, x, y)) == pytest.approx(expected, rel=1e-4)


def test_cfa_calibrates_by_the_robust_accuracy_of_the_epoch(network, batch):
    x, y = batch
    method = build("cfa")
    method.start_epoch(1, 0.5)
    method.loss(network, x, y)
    last = pgd(
        network, x, y, epsilon=8 / 255, step=2 / 255, steps=10, loss="kl", init="gaussian", noise=gaussian(x)
    ).last
    right = (network(last).argmax(1) == y).numpy()
    method.end_epoch(lambda: None)
    for c in range(CLASSES):
        mask = y.numpy() == c
        expected = 0.5 + right[mask].mean() if mask.any() else 1.0
        assert float(method.factor[c]) == pytest.approx(expected, rel=1e-6)
    assert method.average_decay(lambda: errors([0.1] * 4, [0.2, 0.3, 0.75, 0.1])) == 0.88
    assert method.average_decay(lambda: errors([0.1] * 4, [0.2, 0.3, 0.85, 0.1])) is None


def test_wat_raises_the_weight_of_the_class_that_loses_most():
    method = build("wat", rate=0.5)
    method.end_epoch(lambda: errors([0.1] * 4, [0.2] * 4, loss=[1.0, 2.0, 3.0, float("nan")]))
    method.end_epoch(lambda: errors([0.1] * 4, [0.2] * 4, loss=[2.0, 2.0, 2.0, 2.0]))
    raw = np.exp(0.5 * np.array([3.0, 4.0, 5.0, 4.0, 4.0]))  # both epochs; the last is the average's
    assert method.weights.tolist() == pytest.approx((4 * raw / raw.sum()).tolist(), rel=1e-5)


@pytest.mark.parametrize(("weights", "times"), [([1.0] * 5, 2.0), ([0, 0, 0, 0, 1.0], 1.0), ([2.0, 0, 0, 0, 0], None)])
def test_wat_weighs_trades_by_class_and_adds_the_average_as_one_expert_more(network, batch, weights, times):
    x, y = batch
    method = build("wat", beta=6.0)
    method.weights = torch.tensor(weights)
    clean = network(x)
    last = pgd(network, x, y, epsilon=0.031, step=0.007, steps=10, loss="kl", init="gaussian", noise=gaussian(x)).last
    terms = cross_entropy(clean, y) + 6 * kl(softmax(clean), softmax(network(last)))
    of_class_0 = 2 * terms[(y == 0).numpy()].sum() / len(x)
    expected = of_class_0 if times is None else times * terms.mean()
    assert value(method.loss(network, x, y)) == pytest.approx(expected, rel=1e-4)


def test_static_augmentation_trains_on_clean_and_frozen_adversarial_images(network, batch):
    x, y = batch
    method = build("static_augmentation", epsilon=0.05)
    method.context = replace(method.context, source=network)
    before = {k: v.clone() for k, v in network.state_dict().items()}
    found = method.training_set(TrainingData(x, y))
    assert torch.equal(found.inputs[: len(x)], x)
    assert torch.equal(found.labels, torch.cat([y, y]))
    adversarial = found.inputs[len(x) :]
    assert 0 < (adversarial - x).abs().max() <= 0.05 + 1e-6
    assert cross_entropy(network(adversarial), y).mean() > cross_entropy(network(x), y).mean()
    assert torch.equal(method.training_set(TrainingData(x, y)).inputs, found.inputs), "a resumed run has the same set"
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    assert value(method.loss(network, x, y)) == pytest.approx(cross_entropy(network(x), y).mean(), rel=1e-5)


@pytest.mark.parametrize("name", [n for n in METHODS if n != "standard"])
def test_every_method_gives_the_weights_a_gradient_and_survives_a_class_without_examples(network, batch, name):
    x, y = batch
    keep = y != 2
    method = build(name)
    loss = method.loss(network, x[keep], y[keep])
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())
    assert any(p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("name", list(METHODS))
def test_every_option_states_its_source(name):
    from dataclasses import fields

    for field in fields(METHODS[name]):
        assert field.metadata.get("source"), f"{name}.{field.name}"
    assert METHODS[name].source


@pytest.mark.parametrize(
    ("name", "options", "variant", "message"),
    [
        ("trades", {"bta": 1}, None, "no option 'bta'; it has beta, epsilon, step, steps"),
        ("trades", {"beta": "six"}, None, "beta is a float"),
        ("trades", {"steps": "1.5"}, None, "steps is a int"),
        ("bat", {}, "author_code", "Did you mean 'authors_code'"),
        ("bat", {"target": "nowhere"}, None, "target is one of"),
        ("frl", {"tolerance": 5}, None, "share in 0..1"),
        ("trades", {"beta": -1}, None, "beta -1: it must be at least 0"),
        ("wat", {"rate": "-0.1"}, None, "rate -0.1: it must be at least 0"),
        ("cfa", {"warm_up": 20}, None, "warm_up 20: it must be at most 1"),
        ("cfa", {"decay": 1.1}, None, "decay 1.1: it must be at most 1"),
        ("refrl_reweight", {"window": 0}, None, "window 0: it must be at least 1"),
        ("refrl_reweight", {"held_out": -1}, None, "held_out -1: it must be at least 1"),
        ("refrl_remargin", {"measured_epsilon": 16}, None, "measured_epsilon 16: pixels are in"),
        ("frl", {"rate1": -1}, None, "rate1 -1: it must be at least 0"),
    ],
)
def test_a_bad_option_is_one_clear_line(name, options, variant, message):
    with pytest.raises(RecipeError, match=message):
        METHODS[name].configured(options, variant)


def test_text_values_are_read():
    method = METHODS["frl"].configured(
        {"epsilon": "8/255", "tolerance": "0.07", "steps": "5", "reweight_boundary": "false"}
    )
    assert isinstance(method, FRL)
    assert (method.epsilon, method.tolerance, method.steps, method.reweight_boundary) == (8 / 255, 0.07, 5, False)
