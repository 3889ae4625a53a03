"""Checkpoints as people have them are read, and nothing in a file is ever run."""

import argparse
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fairbench.errors import CheckpointError
from fairbench.models.architectures.mlp import MLP
from fairbench.models.checkpoints import read_state

State = dict[str, Tensor]


@pytest.fixture
def state() -> State:
    torch.manual_seed(0)
    return MLP(num_classes=3, in_features=4, width=5).state_dict()


def assert_same(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".tar", ".pth.tar"])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_every_suffix_is_read(suffix: str, zipped: bool, state: State, tmp_path: Path) -> None:
    torch.save(state, tmp_path / f"net{suffix}", _use_new_zipfile_serialization=zipped)
    assert_same(read_state(tmp_path / f"net{suffix}"), state)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("nesting", [None, "state_dict", "model", "net", "model_state_dict"])
def test_every_nesting_and_wrapper_prefix_is_read(
    nesting: str | None, prefix: str, state: State, tmp_path: Path
) -> None:
    wrapped: Any = {prefix + key: value for key, value in state.items()}
    saved = wrapped if nesting is None else {"epoch": 90, nesting: wrapped}
    torch.save(saved, tmp_path / "net.pt")
    assert_same(read_state(tmp_path / "net.pt"), state)


def test_what_training_scripts_leave_beside_the_weights_is_no_obstacle(state: State, tmp_path: Path) -> None:
    torch.save(
        {
            "state_dict": state,
            "optimizer": {"state": {0: {"momentum_buffer": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]},
            "args": argparse.Namespace(lr=0.1, name="run", betas=(0.9, 0.99), nested=argparse.Namespace(on=True)),
            "best_accuracy": np.float64(0.5),
            "loss": np.float32(1.5),
            "epoch": np.int64(7),
        },
        tmp_path / "net.pt",
    )
    assert_same(read_state(tmp_path / "net.pt"), state)


@pytest.mark.parametrize(
    "scalar", [np.float16(1), np.uint8(1), np.int32(1), np.bool_(True)], ids=lambda s: s.dtype.name
)
def test_numpy_scalars_beside_the_weights_are_no_obstacle(scalar: np.generic, state: State, tmp_path: Path) -> None:
    torch.save({"net": state, "is_best": scalar}, tmp_path / "net.pt")
    assert_same(read_state(tmp_path / "net.pt"), state)


def test_the_weights_are_found_among_other_tensors_dictionaries(state: State, tmp_path: Path) -> None:
    torch.save({"weights": state, "note": "found under no usual name"}, tmp_path / "net.pt")
    assert_same(read_state(tmp_path / "net.pt"), state)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_safetensors_are_read(prefix: str, state: State, tmp_path: Path) -> None:
    save_file({prefix + key: value for key, value in state.items()}, tmp_path / "net.safetensors")
    assert_same(read_state(tmp_path / "net.safetensors"), state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_become_float32_and_counters_stay(dtype: torch.dtype, state: State, tmp_path: Path) -> None:
    saved = {key: value.to(dtype) for key, value in state.items()} | {"bn.num_batches_tracked": torch.tensor(3)}
    torch.save(saved, tmp_path / "net.pt")
    found = read_state(tmp_path / "net.pt")
    assert found["bn.num_batches_tracked"].dtype == torch.int64
    assert all(found[key].dtype == torch.float32 for key in state)
    assert all(torch.equal(found[key], saved[key].float()) for key in state)


def test_reading_warns_of_nothing(state: State, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "net.pt")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_state(tmp_path / "net.pt")
    assert [str(warning.message) for warning in caught] == []


def zip_file(state: State, path: Path) -> bytes:
    torch.save(state, path)
    return path.read_bytes()


def legacy_file(state: State, path: Path) -> bytes:
    torch.save(state, path, _use_new_zipfile_serialization=False)
    return path.read_bytes()


def safetensors_file(state: State, path: Path) -> bytes:
    save_file(state, path)
    return path.read_bytes()


FORMS = {"net.pt": zip_file, "legacy.pt": legacy_file, "net.safetensors": safetensors_file}


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("form", FORMS)
def test_a_file_cut_short_is_refused(form: str, share: float, state: State, tmp_path: Path) -> None:
    path = tmp_path / form
    whole = FORMS[form](state, path)
    path.write_bytes(whole[: max(1, int(len(whole) * share))])
    with pytest.raises(CheckpointError, match=f"checkpoint .*{form} is (cut short|not a)"):
        read_state(path)


PAGE = b"\n<!DOCTYPE html><html><head><title>Google Drive - Virus scan warning</title></head></html>"
BAD_BYTES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", r"is empty \(0 bytes\); fetch it again"),
    "web page": (PAGE, "is a web page, not weights: the download failed"),
    "text": (b"hello world, this is no checkpoint at all", "is not a PyTorch checkpoint"),
    "zeros": (bytes(1000), "is not a PyTorch checkpoint"),
    "picture": (b"\xff\xd8\xff\xe0" * 300, "is not a PyTorch checkpoint"),
}


@pytest.mark.parametrize("kind", BAD_BYTES)
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".tar"])
def test_what_is_no_checkpoint_is_refused(kind: str, suffix: str, tmp_path: Path) -> None:
    content, message = BAD_BYTES[kind]
    path = tmp_path / f"net{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_state(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["empty", "web page"])
def test_the_same_goes_for_safetensors(kind: str, tmp_path: Path) -> None:
    content, message = BAD_BYTES[kind]
    (tmp_path / "net.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_state(tmp_path / "net.safetensors")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"net\.pt does not exist"):
        read_state(tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match="is a folder, not a file"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"epoch": 3, "loss": 0.5}, "holds a dict with epoch, loss, but no state_dict"),
        ([1, 2], "holds a list, but no state_dict"),
        (torch.zeros(3), "holds a Tensor, but no state_dict"),
        ({}, "holds a dict with nothing, but no state_dict"),
    ],
    ids=["numbers", "list", "one tensor", "nothing"],
)
def test_a_file_without_weights_says_what_it_holds(held: Any, message: str, tmp_path: Path) -> None:
    torch.save(held, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=message):
        read_state(tmp_path / "net.pt")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(value: float, state: State, tmp_path: Path) -> None:
    state["layers.3.weight"][0, 0] = value
    torch.save(state, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"'layers\.3\.weight' holds NaN or infinite weights"):
        read_state(tmp_path / "net.pt")


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, call: Any, argument: str) -> None:
        self.call, self.argument = call, argument

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return self.call, (self.argument,)


def payload(kind: str, marker: Path) -> Payload:
    source = f"open({str(marker)!r}, 'w').close()"
    calls: dict[str, tuple[Any, str]] = {
        "os.system": (os.system, f"touch '{marker}'"),
        "eval": (eval, source),
        "exec": (exec, source),
    }
    return Payload(*calls[kind])


def save_zip(value: Any, path: Path) -> None:
    torch.save(value, path)


def save_legacy(value: Any, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def save_pickle(protocol: int) -> Any:
    return lambda value, path: path.write_bytes(pickle.dumps(value, protocol=protocol))


WRITERS = {"zip": save_zip, "legacy": save_legacy} | {f"pickle {p}": save_pickle(p) for p in (0, 2, 4, 5)}


@pytest.mark.parametrize("kind", ["os.system", "eval", "exec"])
def test_the_payload_is_live(kind: str, tmp_path: Path) -> None:
    """Without this, that no marker appears below would prove nothing."""
    pickle.loads(pickle.dumps(payload(kind, tmp_path / "ran")))
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", ["alone", "beside the weights", "as a weight"])
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["os.system", "eval", "exec"])
def test_code_in_a_checkpoint_never_runs(kind: str, writer: str, place: str, tmp_path: Path) -> None:
    code = payload(kind, tmp_path / "ran")
    held = {
        "alone": code,
        "beside the weights": {"state_dict": {"w": torch.zeros(2)}, "extra": code},
        "as a weight": {"w": code},
    }[place]
    WRITERS[writer](held, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"checkpoint .*net\.pt") as caught:
        read_state(tmp_path / "net.pt")
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "named"), [("os.system", r"\w+\.system"), ("eval", "eval"), ("exec", "exec")])
@pytest.mark.parametrize("writer", ["zip", "legacy", "pickle 2"])
def test_code_is_named_in_the_refusal(kind: str, named: str, writer: str, tmp_path: Path) -> None:
    WRITERS[writer]({"w": payload(kind, tmp_path / "ran")}, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=rf"holds '(builtins\.)?{named}', which is code .* was not run"):
        read_state(tmp_path / "net.pt")


@pytest.mark.parametrize("writer", ["zip", "legacy"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_whole_pickled_module_is_refused_with_what_to_save_instead(writer: str, nested: bool, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    WRITERS[writer]({"model": module} if nested else module, tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"whole pickled model.*Save model\.state_dict\(\)"):
        read_state(tmp_path / "net.pt")


def test_a_torchscript_archive_is_called_what_it_is(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is on its way out
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match="TorchScript"):
        read_state(tmp_path / "net.pt")
