"""The copy in bfloat16: its gradient is coarse, its labels are float32's wherever rounding could decide them."""

import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairbench.models import bfloat16 as bfloat16_module
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.architectures.mlp import MLP
from fairbench.models.bfloat16 import Bfloat16
from fairbench.models.layout import is_narrow
from fairbench.models.prepare import frozen, prepare


def network(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if name == "mlp":
        return MLP(num_classes=5, in_features=12, width=16), torch.randn(16, 12)
    return ARCHITECTURES[name].build(num_classes=10, in_channels=3).eval(), torch.rand(8, 3, 32, 32)


def gradient(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(module(x), y, reduction="sum"), x)[0]


class Fixed(nn.Module):
    """A linear map, and the inputs it was asked about."""

    def __init__(self, weight: list[list[float]]) -> None:
        super().__init__()
        self.weight, self.asked = torch.tensor(weight), 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += len(x)
        return x @ self.weight


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_the_gradient_is_the_float32_one_but_for_rounding(name: str) -> None:
    module, x = network(name)
    prepared = prepare(module, x, "bf16")
    assert isinstance(prepared.module, Bfloat16)
    assert "bfloat16" in prepared.steps
    y = torch.zeros(len(x), dtype=torch.int64)
    exact, coarse = gradient(frozen(module), x, y).flatten(1), gradient(prepared.module, x, y).flatten(1)
    assert coarse.dtype == torch.float32
    assert F.cosine_similarity(exact, coarse, dim=1).min() > 0.9
    assert not torch.equal(exact, coarse)


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_labels_are_those_of_float32_also_where_classes_are_almost_even(name: str) -> None:
    module, x = network(name)
    half = prepare(module, x, "bf16").module
    assert isinstance(half, Bfloat16)
    with torch.no_grad():
        for scale in (1.0, 0.01):  # the second brings all inputs to one another, and logits close to even ones
            mixed = x * scale
            exact, rounded = module(mixed), half.rounded(mixed)
            assert not torch.equal(exact, rounded)
            assert torch.equal(half(mixed).argmax(1), exact.argmax(1))


def test_only_almost_even_examples_are_asked_again_and_keep_the_coarse_gradient() -> None:
    rounded, exact = Fixed([[1.0, 0.0], [0.0, 1.0]]), Fixed([[3.0, 0.0], [0.0, 2.0]])
    half = Bfloat16(rounded, exact, reach=0.3)
    x = torch.tensor([[1.0, 0.9], [1.0, 0.0]], requires_grad=True)
    logits = half(x)
    assert logits.tolist() == [[1.0, pytest.approx(0.9)], [1.0, 0.0]], "the gap is 1.4 deviations of two logits"
    half.reach = 2.0
    assert half(x).tolist() == [[3.0, pytest.approx(1.8)], [3.0, 0.0]]
    wide = torch.tensor([[1.0, 0.9, 0.0], [1.0, 0.0, 0.0]], requires_grad=True)
    half = Bfloat16(Fixed(torch.eye(3).tolist()), asked := Fixed((2 * torch.eye(3)).tolist()), reach=0.3)
    logits = half(wide)
    assert logits.tolist() == [[2.0, pytest.approx(1.8), 0.0], [1.0, 0.0, 0.0]]
    assert asked.asked == 1
    assert torch.autograd.grad(logits.sum(), wide)[0].tolist() == [[1.0] * 3] * 2, "the gradient of the rounded copy"


def test_a_network_that_cannot_compute_in_bfloat16_is_attacked_in_float32_and_a_warning_says_so() -> None:
    class Demands(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 5)

        def forward(self, x: Tensor) -> Tensor:
            if self.layer.weight.dtype != torch.float32 or x.dtype != torch.float32:
                raise TypeError("float32 only")
            return self.layer(x)

    prepared = prepare(Demands(), torch.randn(4, 12), "bf16")
    assert prepared.warning is not None
    assert "gradients are float32" in prepared.warning
    assert not isinstance(prepared.module, Bfloat16)


def test_narrow_networks_are_told_from_wide_and_from_dense_ones() -> None:
    transformer = nn.Sequential(nn.Conv2d(3, 192, 4, stride=4), nn.Flatten(2), nn.Linear(64, 64), nn.Linear(192, 384))
    assert [is_narrow(m) for m in (network("lenet5")[0], network("small_cnn")[0], network("mlp")[0], transformer)] == [
        True,
        False,
        False,
        False,
    ]


def test_a_machine_without_the_instructions_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = network("mlp")
    monkeypatch.setattr(bfloat16_module, "computes_in_bfloat16", lambda _device: False)
    prepared = prepare(module, x, "bf16")
    assert isinstance(prepared.module, Bfloat16)
    assert prepared.warning is not None
    assert prepared.warning.startswith("this cpu has no bf16 instructions: bf16 is emulated, and many times slower")


def test_the_copy_travels_to_another_process_and_the_original_stays() -> None:
    module, x = network("small_cnn")
    before = {key: value.clone() for key, value in module.state_dict().items()}
    half = prepare(module, x, "bf16").module
    with torch.no_grad():
        assert torch.equal(pickle.loads(pickle.dumps(half))(x), half(x))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert {p.dtype for p in module.parameters()} == {torch.float32}
