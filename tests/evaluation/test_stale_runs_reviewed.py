"""A run is another one when anything changed that its rows depend on, however well hidden."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairbench.datasets import Dataset
from fairbench.evaluation import run as run_module
from fairbench.evaluation.runner import identify
from fairbench.models.base import as_model
from fairbench.models.own_code import with_imports
from fairbench.models.prepare import gradient_kind


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
