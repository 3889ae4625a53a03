"""Modules and builders that a review found crashing: what each should do."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.datasets import Dataset
from fairbench.errors import ModelError
from fairbench.models import load_model
from fairbench.models.base import as_model
from fairbench.provenance import sha256_state

INTERACTIVE = """
import torch
from torch import nn
from fairbench.models.base import as_model


class Net(nn.Linear):
    pass


print(len(as_model(Net(3, 2)).code_sha256))
"""


@pytest.mark.parametrize("how", ["-c", "-"])
def test_a_class_typed_into_an_interpreter_is_a_model(how):
    given = {"args": [sys.executable, how, *([INTERACTIVE] if how == "-c" else [])]}
    ran = subprocess.run(**given, input=INTERACTIVE, capture_output=True, text=True, check=True)
    assert ran.stdout == "64\n"


def test_torchscript_is_refused_in_a_line():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
    with pytest.raises(ModelError, match="TorchScript module cannot be frozen and copied: pass the network"):
        as_model(scripted)


class Keeps(nn.Linear):
    def get_extra_state(self):
        return {"seen": 3}

    def set_extra_state(self, state):
        pass


def test_a_module_that_keeps_more_than_tensors_has_a_hash():
    assert sha256_state(Keeps(2, 2).state_dict()) != sha256_state(nn.Linear(2, 2).state_dict())


BUILDERS = """
from torch import nn


class Wide(nn.Sequential):
    input_size = 784

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 10))


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
"""


@pytest.fixture
def builders(tmp_path, monkeypatch):
    (tmp_path / "builders_reviewed.py").write_text(BUILDERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("builders_reviewed", None)


def test_an_attribute_of_that_name_need_not_be_the_size_of_an_image(builders):
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).state_dict(), builders / "net.pt")
    assert load_model(builders / "net.pt", arch="builders_reviewed:Wide").input_size is None


def test_lazy_layers_are_refused_in_a_line(builders):
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).state_dict(), builders / "net.pt")
    with pytest.raises(ModelError, match="it has lazy layers: pass a batch through"):
        load_model(builders / "net.pt", arch="builders_reviewed:lazy")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_that_run_backwards_are_data(dtype):
    images = np.arange(4 * 64).reshape(4, 1, 8, 8).astype(dtype) / dtype(1 if dtype == np.uint8 else 256)
    straight = Dataset("mine", images.astype(dtype), np.array([0, 1, 0, 1]), ("a", "b"))
    turned = Dataset("mine", straight.inputs[::-1], straight.labels[::-1], ("a", "b"))
    x, y, _ = turned.batch(slice(0, 4))
    expected, labels, _ = straight.batch(slice(0, 4))
    assert torch.equal(x, expected.flip(0))
    assert torch.equal(y, labels.flip(0))
    assert np.array_equal(turned.resized(4, 4).inputs, straight.resized(4, 4).inputs[::-1])
