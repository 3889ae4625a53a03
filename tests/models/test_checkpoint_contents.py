"""What a checkpoint holds beside weights or instead of them: which weights are taken, and what is refused."""

import argparse
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fairbench.errors import CheckpointError
from fairbench.models import load_model
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.checkpoints import read_state, safetensors_bytes, weights_only_loading


@pytest.fixture
def state():
    torch.manual_seed(0)
    return ARCHITECTURES["small_cnn"].build(num_classes=10, in_channels=1).state_dict()


@pytest.mark.parametrize(
    "nest",
    [
        lambda s: {"best_acc1": torch.tensor(0.9), "state_dict": s},
        lambda s: {"optimizer": {"x": torch.zeros(1)}, "weights": s},
        lambda s: {"epoch": 3, "model": {f"module.{k}": v for k, v in s.items()}, "loss": torch.zeros(1)},
    ],
)
def test_the_mapping_with_the_weights_is_found_beside_other_tensors(nest, state, tmp_path):
    torch.save(nest(state), tmp_path / "net.pt")
    assert load_model(tmp_path / "net.pt").architecture == "small_cnn"


@pytest.mark.parametrize("attribute", ["net", "model"])
def test_an_architecture_whose_only_child_is_called_net_or_model_loads_its_own_checkpoint(
    attribute, tmp_path, monkeypatch
):
    (tmp_path / "wrapped.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        self.{attribute} = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
        f"    def forward(self, x):\n        return self.{attribute}(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "wrapped", raising=False)
    import wrapped

    network = wrapped.Net()
    torch.save(network.state_dict(), tmp_path / "net.pt")
    loaded = load_model(tmp_path / "net.pt", arch="wrapped:Net").module
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), network.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
def test_weights_that_are_no_floats_are_not_cast_in_silence(dtype, state, tmp_path):
    state["features.0.weight"] = (state["features.0.weight"] * 100).to(dtype)
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"of another type: features\.0\.weight"):
        load_model(tmp_path / "net.pt", arch="small_cnn")


def test_sparse_weights_are_refused(state, tmp_path):
    state["classifier.0.weight"] = state["classifier.0.weight"].to_sparse()
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match="sparse, quantised or empty"):
        read_state(tmp_path / "net.pt")


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_no_environment_variable_makes_loading_run_code(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with (tmp_path / "net.pt").open("wb") as stream:
        pickle.dump({"w": Payload(tmp_path / "ran")}, stream, protocol=2)
    with pytest.raises(CheckpointError):
        read_state(tmp_path / "net.pt")
    assert not (tmp_path / "ran").exists()


def test_a_path_beside_the_weights_is_plain(state, tmp_path):
    from pathlib import Path

    torch.save({"state_dict": state, "log": Path("/tmp/x")}, tmp_path / "net.pt")
    assert load_model(tmp_path / "net.pt").architecture == "small_cnn"
    assert isinstance(load_model(tmp_path / "net.pt").module, nn.Module)


def other() -> dict[str, torch.Tensor]:
    return ARCHITECTURES["resnet18"].build(num_classes=10).state_dict()


def averaged(state) -> dict[str, torch.Tensor]:
    return {"n_averaged": torch.tensor(7), **{f"module.{key}": value + 1 for key, value in state.items()}}


@pytest.mark.parametrize(
    ("nest", "note"),
    [
        (lambda s: {"state_dict": s, "teacher": other()}, "weights under 'state_dict' taken; teacher holds some too"),
        (lambda s: {"model": s, "ema": averaged(s)}, "weights under 'model' taken; ema holds some too"),
        (
            lambda s: {"ema": {**averaged(s), "num_updates": torch.tensor(3)}, "net": s},
            "weights under 'net' taken; ema",
        ),
        (lambda s: {"model": s, "optimizer": {"x": torch.zeros(1)}}, None),
        (lambda s: {**s, "ema": {"x": torch.zeros(1)}}, None),
        (lambda s: {"network": s, "ema": {"decay": torch.zeros(1)}}, None),
        (lambda s: {"weights": s, "params": {"lr": torch.zeros(1), "wd": torch.zeros(1)}}, None),
    ],
)
def test_the_usual_keys_win_over_larger_mappings_and_that_is_said(nest, note, state, tmp_path):
    torch.save(nest(state), tmp_path / "net.pt")
    loaded = load_model(tmp_path / "net.pt", arch="small_cnn")
    assert all(torch.equal(value, state[key]) for key, value in loaded.module.state_dict().items())
    assert loaded.notes[:1] == () if note is None else loaded.notes[0].startswith(note)


def test_a_running_average_is_a_checkpoint_by_itself(state, tmp_path):
    torch.save(averaged(state), tmp_path / "net.pt")
    loaded = load_model(tmp_path / "net.pt").module.state_dict()
    assert all(torch.equal(value, state[key] + 1) for key, value in loaded.items())


class Counts(nn.Module):
    """A buffer of its own that others use as a counter beside the weights."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 10)
        self.register_buffer("num_updates", torch.tensor(4))

    def forward(self, x):
        return self.fc(x.flatten(1))


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_counter_that_the_architecture_has_is_kept(suffix, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "counts_of_mine", SimpleNamespace(Counts=Counts))
    network, path = Counts(), tmp_path / f"net.{suffix}"
    if suffix == "pt":
        torch.save(network.state_dict(), path)
    else:
        path.write_bytes(safetensors_bytes(network.state_dict()))
    loaded = load_model(path, arch="counts_of_mine:Counts").module.state_dict()
    assert all(torch.equal(value, loaded[key]) for key, value in network.state_dict().items())


def test_a_safetensors_file_is_no_web_page_by_the_length_of_its_header(state, tmp_path):
    """The file begins with that length, and 0x3c is "<"."""
    path = tmp_path / "net.safetensors"
    data = safetensors_bytes(state)
    length = int.from_bytes(data[:8], "little")
    padded = -(-(length - 0x3C) // 256) * 256 + 0x3C
    path.write_bytes(padded.to_bytes(8, "little") + data[8 : 8 + length].ljust(padded) + data[8 + length :])
    assert path.read_bytes()[:1] == b"<"
    assert load_model(path).architecture == "small_cnn"


def test_what_training_scripts_leave_is_admitted_and_code_is_not_where_others_load(tmp_path):
    """As RobustBench calls torch.load, without a word of what is safe."""
    file = tmp_path / "net.pt"
    torch.save({"state_dict": {"w": torch.ones(1)}, "best": np.float64(3), "args": argparse.Namespace(lr=0.1)}, file)
    with weights_only_loading():
        assert torch.load(file)["args"].lr == 0.1
    torch.save({"state_dict": {"w": torch.ones(1)}, "code": print}, file)
    with weights_only_loading(), pytest.raises(pickle.UnpicklingError):
        torch.load(file)
