"""Small models and data for runs of the command line that take a fraction of a second."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.datasets import load_dataset
from fairbench.models.architectures.mlp import MLP

NETS = '''
"""What users' own models do: one dense layer each, and something odd with what it says."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.say(self.fc(x.flatten(1)), x)

    def say(self, logits, x):
        return logits


class NaN(Net):
    def say(self, logits, x):
        return logits * float("nan")


class NaNOnWhite(Net):
    """NaN for images that are white all over."""

    def say(self, logits, x):
        white = (x.flatten(1).amin(1) == 1).unsqueeze(1)
        return torch.where(white, torch.full_like(logits, float("nan")), logits)


class Infinite(Net):
    def say(self, logits, x):
        return logits / 0


class Vector(Net):
    def say(self, logits, x):
        return logits.sum(1)


class Map(Net):
    def say(self, logits, x):
        return logits[:, :, None, None]


class Short(Net):
    def say(self, logits, x):
        return logits[1:]


class Wide(Net):
    def say(self, logits, x):
        return torch.cat([logits, logits], 1)


class Pair(Net):
    def say(self, logits, x):
        return logits, x


class Named(Net):
    def say(self, logits, x):
        return {"logits": logits, "input": x}


class Text(Net):
    def say(self, logits, x):
        return "no tensor"


class Asserts(Net):
    def say(self, logits, x):
        torch._assert(x.shape[-1] == 224, "Wrong image height! Expected 224 but got 8!")


class Leaves(Net):
    def say(self, logits, x):
        raise SystemExit(3)


class Divides(Net):
    def say(self, logits, x):
        return 1 / 0


class Misses(Net):
    def say(self, logits, x):
        return {}["feature"]
'''


def fitted(rows: slice) -> nn.Module:
    """Least squares on some of the digits, written as an MLP: right on nine of ten, and nothing to train.

    The hidden layers are identities, kept where tanh is nearly one too.
    """
    digits = load_dataset("digits", "train")
    pixels, labels = digits.inputs[rows].reshape(-1, 64), digits.labels[rows]
    design = np.hstack([pixels, np.ones((len(pixels), 1), np.float32)])
    solution, *_ = np.linalg.lstsq(design, 2 * np.eye(10)[labels] - 1)
    network = MLP(num_classes=10, in_features=64, width=10)
    first, *hidden, last = (layer for layer in network.layers if isinstance(layer, nn.Linear))
    for layer, scale in ((first, 0.0), *((layer, 1.0) for layer in hidden), (last, 10.0)):
        layer.bias.data.zero_()
        layer.weight.data.copy_(scale * torch.eye(*layer.weight.shape))
    first.weight.data.copy_(0.1 * torch.from_numpy(solution[:64].T))
    first.bias.data.copy_(0.1 * torch.from_numpy(solution[64]))
    return network


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with users' networks (``cli_nets.py``), their weights (``dense.pt``) and two models for digits."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "cli_nets.py").write_text(NETS)
    torch.manual_seed(0)
    dense = nn.Linear(64, 10)
    torch.save({"fc.weight": dense.weight.data, "fc.bias": dense.bias.data}, folder / "dense.pt")
    for name, rows in (("one", slice(0, None, 2)), ("two", slice(1, None, 2))):
        torch.save(fitted(rows).state_dict(), folder / f"{name}.pt")
    return folder


@pytest.fixture
def nets(small_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``cli_nets:CLASS`` can be imported; returns the weights that fit all of them."""
    monkeypatch.syspath_prepend(small_folder)
    return small_folder / "dense.pt"


@pytest.fixture(scope="session")
def checkpoint(small_folder: Path) -> Path:
    """A model for digits."""
    return small_folder / "one.pt"


@pytest.fixture(scope="session")
def other_checkpoint(small_folder: Path) -> Path:
    """Another one."""
    return small_folder / "two.pt"


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """A dataset of ten classes of 8x8 images: 3 of the first, 20 of the second, none of the others."""
    rng = np.random.default_rng(0)
    names = np.array("zero one two three four five six seven eight nine".split())
    path = tmp_path / "uneven.npz"
    np.savez(
        path,
        x_test=rng.integers(0, 256, (23, 8, 8), dtype=np.uint8),
        y_test=np.array([0] * 3 + [1] * 20),
        classes=names,
    )
    return path
