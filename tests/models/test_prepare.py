"""The attack-ready copy: the same function, frozen and faster, or the original where that cannot be had."""

import pytest
import torch
from torch import Tensor, nn

from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.architectures.mlp import MLP
from fairbench.models.base import Normalize
from fairbench.models.prepare import prepare


def with_statistics(module: nn.Module) -> nn.Module:
    """Give batch norms statistics and weights as training leaves them, not the identity."""
    generator = torch.Generator().manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor, low, high in (
                (layer.running_mean, -1, 1),
                (layer.running_var, 0.3, 3),
                (layer.weight.data, 0.5, 2),
                (layer.bias.data, -1, 1),
            ):
                assert tensor is not None
                tensor.copy_(torch.empty_like(tensor).uniform_(low, high, generator=generator))
    return module


class ConvNormDense(nn.Module):
    """The smallest network with something to fold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return with_statistics(ARCHITECTURES[name].build(num_classes=5, in_channels=3))


def norms(module: nn.Module) -> int:
    return sum(isinstance(layer, nn.BatchNorm2d) for layer in module.modules())


def probe(size: int) -> Tensor:
    return torch.rand(4, 3, size, size, generator=torch.Generator().manual_seed(1))


PROBE = probe(12)


@pytest.mark.parametrize(
    ("name", "normalised"),
    [("lenet5", False), ("small_cnn", True), ("resnet18", True), ("preact_resnet18", False)],
)
def test_the_copy_says_what_the_original_says(name: str, normalised: bool) -> None:
    module = build(name)
    if normalised:
        module = nn.Sequential(Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)), module)
    x = probe(32 if name == "lenet5" else 12)
    prepared = prepare(module.eval(), x)
    assert prepared.warning is None
    with torch.no_grad():
        expected, found = module(x), prepared.module(x)
    assert (expected - found).abs().max() <= 1e-4 * expected.std()


def test_the_copys_gradients_are_the_originals() -> None:
    module = with_statistics(ConvNormDense()).eval()
    gradients = []
    for network in (module, prepare(module, PROBE).module):
        x = PROBE.clone().requires_grad_()
        gradients.append(torch.autograd.grad(network(x).logsumexp(1).sum(), x)[0])
    assert (gradients[0] - gradients[1]).abs().max() <= 1e-3 * gradients[0].abs().max()


def test_batch_norm_after_a_convolution_is_gone_and_the_steps_say_so() -> None:
    prepared = prepare(build("resnet18"), PROBE)
    assert norms(prepared.module) == 0
    assert prepared.steps == ("eval", "frozen", "batch norm folded", "fast kernels", "channels-last")


def test_what_does_not_apply_is_not_claimed() -> None:
    prepared = prepare(nn.Sequential(nn.Flatten(), nn.Linear(432, 3)), PROBE)
    assert prepared.steps == ("eval", "frozen")
    assert prepare(build("small_cnn"), PROBE).steps == ("eval", "frozen", "fast kernels", "channels-last")
    assert prepare(build("lenet5"), probe(32)).steps == ("eval", "frozen", "fast kernels")  # too narrow to gain


@pytest.mark.parametrize("name", ["mlp", "small_cnn", "conv, norm, dense"])
def test_the_copy_is_frozen_and_the_original_is_not_touched(name: str) -> None:
    module = {
        "mlp": lambda: MLP(num_classes=3, shape=(3, 12, 12)),
        "small_cnn": lambda: build("small_cnn"),
        "conv, norm, dense": lambda: with_statistics(ConvNormDense()),
    }[name]()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    prepared = prepare(module.train(), PROBE)
    assert not prepared.module.training
    assert not any(parameter.requires_grad for parameter in prepared.module.parameters())
    assert not any(layer.training for layer in prepared.module.modules() if not list(layer.children()))
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert module.training
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


class DataDependent(ConvNormDense):
    """Decides by the values of its input, which a tracer cannot follow."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(1 - x if x.mean() > 0.9 else x)


class SharedConvolution(nn.Module):
    """Uses one convolution twice, before two batch norms: both cannot be folded into it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.first = nn.BatchNorm2d(4)
        self.second = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.first(self.conv(x)) + self.second(self.conv(1 - x))).mean((2, 3)))


class TensorsOnly(ConvNormDense):
    """Normalises what is a tensor; a tracer hands it something else, and its copy would leave that out."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x - 0.5) / 0.25 if isinstance(x, Tensor) else x)


def test_a_model_that_cannot_be_traced_is_attacked_as_it_is() -> None:
    module = with_statistics(DataDependent()).eval()
    prepared = prepare(module, PROBE)
    assert prepared.warning is None
    assert "batch norm folded" not in prepared.steps
    for x in (PROBE, 0.95 + 0.05 * PROBE):  # both branches are alive
        assert torch.allclose(prepared.module(x), module(x), atol=1e-5)
    assert not any(parameter.requires_grad for parameter in prepared.module.parameters())


def test_a_convolution_that_two_batch_norms_share_stays_right() -> None:
    module = with_statistics(SharedConvolution()).eval()
    assert torch.allclose(prepare(module, PROBE).module(PROBE), module(PROBE), atol=1e-4)


class _Rounded(torch.autograd.Function):
    """Rounds, and passes the gradient on."""

    @staticmethod
    def forward(ctx, x):
        return (x * 255).round() / 255

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class StraightThrough(nn.Module):
    """A copy in which the gradient is lost, as tracing loses it, would withstand every attack."""

    def __init__(self) -> None:
        super().__init__()
        self.body = ConvNormDense()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(_Rounded.apply(x))


class Steadied(StraightThrough):
    """Divides by a mean that it takes no gradient through: a copy would have another gradient."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.mean((1, 2, 3), keepdim=True)
        return self.body(x / scale)


class Switched(StraightThrough):
    """The same by a switch."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(False):
            scale = x.mean((1, 2, 3), keepdim=True)
        return self.body(x / scale)


class Hooked(StraightThrough):
    """Scales its gradient by a hook, which tracing would lose."""

    def __init__(self) -> None:
        super().__init__()
        self.body.register_full_backward_hook(_halve)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def _halve(module: nn.Module, inwards: tuple[Tensor, ...], outwards: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inwards[0] / 2,)


def gradient(module: nn.Module) -> Tensor:
    x = PROBE.clone().requires_grad_()
    module(x).logsumexp(1).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    return x.grad


@pytest.mark.parametrize("kind", [StraightThrough, Steadied, Switched, Hooked])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gradient_of_the_models_own_making_is_kept(kind: type[nn.Module], precision: str) -> None:
    module = with_statistics(kind()).eval()
    prepared = prepare(module, PROBE, precision)
    assert "disagreed" not in (prepared.warning or "")
    expected, found = gradient(module), gradient(prepared.module)
    assert (found - expected).norm() <= (1e-6 if precision == "fp32" else 0.3) * expected.norm()


def test_what_tracing_refuses_is_allowed_again_after_it() -> None:
    prepare(with_statistics(Steadied()).eval(), PROBE)
    x = PROBE.clone().requires_grad_()
    with torch.no_grad():
        assert not (2 * x).requires_grad
    with torch.set_grad_enabled(False):
        assert not (2 * x).requires_grad
    assert torch.equal(_Rounded.apply(x), (x * 255).round() / 255)


class Rounded(nn.Module):
    """Rounds its input: nothing passes a gradient back, in the copy either."""

    def __init__(self) -> None:
        super().__init__()
        self.body = ConvNormDense()

    def forward(self, x: Tensor) -> Tensor:
        return self.body((x * 255).detach().round() / 255)


def test_a_model_without_gradients_is_prepared_like_another() -> None:
    prepared = prepare(with_statistics(Rounded()).eval(), PROBE)
    assert prepared.warning is None
    assert "batch norm folded" in prepared.steps


def test_a_copy_that_disagrees_is_not_used_and_a_warning_says_so() -> None:
    module = with_statistics(TensorsOnly()).eval()
    prepared = prepare(module, PROBE)
    assert prepared.warning is not None
    assert "disagreed with the model on a probe batch" in prepared.warning
    assert prepared.steps == ("eval", "frozen")
    assert torch.equal(prepared.module(PROBE), module(PROBE))
    assert not any(parameter.requires_grad for parameter in prepared.module.parameters())


class FailsTraced(nn.Module):
    """Answers as it is; a copy of it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 5, 3)
        self.copies = 0

    def __deepcopy__(self, memo: dict[int, object]) -> "FailsTraced":
        made = FailsTraced()
        made.copies = self.copies + 1
        return made

    def forward(self, x: Tensor) -> Tensor:
        if self.copies > 1:
            raise ValueError("not this one")
        return self.inner(x).mean((2, 3))


def test_a_copy_that_fails_leaves_the_model_to_be_attacked():
    prepared = prepare(FailsTraced(), torch.rand(4, 3, 8, 8))
    assert prepared.steps == ("eval", "frozen")
    assert "the attack-ready copy fails (" in str(prepared.warning)
    assert prepared.module(torch.rand(2, 3, 8, 8)).shape == (2, 5)
