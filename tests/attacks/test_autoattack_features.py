"""AutoAttack on features: each ball is attacked as if it were an image, whatever its size, range and fixed features."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairbench.attacks import ThreatModel
from fairbench.attacks import autoattack as module
from fairbench.attacks.autoattack import AutoAttack
from fairbench.attacks.base import UNBOUNDED, Space, run_attack
from fairbench.attacks.fab import fab
from fairbench.attacks.square import square
from fairbench.attacks.unit_ball import RADIUS, UnitBall

WEIGHTS = torch.tensor([1.0, -0.5, 0.25, 0.0, 2.0, -1.0, 0.5])
EPSILON = 10.0
ROOM = Space(torch.full((7,), -30.0), torch.full((7,), 30.0))
FIXED = Space(-math.inf, math.inf, torch.tensor([True, False, True, True, False, True, True]))
SPACES = {"unbounded": UNBOUNDED, "in a range": ROOM, "some fixed": FIXED}


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    monkeypatch.setattr(module, "ITERATIONS", 20)
    monkeypatch.setattr(module, "QUERIES", 300)


def linear() -> nn.Module:
    """Two classes, whose logits are -w.x / 2 and w.x / 2."""
    model = nn.Linear(7, 2)
    model.weight.data = torch.stack((-WEIGHTS / 2, WEIGHTS / 2))
    model.bias.data.zero_()
    return model.eval().requires_grad_(False)


def examples(n: int = 200) -> tuple[Tensor, Tensor]:
    """Rows of which the sign of w.x is the class; a third of them lie outside the range of ROOM in some feature."""
    x = 25 * torch.randn(n, 7, generator=torch.Generator().manual_seed(3))
    return x, (x @ WEIGHTS > 0).long()


def reach(space: Space, x: Tensor, y: Tensor) -> Tensor:
    """Return the largest change of w.x against the label: exactly what can be broken."""
    low, high = space.bounds(x, EPSILON)
    sign = torch.where(y == 1, -1.0, 1.0)[:, None]
    direction = sign * WEIGHTS
    return (direction.abs() * torch.where(direction > 0, high - x, x - low)).sum(1)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_of_a_linear_model_exactly_what_can_be_broken_is(space: Space) -> None:
    model, (x, y) = linear(), examples()
    margin = (x @ WEIGHTS).abs()
    certain = (margin - reach(space, x, y)).abs() > 1e-3  # not within rounding of the border
    attack = AutoAttack(ThreatModel(EPSILON, space), 2)
    found = run_attack(attack, model, model, (x, y, np.arange(len(x))), num_classes=2, tick=lambda _: None)
    broken = torch.from_numpy(np.asarray(found["autoattack_pred"]) != y.numpy())
    assert torch.equal(broken[certain], (margin < reach(space, x, y))[certain])
    assert 20 < int(broken.sum()) < 180
    assert set(found["autoattack_broken_by"].compressed()) <= {"apgd-ce", "fab"}  # a sure label has no gradient


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("stage", ["fab", "square"])
def test_a_stage_alone_stays_in_the_ball_and_breaks_what_is_easily_broken(space: Space, stage: str) -> None:
    model, (x, y) = linear(), examples()
    threat_model = ThreatModel(EPSILON, space)
    ball = UnitBall(threat_model, x)
    if stage == "fab":
        z = fab(ball.model(model), ball.centre, y, iterations=20)
    else:
        stripes = torch.rand(len(x), 1, 1, 4, generator=torch.Generator().manual_seed(0)).sub(0.5).sign()
        of_rows = lambda rows: ball.model(model, rows)  # noqa: E731
        z = square(of_rows, ball.centre, y, epsilon=RADIUS, queries=2000, stripes=stripes, seed=0)
    found = ball.inputs(z)
    assert threat_model.contains(found, x).all()
    if space is FIXED:
        assert torch.equal(found[:, ~FIXED.free], x[:, ~FIXED.free])
    broken = model(found).argmax(1) != y
    margin, most = (x @ WEIGHTS).abs(), reach(space, x, y)
    assert broken[margin < 0.9 * most].all()
    assert not broken[margin > 1.001 * most].any()


def test_an_image_laid_out_as_features_gives_the_same_verdicts() -> None:
    """Where the box does not bind, the ball of an image is the same search, but for rounding."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(36, 24), nn.Tanh(), nn.Linear(24, 2))
    with torch.no_grad():
        net[2].weight.mul_(30)
    net.eval().requires_grad_(False)
    x = 0.2 + 0.6 * torch.rand(60, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    y, index = net(x.flatten(1)).argmax(1), np.arange(60)
    found = []
    for inputs, model, space in (
        (x, nn.Sequential(nn.Flatten(), net), Space()),
        (x.flatten(1), net, UNBOUNDED),
    ):
        attack = AutoAttack(ThreatModel(0.1, space), 2)
        rows = run_attack(attack, model, model, (inputs, y, index), num_classes=2, tick=lambda _: None)
        found.append(np.asarray(rows["autoattack_pred"]) != y.numpy())
    assert np.array_equal(*found)
    assert 5 < found[0].sum() < 55


def test_a_million_is_attacked_like_one() -> None:
    """Adult has weights of a million beside zeros and ones: the radius is small next to the first alone."""
    model = linear()
    shift = torch.tensor([1.5e6, 0, 0, 2.0e5, 0, 0, 0])
    model.bias.data = torch.tensor([0.5, -0.5]) * float(shift @ WEIGHTS)
    x, y = examples()
    far = (x + shift).round()
    y = model(far).argmax(1)
    attack = AutoAttack(ThreatModel(EPSILON, UNBOUNDED), 2)
    found = run_attack(attack, model, model, (far, y, np.arange(len(x))), num_classes=2, tick=lambda _: None)
    broken = np.asarray(found["autoattack_pred"]) != y.numpy()
    margin, most = model(far).diff()[:, 0].abs(), reach(UNBOUNDED, far, y)
    sure = (margin - most).abs() > 1  # float32 of a million
    assert np.array_equal(broken[sure.numpy()], (margin < most)[sure].numpy())


def test_a_feature_that_may_not_change_has_no_gradient_and_no_rounding() -> None:
    x, _ = examples(3)
    ball = UnitBall(ThreatModel(EPSILON, FIXED), x)
    z = ball.centre.clone().requires_grad_()
    inputs = ball.inputs(z)
    assert torch.equal(inputs[:, ~FIXED.free], x[:, ~FIXED.free])
    assert torch.allclose(inputs, x, atol=1e-5)
    inputs.sum().backward()
    moved = z.grad[:, 0, :3, :3].flatten(1)
    assert torch.allclose(moved[:, :7], 2 * EPSILON * FIXED.free.float().expand(3, 7), atol=1e-4)
    assert int((z.grad != 0).sum()) == 3 * int(FIXED.free.sum())


def test_corners_of_a_ball_lie_in_the_range_and_keep_their_gradient():
    low, high = torch.linspace(-3.577, -0.1, 50), torch.linspace(2.305, 9.7, 50)
    x = torch.rand(64, 50, generator=torch.Generator().manual_seed(0)) * (high - low) + low
    ball = UnitBall(ThreatModel(10.0, space=Space(low, high)), x)
    corners = torch.ones_like(ball.centre).requires_grad_()
    for z in (corners, torch.zeros_like(corners)):
        found = ball.inputs(z)
        assert bool(((found >= low) & (found <= high)).all())
    ball.inputs(corners).sum().backward()
    assert int((corners.grad[:, 0, :-1, :-1].flatten(1)[:, :50] > 0).sum()) == 64 * 50
