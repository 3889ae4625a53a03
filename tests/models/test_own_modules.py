"""Modules and builders of one's own, however they were made: what is a model, and what is refused in a line."""

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

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
    (tmp_path / "builders_of_mine.py").write_text(BUILDERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("builders_of_mine", None)


def test_an_attribute_of_that_name_need_not_be_the_size_of_an_image(builders):
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).state_dict(), builders / "net.pt")
    assert load_model(builders / "net.pt", arch="builders_of_mine:Wide").input_size is None


def test_lazy_layers_are_refused_in_a_line(builders):
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).state_dict(), builders / "net.pt")
    with pytest.raises(ModelError, match="it has lazy layers: pass a batch through"):
        load_model(builders / "net.pt", arch="builders_of_mine:lazy")
