"""A run is another one when anything changed that its rows depend on, however well hidden."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairbench import Protocol, evaluate, load_dataset, summarize
from fairbench.datasets import Dataset
from fairbench.evaluation import run as run_module
from fairbench.evaluation.runner import identify
from fairbench.models.base import as_model
from fairbench.models.prepare import gradient_kind
from fairbench.own_code import with_imports


@pytest.fixture
def data() -> Dataset:
    """Sorted by class, as a folder of images is."""
    labels = np.repeat(np.arange(3), 50)
    images = np.random.default_rng(0).integers(0, 200, (150, 1, 4, 4), dtype=np.uint8)
    images[:, 0, 0, 0] = 20 * labels
    return Dataset("mine", images, labels, ("a", "b", "c"))


class Linear(nn.Module):
    """Hidden in an attribute that nobody looks at: the class whose logits are swapped."""

    def __init__(self, swapped: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self._swapped = nn.Linear(16, 3), swapped

    def forward(self, x: Tensor) -> Tensor:
        logits = self.fc(x.flatten(1))
        if self._swapped is None:
            return logits
        of_it = (x[:, 0, 0, 0] * 255).round() == 20 * self._swapped
        return torch.where(of_it[:, None], logits.flip(1), logits)


@pytest.mark.parametrize("swapped", [0, 1, 2])
def test_a_model_that_differs_on_one_class_is_another_run(swapped: int, data: Dataset) -> None:
    assert identify(Linear(swapped), data, device="cpu") != identify(Linear(), data, device="cpu")


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.scale * gradient, None


class Passing(Linear):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(Turned.apply(x, self._scale))


def test_a_gradient_turned_round_is_another_run(data: Dataset) -> None:
    x, _, _ = data.batch(slice(0, 8))
    kinds = [gradient_kind(Passing(scale), x) for scale in (1.0, 1.001, -1.0, 100.0)]
    assert kinds[0] == kinds[1]
    assert kinds[0] != kinds[2]
    assert kinds[0] != kinds[3]
    assert identify(Passing(-1.0), data, device="cpu") != identify(Passing(1.0), data, device="cpu")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([], [6]),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (np.zeros(3), np.ones(3)),
        (0.5, 0.25),
    ],
)
def test_attributes_that_a_forward_pass_may_use_are_code(one: object, two: object) -> None:
    hashes = []
    for value in (one, two, one):
        module = nn.Linear(2, 2)
        module.option = value
        hashes.append(as_model(module).code_sha256)
    assert hashes[0] == hashes[2] != hashes[1]


NET = """
from torch import nn
from {home}helpers_of_mine import quantised


class Net(nn.Linear):
    def forward(self, x):
        return super().forward(quantised(x.flatten(1)))
"""


@pytest.mark.parametrize("package", ["", "package_of_mine"])
def test_what_lies_beside_a_class_of_ones_own_is_code(package: str, tmp_path, monkeypatch) -> None:
    home = tmp_path / package
    home.mkdir(exist_ok=True)
    if package:
        (home / "__init__.py").touch()
    (home / "net_of_mine.py").write_text(NET.format(home=f"{package}." if package else ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    hashes = []
    for factor in (1, 2, 1):
        (home / "helpers_of_mine.py").write_text(f"def quantised(x):\n    return {factor} * x\n")
        for name in [name for name in sys.modules if name.endswith("_of_mine") or name == "package_of_mine"]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        net = importlib.import_module(f"{package}.net_of_mine" if package else "net_of_mine").Net(2, 2)
        hashes.append(as_model(net).code_sha256)
    assert hashes[0] == hashes[2] != hashes[1]


def test_what_is_loaded_and_what_a_pass_leaves_do_not_matter(tmp_path, monkeypatch, data: Dataset) -> None:
    (tmp_path / "lazy_of_mine.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Linear):\n    def forward(self, x):\n"
        "        import late_of_mine\n\n        self.seen = late_of_mine.same(x.flatten(1))\n"
        "        return super().forward(self.seen)\n"
    )
    late = tmp_path / "late_of_mine.py"
    late.write_text("def same(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    net = importlib.import_module("lazy_of_mine").Net(16, 3)
    names = [identify(net, data, device="cpu")]
    names.append(identify(net, data, device="cpu"))
    net(torch.rand(5, 16))
    late.with_name("beside_of_mine.py").write_text("import late_of_mine\n")
    importlib.import_module("beside_of_mine")
    names.append(identify(net, data, device="cpu"))
    assert len(set(names)) == 1
    late.write_text("def same(x):\n    return x + 0\n")
    assert identify(net, data, device="cpu") != names[0]
    late.unlink()
    assert identify(net, data, device="cpu") != names[0]


def test_installed_code_is_known_by_its_version() -> None:
    for installed in (Path(nn.__file__), Path(json.__file__), Path(run_module.__file__)):
        assert with_imports(installed) == {installed}


def test_code_that_attacks_otherwise_is_another_run(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identify(Linear(), data, device="cpu")
    assert identify(Linear(), data, device="cpu") == before
    monkeypatch.setattr(run_module, "_code", lambda: "other")
    assert identify(Linear(), data, device="cpu") != before


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


STANDARD = Protocol.named("standard", steps=2)


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Shifted(nn.Module):
    """A forward that depends on a plain tensor, a list, a hook or a buffer that is not saved."""

    def __init__(self, how, shift):
        super().__init__()
        self.inner = linear()
        self.how = "any"
        self.shift = torch.tensor(0.0)
        self.settings = [0.0]
        if how == "tensor":
            self.shift = torch.tensor(shift)
        elif how == "list":
            self.settings = [shift]
        elif how == "buffer":
            del self.shift
            self.register_buffer("shift", torch.tensor(shift), persistent=False)
        elif how == "hook":
            self.inner.register_forward_pre_hook(lambda _m, inputs: (inputs[0] + shift,))

    def forward(self, x):
        return self.inner((x + self.shift + self.settings[0]) ** 2)


@pytest.mark.parametrize("how", ["tensor", "list", "buffer", "hook"])
def test_models_that_answer_otherwise_are_never_the_same_run(how, digits, tmp_path):
    found = [evaluate(Shifted(how, shift), digits, STANDARD, runs=tmp_path) for shift in (0.0, 0.7)]
    assert found[0].manifest["run"] != found[1].manifest["run"]
    x, _, _ = digits.batch(slice(None))
    for outcomes, shift in zip(found, (0.0, 0.7), strict=True):
        expected = Shifted(how, shift)(x).argmax(1).numpy()
        assert (outcomes.frame["clean_pred"].to_numpy() == expected).all()


class Rounded(torch.autograd.Function):
    """Rounds to tenths, and passes the gradient on or not."""

    passes = False

    @staticmethod
    def forward(ctx, x):
        return (10 * x).round() / 10

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] if Rounded.passes else torch.zeros_like(gradients[0])


class Coarse(nn.Module):
    """What its logits are does not depend on what :class:`Rounded` passes back."""

    def __init__(self):
        super().__init__()
        self.inner = linear()

    def forward(self, x):
        return self.inner(Rounded.apply(x))


def test_a_change_of_gradients_alone_is_another_run(digits, monkeypatch):
    model, chosen = Coarse(), Protocol.named("standard", epsilon=0.1, steps=3)
    masked = evaluate(model, digits, chosen)
    assert evaluate(model, digits, chosen).manifest["run"] == masked.manifest["run"]
    monkeypatch.setattr(Rounded, "passes", True)
    straight_through = evaluate(model, digits, chosen)
    assert straight_through.manifest["run"] != masked.manifest["run"]
    before, after = (summarize(found).attacks["pgd3"].avg_rob for found in (masked, straight_through))
    assert after > before


def test_a_model_that_was_trained_on_is_another_run_also_as_a_source(digits):
    model, source = as_model(linear(), "target"), as_model(linear(), "source")
    chosen = Protocol.named("standard", steps=2)
    asked = {"transfer_from": source}
    before, alone = identify(model, digits, chosen, **asked), identify(source, digits, chosen)
    hashed = source.sha256
    with torch.no_grad():
        source.module[1].weight.neg_()
    assert source.sha256 != hashed
    assert identify(model, digits, chosen, **asked) != before
    assert identify(source, digits, chosen) != alone


def test_what_a_source_says_counts_where_no_look_at_its_code_tells(digits):
    model, chosen = as_model(linear(), "target"), Protocol.named("standard", steps=2)
    runs = {identify(model, digits, chosen, transfer_from=Shifted("list", shift)) for shift in (0.0, 3.0)}
    assert len(runs) == 2
