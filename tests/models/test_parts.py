"""A network computed in parts: what it computes whole, on whatever number of threads."""

import multiprocessing
import threading

import pytest
import torch
from torch import Tensor, nn

from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.folding import Folded
from fairbench.models.parts import InParts, in_parts
from fairbench.models.prepare import prepare


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Wide(nn.Module):
    """A convolution with batch norm, and a head; ``mixes``: each example sees the mean of all."""

    def __init__(self, mixes: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.mixes = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), mixes
        self.second, self.head = nn.Conv2d(32, 32, 3, stride=2), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.norm(self.conv(x)).relu()).mean((2, 3))
        return self.head(x - x.mean(0) if self.mixes else x)


def network(**options) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = Folded(Wide(**options)).module
    return made.to(memory_format=torch.channels_last)


def batch(count: int) -> Tensor:
    x = torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    return x.contiguous(memory_format=torch.channels_last)


def value_and_gradient(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_()
    out = module(x)
    (gradient,) = torch.autograd.grad(out.cos().sum(), x)
    return out.detach(), gradient


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 100, 129, 256])
def test_values_and_gradients_are_those_of_the_whole_batch(count, threads):
    module, x = network(), batch(count)
    torch.set_num_threads(1)
    expected = value_and_gradient(module, x)
    torch.set_num_threads(threads)
    found = value_and_gradient(InParts(module), x)
    assert [t.shape for t in found] == [t.shape for t in expected]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(InParts(module)(x), found[0])


@pytest.mark.parametrize("count", [64, 100, 129])
def test_the_number_of_threads_changes_no_bit(count):
    parted, x = InParts(network()), batch(count)
    torch.set_num_threads(1)
    one = value_and_gradient(parted, x)
    for threads in (2, 4):
        torch.set_num_threads(threads)
        assert all(map(torch.equal, value_and_gradient(parted, x), one))


def test_a_gradient_may_be_asked_of_one_pass_again():
    module, x = network(), batch(80).requires_grad_()
    logits = InParts(module)(x)
    for column in range(3):
        (found,) = torch.autograd.grad(logits[:, column].sum(), x, retain_graph=True)
        (expected,) = torch.autograd.grad(module(x)[:, column].sum(), x)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_no_graph_is_kept(context):
    torch.set_num_threads(2)
    with context():
        assert not InParts(network())(batch(64).requires_grad_(context is torch.no_grad)).requires_grad


def test_threads_elsewhere_keep_their_number():
    """The threads of parts use fewer each; those that others start afterwards must not."""
    torch.set_num_threads(3)
    InParts(network())(batch(128))
    seen = []
    other = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert (torch.get_num_threads(), seen) == (3, [3])


@pytest.mark.parametrize(("threads", "each"), [(1, 1), (2, 1), (4, 1), (8, 2)])
def test_parts_share_the_threads_of_the_caller(threads, each):
    seen = []

    class Watched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = (x.repeat(1, 100, 8, 8).exp() / 2).log().mean((1, 2, 3))[:, None]  # large enough to be shared
            seen.append(torch.get_num_threads())
            return x

    torch.set_num_threads(threads)
    InParts(Watched())(batch(128))
    assert seen == [each] * 4


def test_what_a_part_raises_is_raised():
    torch.set_num_threads(2)
    with pytest.raises(RuntimeError, match="size"):
        InParts(network())(torch.rand(64, 3, 1, 1))


def _in_child(queue) -> None:
    torch.set_num_threads(2)
    queue.put(len(InParts(network())(batch(64))))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own():
    torch.set_num_threads(2)
    InParts(network())(batch(64))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60) == 64
    finally:
        child.kill()
        child.join()


class Counting(Wide):
    """Keeps something of each pass, and cannot be traced."""

    seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += int(x.sum() > 0)
        return super().forward(x)


@pytest.mark.parametrize(
    "module", [Folded(Counting()).module, Wide(), network(mixes=True)], ids=["state", "untraced", "mixes"]
)
def test_a_network_that_may_not_be_cut_is_left_alone(module):
    x = batch(4)
    assert in_parts(module.eval(), x) is module


def test_an_attack_ready_copy_of_a_wide_network_is_computed_in_parts():
    torch.manual_seed(0)
    module = ARCHITECTURES["resnet18"].build(num_classes=10).eval()
    x = torch.rand(64, 3, 32, 32)
    prepared = prepare(module, x[:4])
    assert isinstance(prepared.module, InParts)
    assert prepared.warning is None
    with torch.no_grad():
        torch.testing.assert_close(prepared.module(x), module(x), rtol=1e-3, atol=1e-4)
