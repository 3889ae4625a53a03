"""What may be folded, and that nothing else is: a copy must compute what the network does, whatever it was given."""

import threading

import pytest
import torch
from torch import Tensor, nn

from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.folding import Folded
from fairbench.models.layout import settle_layout
from fairbench.models.winograd import WinogradConv2d
from fairbench.training.attack_copy import AttackCopy


class Plain(nn.Module):
    """A convolution, its batch norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.n, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)
        with torch.no_grad():
            for tensor in (self.n.running_mean, self.n.running_var, self.n.weight, self.n.bias):
                tensor.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.n(self.c(x)).relu().mean((2, 3)))


class HookOnRoot(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_forward_pre_hook(lambda _module, args: ((args[0] - 0.5) / 0.2,))


class HookOnConvolution(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.c.register_forward_hook(lambda _module, _args, out: 2 * out)


class HookOnNorm(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.n.register_forward_pre_hook(lambda _module, args: (args[0] + 1,))


class ReadsTheWeight(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.c.weight.mean()


class PlainTensor(Plain):
    """An attribute that is no buffer: the trace makes it one."""

    def __init__(self) -> None:
        super().__init__()
        self.m = torch.full((1, 3, 1, 1), 0.4)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - self.m)


class NewTensor(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - torch.tensor([0.5]))


KINDS = [Plain, HookOnRoot, HookOnConvolution, HookOnNorm, ReadsTheWeight, PlainTensor, NewTensor]


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_computes_what_the_network_does_and_follows_it(kind, x):
    torch.manual_seed(0)
    module = kind().eval()
    copied = Folded(module)
    assert bool(copied.pairs) == (kind is Plain)
    torch.testing.assert_close(copied.module(x), module(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        module.c.weight.mul_(1.5)
    copied.refresh()
    torch.testing.assert_close(copied.module(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_attacks_the_network_that_it_trains(kind, precision, x):
    torch.manual_seed(0)
    module, said = kind(), []
    attacked = AttackCopy(module, x, precision, warn=said.append)
    attacked.now()
    told = precision == "bf16" and kind in (PlainTensor, NewTensor)  # tensors that stay float32
    assert any("attacked in float32" in text for text in said) == told == bool(said)
    with torch.no_grad():
        module.c.weight.mul_(1.5)
        off = (attacked.now()(x) - module.eval()(x)).abs().max()
    assert off < (1e-5 if precision == "32" else 0.1)


class InPlace(Plain):
    """Trains well, and cannot be attacked."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.clamp_(0, 1))


def test_what_cannot_be_attacked_is_no_failure_of_the_copy(x):
    said: list[str] = []
    attacked = AttackCopy(InPlace(), x, warn=said.append)
    assert said == []  # nothing is done before somebody attacks
    with torch.no_grad():
        assert attacked.now()(x.clone()).shape == (4, 4)


def test_rounding_of_a_gpu_is_no_disagreement(x, monkeypatch):
    """TF32 keeps 10 bits of each factor."""
    conv2d = torch.nn.functional.conv2d

    def rounded(t: Tensor) -> Tensor:
        return t + (t.half().float() - t).detach()

    def tf32(x: Tensor, weight: Tensor, *more: object, **named: object) -> Tensor:
        return conv2d(rounded(x), rounded(weight), *more, **named)

    monkeypatch.setattr(torch.nn.functional, "conv2d", tf32)
    torch.manual_seed(0)
    said: list[str] = []
    module = ARCHITECTURES["resnet18"].build(num_classes=10)
    AttackCopy(module, torch.rand(8, 3, 32, 32), warn=said.append).now()
    assert said == []


@pytest.mark.parametrize(("batch_size", "layers"), [(32, 0), (64, 6)])
def test_kernels_are_transformed_for_large_batches_alone(batch_size, layers):
    x = torch.rand(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    copied = AttackCopy(ARCHITECTURES["resnet18"].build(num_classes=10), x, batch_size=batch_size).now()
    assert sum(isinstance(m, WinogradConv2d) for m in copied.modules()) == layers


class Counting(Plain):
    """What tracing takes for a constant is not."""

    factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * Counting.factor


def test_a_copy_that_disagrees_is_not_attacked_and_that_is_said(x, monkeypatch):
    refresh = Folded.refresh

    def later(copied: Folded) -> None:
        refresh(copied)
        monkeypatch.setattr(Counting, "factor", 3.0)

    monkeypatch.setattr(Folded, "refresh", later)
    module, said = Counting(), []
    attacked = AttackCopy(module, x, warn=said.append)
    attacked.now()
    assert said == ["the attack-ready copy disagreed with the network: a plain copy is attacked."]
    torch.testing.assert_close(attacked.now()(x), module.eval()(x))


def test_other_threads_go_on_while_one_traces():
    """The tracer's refusals are for the forward pass that is traced."""
    failed, stop = [], threading.Event()

    def other() -> None:
        while not stop.is_set():
            try:
                with torch.no_grad(), torch.set_grad_enabled(False):
                    pass
            except TypeError as error:
                failed.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        pairs = [Folded(Plain()).pairs for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert all(pairs)


def test_threads_may_trace_at_once():
    folded: list[Folded] = []
    threads = [threading.Thread(target=lambda: folded.append(Folded(Plain()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bool(one.pairs) for one in folded] == [True] * 4
    with torch.no_grad():
        assert not torch.ones(1, requires_grad=True).mul(2).requires_grad


class Wide5d(nn.Module):
    """Channels-last is for four dimensions; this network has a tensor of five."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(32, 32, 3)
        self.register_buffer("anchor", torch.zeros(1, 1, 1, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + self.anchor.sum()


def test_a_network_with_tensors_of_five_dimensions_keeps_its_layout():
    module, x = Wide5d(), torch.rand(2, 32, 8, 8)
    layout, found = settle_layout(module, x)
    assert layout == torch.contiguous_format
    assert torch.equal(found, module(x).detach())
    assert module.conv.weight.is_contiguous()


def test_shared_weights_are_not_folded_into_each_other():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.c1, self.c2 = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
            self.c2.weight = self.c1.weight
            self.b1, self.b2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.b2(self.c2(self.b1(self.c1(x))))

    torch.manual_seed(0)
    model = Tied()
    for norm in (model.b1, model.b2):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.rand(2, 4, 8, 8)
    with torch.no_grad():
        assert torch.allclose(Folded(model.eval()).module(x), model(x), atol=1e-5)


@pytest.mark.parametrize("name", ["resnet18", "preact_resnet18"])
def test_the_folded_copy_has_the_gradients_of_the_original(name):
    torch.manual_seed(0)
    model = ARCHITECTURES[name].build().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    x = torch.rand(4, 3, 16, 16)
    gradients = []
    for candidate in (model, Folded(model).module):
        inputs = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(candidate(inputs).square().sum(), inputs)
        gradients.append(gradient)
    assert torch.allclose(*gradients, rtol=1e-3, atol=1e-5 * float(gradients[0].abs().max()))
