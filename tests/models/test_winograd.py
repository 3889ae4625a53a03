"""Winograd's convolution: what torch computes in float64, and its gradient, a digit short of float32 rounding."""

import copy
import pickle

import pytest
import torch
from made_tensors import normal, value_and_gradient
from torch import Tensor, nn

from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.prepare import frozen, prepare
from fairbench.models.winograd import WinogradConv2d, convolve, use_winograd

CLOSE = {"rtol": 0.0, "atol": 1e-4}
"""Of values whose standard deviation is about 1."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def layer(inside: int = 256, outside: int = 256, **options) -> nn.Conv2d:
    torch.manual_seed(1)
    made = nn.Conv2d(inside, outside, 3, padding=1, **options).requires_grad_(False)
    made.weight.copy_(normal(*made.weight.shape) / (3 * inside**0.5))
    return made.to(memory_format=torch.channels_last)


def batch(*shape: int) -> Tensor:
    return normal(*shape, seed=2).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("inside", "outside", "shape"),
    [(256, 256, (3, 32, 32)), (256, 288, (5, 16, 8)), (288, 256, (33, 8, 8)), (300, 270, (130, 4, 4))],
)
def test_value_and_gradient_are_those_of_the_convolution(inside, outside, shape, bias):
    exact = layer(inside, outside, bias=bias)
    fast = copy.deepcopy(exact)
    assert use_winograd(fast) == ("",)
    x = batch(shape[0], inside, *shape[1:])
    found = value_and_gradient(fast, x)
    for ours, theirs in zip(found, value_and_gradient(exact.double(), x.double()), strict=True):
        assert ours.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(ours.double(), theirs, **CLOSE)
    with torch.no_grad():
        assert torch.equal(fast(x), found[0])


@pytest.mark.parametrize(
    "x",
    [
        batch(2, 256, 30, 32),  # a side that tiles do not fill
        batch(15, 256, 4, 4),  # too few tiles
        batch(0, 256, 8, 8),
        normal(2, 256, 16, 16),  # rows after rows
        batch(2, 256, 16, 16).double(),
        normal(256, 16, 16),  # one image without a batch
    ],
    ids=["side", "few", "none", "layout", "double", "unbatched"],
)
def test_elsewhere_the_layer_computes_as_it_did(x):
    plain = layer().to(x.dtype)
    fast = copy.deepcopy(plain)
    use_winograd(fast)
    for ours, theirs in zip(value_and_gradient(fast, x), value_and_gradient(plain, x), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("channels", [64, 256, 512])
def test_the_number_of_threads_changes_no_bit(channels):
    fast = layer(channels, 256)
    use_winograd(fast)
    x = batch(16, channels, 16, 16)
    one = value_and_gradient(fast, x)
    torch.set_num_threads(2)
    for ours, theirs in zip(value_and_gradient(copy.deepcopy(fast), x), one, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(256, 255, 3, padding=1),
        nn.Conv2d(255, 256, 3, padding=1),
        nn.Conv2d(256, 256, 3),
        nn.Conv2d(256, 256, 3, padding="same"),
        nn.Conv2d(256, 256, 3, padding=1, stride=2),
        nn.Conv2d(256, 256, 3, padding=2, dilation=2),
        nn.Conv2d(256, 256, 3, padding=1, groups=2),
        nn.Conv2d(256, 256, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(256, 256, 1),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.Linear(256, 256),
    ],
    ids=str,
)
def test_other_layers_are_left_alone(other):
    before = type(other)
    assert use_winograd(nn.Sequential(other)) == ()
    assert type(other) is before


def test_a_copy_does_not_carry_the_matrices():
    fast = layer()
    use_winograd(fast)
    x = batch(2, 256, 16, 16)
    expected = value_and_gradient(fast, x)
    assert len(fast.__dict__["_kept"]) == 2
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert "_kept" not in copied.__dict__
        assert all(map(torch.equal, value_and_gradient(copied, x), expected))
    assert list(fast.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18"])
def test_a_network_of_wide_layers_is_attacked_through_it(name):
    torch.manual_seed(0)
    module = ARCHITECTURES[name].build(num_classes=10).eval()
    x = torch.rand(16, 3, 32, 32)
    prepared = prepare(module, x[:4])
    assert prepared.warning is None
    wide = [m for m in prepared.module.modules() if isinstance(m, WinogradConv2d)]
    assert len(wide) == 6  # those of 256 and 512 channels in and out, but for stride 2
    assert not any(isinstance(m, WinogradConv2d) for m in module.modules())
    ours, theirs = (value_and_gradient(m, x)[1] for m in (prepared.module, frozen(module)))
    assert (ours - theirs).norm() < 5e-3 * theirs.norm()  # a ReLU at its kink may fall to either side


def test_no_example_sees_another():
    """A batch in chunks gives each image what it gets alone."""
    fast = layer()
    use_winograd(fast)
    x = batch(7, 256, 16, 16)
    alone = torch.cat([convolve(x[i : i + 1], fast.products(), fast.bias) for i in range(7)])
    torch.testing.assert_close(convolve(x, fast.products(), fast.bias), alone, **CLOSE)


def test_matrices_follow_the_weights():
    fast, x = layer(), batch(2, 256, 16, 16)
    use_winograd(fast)
    value_and_gradient(fast, x)
    fast.weight.neg_()
    value, gradient = value_and_gradient(fast, x)
    expected = layer().requires_grad_(False)
    expected.weight.neg_()
    theirs = value_and_gradient(expected, x)
    torch.testing.assert_close(value, theirs[0], **CLOSE)
    torch.testing.assert_close(gradient, theirs[1], **CLOSE)
