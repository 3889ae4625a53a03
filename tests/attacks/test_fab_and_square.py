"""FAB and Square take the steps of the authors' code: pyautoattack's, called plainly, is the reference."""

import pytest
import torch
from pyautoattack.fab_projections import projection_linf
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import nn

from fairbench.attacks.fab import fab, project
from fairbench.attacks.square import square, window_side


def network(classes: int, channels: int = 3) -> nn.Module:
    torch.manual_seed(2)
    layers = [nn.Conv2d(channels, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 6 * 6, classes)]
    model = nn.Sequential(*layers).eval().requires_grad_(False)
    model[3].weight.mul_(4)
    return model


def examples(model: nn.Module, n: int = 30, channels: int = 3):
    x = torch.rand(n, channels, 8, 8, generator=torch.Generator().manual_seed(5))
    x[:, :, :2] = 0  # a dark border, as in Fashion-MNIST: coordinates without room on one side
    return x, model(x).argmax(1)


@pytest.mark.parametrize("reach", [0.0, 1e-3, 0.3, 5.0, 1e3])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_projection_is_that_of_the_sort(reach, sign):
    draw = torch.Generator().manual_seed(3)
    points, normal = torch.rand(50, 40, generator=draw), torch.randn(50, 40, generator=draw)
    points[:, :5], points[:, 5:10], normal[:, ::7] = 0, 1, 0
    offset = (normal * points).sum(1) + sign * reach * torch.rand(50, generator=draw)
    change = project(points, normal, offset)
    assert torch.allclose(change, projection_linf(points, normal, offset), atol=1e-6)
    assert ((points + change >= -1e-6) & (points + change <= 1 + 1e-6)).all()


def test_a_plane_without_a_normal_moves_nothing():
    points = torch.rand(3, 8)
    for offset in (torch.zeros(3), torch.ones(3)):
        change = project(points, torch.zeros(3, 8), offset)
        assert torch.equal(change, torch.zeros_like(points))


@pytest.mark.parametrize(("classes", "rank"), [(2, None), (3, None), (5, 2), (5, 4)])
def test_fab_walks_as_far_as_the_authors(classes, rank):
    model = network(classes)
    x, y = examples(model)
    theirs = FABAttack_PT(model, n_iter=20, eps=0.05, device="cpu")
    theirs.target_class = rank
    expected = theirs.attack_single_run(x, y, use_rand_start=False, is_targeted=rank is not None)
    found = fab(model, x, y, iterations=20, rank=rank)
    distances = [(z - x).flatten(1).abs().amax(1) for z in (found, expected)]
    assert torch.allclose(*distances, rtol=1e-3, atol=1e-6)
    assert (distances[0] > 0).sum() > 20
    assert torch.equal(model(found).argmax(1) != y, distances[0] > 0)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("classes", [2, 6])
def test_square_asks_and_keeps_what_the_authors_do(channels, classes):
    model = network(classes, channels)
    x, y = examples(model, channels=channels)
    stripes = (2 * torch.rand(len(x), channels, 1, 8, generator=torch.Generator().manual_seed(8)) - 1).sign()
    theirs = SquareAttack(model, n_queries=600, eps=0.03, device="cpu", resc_schedule=False)
    drawn = theirs.random_choice
    theirs.random_choice = lambda shape: stripes if len(shape) == 4 else drawn(shape)
    theirs.init_hyperparam(x)
    torch.manual_seed(4)
    expected = theirs.attack_single_run(x, y)[1]
    asked = []

    def model_counted(inputs):
        asked.append(len(inputs))
        return model(inputs)

    found = square(lambda rows: model_counted, x, y, epsilon=0.03, queries=600, stripes=stripes, seed=4)
    assert torch.equal(found, expected)
    broken = model(found).argmax(1) != y
    assert 0 < broken.sum() < len(x)
    assert asked[-1] == (~broken).sum()  # the broken are asked no more


def test_square_ends_when_all_are_broken():
    model = network(6)
    x, y = examples(model)
    asked = []

    def always_wrong(inputs):
        asked.append(len(inputs))
        return nn.functional.one_hot((y[: len(inputs)] + 1) % 6, 6).float()

    square(lambda rows: always_wrong, x, y, epsilon=0.03, queries=50, stripes=torch.ones(len(x), 3, 1, 8), seed=0)
    assert asked == [len(x)]


@pytest.mark.parametrize("query", [0, 10, 11, 50, 51, 200, 201, 501, 1001, 2001, 4001, 6001, 8001, 9999])
@pytest.mark.parametrize("side", [8, 28, 32])
def test_windows_shrink_by_the_authors_schedule(query, side):
    theirs = SquareAttack(None, n_queries=10_000, eps=0.1, resc_schedule=False)
    expected = max(round((theirs.p_selection(query) * side * side) ** 0.5), 1)
    assert window_side(query, side, side) == min(expected, side)
