"""The kernels for small layers: what torch computes in float64, and its gradient, to float32 rounding."""

import copy

import pytest
import torch
from made_tensors import normal, value_and_gradient
from torch import Tensor, nn

from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.folding import Folded
from fairbench.models.kernels import use_fast_kernels

QUALIFYING: list[tuple[str, nn.Module, tuple[int, ...]]] = [
    ("grey", nn.Conv2d(1, 6, 5), (3, 1, 32, 32)),
    ("grey, padded", nn.Conv2d(1, 4, 3, padding=1), (2, 1, 28, 28)),
    ("colour", nn.Conv2d(3, 5, 3, padding=1, bias=False), (2, 3, 10, 14)),
    ("two channels, oblong kernel", nn.Conv2d(2, 5, (3, 5), padding=(0, 2)), (2, 2, 8, 6)),
    ("side not divisible", nn.Conv2d(3, 5, 3), (2, 3, 9, 9)),
    ("padding as wide as the kernel", nn.Conv2d(1, 2, 1, padding=1), (2, 1, 8, 8)),
    ("kernel as large as its input", nn.Conv2d(16, 12, 5), (3, 16, 5, 5)),
    ("oblong input", nn.Conv2d(4, 12, (2, 3), bias=False), (3, 4, 2, 3)),
    ("one image", nn.Conv2d(1, 6, 5), (1, 1, 32, 32)),
    ("unbatched", nn.Conv2d(1, 6, 5), (1, 32, 32)),
    ("pooling", nn.AvgPool2d(2), (3, 4, 8, 6)),
    ("pooling, odd side", nn.AvgPool2d(2, stride=2), (3, 4, 7, 6)),
    ("largest", nn.MaxPool2d(2), (3, 4, 8, 6)),
    ("largest, odd side", nn.MaxPool2d((2, 2), stride=2), (3, 4, 7, 6)),
    ("largest, the size it has", nn.AdaptiveMaxPool2d(4), (3, 4, 4, 4)),
    ("largest, another size", nn.AdaptiveMaxPool2d((4, 3)), (3, 4, 8, 6)),
    ("tanh", nn.Tanh(), (4, 50)),
    ("no rows", nn.Tanh(), (0, 50)),
]

OTHERS: list[nn.Module] = [
    nn.Conv2d(1, 6, 5, stride=2),
    nn.Conv2d(2, 6, 3, groups=2),
    nn.Conv2d(1, 6, 3, dilation=2),
    nn.Conv2d(1, 6, 3, padding="same"),
    nn.Conv2d(1, 6, 3, padding=1, padding_mode="reflect"),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.Conv2d(64, 64, 1),
    nn.AvgPool2d(3),
    nn.AvgPool2d(2, stride=1),
    nn.AvgPool2d(2, padding=1),
    nn.AvgPool2d(2, divisor_override=3),
    nn.MaxPool2d(3),
    nn.MaxPool2d(2, stride=1),
    nn.MaxPool2d(2, padding=1),
    nn.MaxPool2d(2, return_indices=True),
    nn.AdaptiveMaxPool2d(4, return_indices=True),
    nn.ReLU(),
]


def fast(module: nn.Module) -> nn.Module:
    copied = copy.deepcopy(module).eval().requires_grad_(False)
    use_fast_kernels(copied)
    return copied


@pytest.mark.parametrize(("layer", "shape"), [q[1:] for q in QUALIFYING], ids=[q[0] for q in QUALIFYING])
@pytest.mark.parametrize("channels_last", [False, True])
def test_value_and_gradient_are_those_of_float64(layer: nn.Module, shape: tuple[int, ...], channels_last: bool) -> None:
    x = 3 * normal(*shape)
    if channels_last and x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    changed = fast(layer)
    assert type(changed) is not type(layer)
    expected = value_and_gradient(copy.deepcopy(layer).double(), x.double())
    for found, right in zip(value_and_gradient(changed, x), expected, strict=True):
        assert found.shape == right.shape
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(changed(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", OTHERS, ids=str)
def test_a_layer_that_does_not_qualify_stays(layer: nn.Module) -> None:
    assert use_fast_kernels(layer) == ()


def test_a_subclass_with_a_forward_of_its_own_stays() -> None:
    class Doubled(nn.Tanh):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    module = nn.Sequential(Doubled(), nn.Tanh())
    assert use_fast_kernels(module) == ("1",)
    assert torch.equal(module[0](torch.ones(3)), 2 * torch.ones(3).tanh())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype_is_computed_as_before(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2)).to(dtype)
    x = normal(2, 1, 12, 12).to(dtype)
    for found, right in zip(value_and_gradient(fast(module), x), value_and_gradient(module, x), strict=True):
        assert torch.equal(found, right)


def test_the_copy_follows_the_weights_as_they_move() -> None:
    torch.manual_seed(0)
    original = ARCHITECTURES["lenet5"].build(num_classes=5, in_channels=1).eval()
    folded = Folded(original)
    assert use_fast_kernels(folded.module)
    assert folded.module.state_dict().keys() == original.state_dict().keys()
    x = torch.rand(2, 1, 32, 32)
    before = value_and_gradient(folded.module, x)[1]
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.add_(0.05)
    folded.refresh()
    after = value_and_gradient(folded.module, x)[1]
    assert not torch.allclose(after, before, atol=1e-4)
    torch.testing.assert_close(after, value_and_gradient(original, x)[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_of_equal_pixels_the_first_has_the_gradient_as_in_torch(memory: torch.memory_format) -> None:
    x = torch.randint(0, 3, (5, 4, 8, 6), generator=torch.Generator().manual_seed(0)).float()
    x = x.contiguous(memory_format=memory)
    found, expected = (value_and_gradient(module, x) for module in (fast(nn.MaxPool2d(2)), nn.MaxPool2d(2)))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("pooling", [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(8)], ids=repr)
def test_the_layer_behind_a_pooling_may_write_into_what_it_returns(pooling):
    x = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    fast = nn.Sequential(copy.deepcopy(pooling), nn.ReLU(inplace=True))
    use_fast_kernels(fast)
    before = found.detach().clone()
    fast(found * 1).square().sum().backward()
    nn.Sequential(pooling, nn.ReLU())(expected).square().sum().backward()
    torch.testing.assert_close(found.grad, expected.grad)
    assert torch.equal(found.detach(), before)
