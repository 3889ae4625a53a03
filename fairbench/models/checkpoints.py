"""Checkpoints as people really have them, read without ever running code from them.

Only weights-only loading is used; beside tensors it admits the plain values that training scripts leave in a checkpoint
(NumPy scalars, paths, ``argparse.Namespace``), none of which runs anything when it is built.
"""

import argparse
import contextlib
import os
import pathlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairbench.errors import CheckpointError

SUFFIXES = (".pt", ".pth", ".ckpt", ".tar", ".safetensors")
_NESTED = ("state_dict", "model_state_dict", "model", "net", "ema", "params")
_TORCH_ZIP = ("data.pkl", "constants.pkl", "model.json")
"""Of these one is in each zip file of PyTorch's, TorchScript's too."""
_COUNTERS = ("n_averaged", "num_updates")
"""What running averages of weights count beside them."""
_PAGES = (b"<!doctype", b"<html", b"<head", b"<?xml")
_FORCE_CODE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
_WRAPPERS = ("module.", "_orig_mod.")
_NAMES = ("model.", "net.", *_WRAPPERS)


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the state_dict in a checkpoint, as :func:`read_checkpoint` does."""
    return read_checkpoint(path)[0]


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Read the state_dict in a checkpoint: plain or nested, with or without wrapper prefixes; floats become float32.

    Returns
    -------
    state, notes
        The weights, and which were taken where the file holds several.

    Raises
    ------
    CheckpointError
        The file is missing, empty, not a checkpoint, damaged, holds code, holds no state_dict, or has NaN weights.
    """
    refuse_other_files(path)
    if not path.is_file():
        kind = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise CheckpointError(f"checkpoint {path} {kind}.")
    with path.open("rb") as stream:
        head = stream.read(512)
    if not head:
        raise CheckpointError(f"checkpoint {path} is empty (0 bytes); fetch it again.")
    if head.lstrip().lower().startswith(_PAGES):
        raise CheckpointError(
            f"checkpoint {path} is a web page, not weights: the download failed (a drive's warning page, a login); "
            "fetch the file itself."
        )
    loaded, notes = (_read_safetensors(path), ()) if path.suffix == ".safetensors" else _read_torch(path, head)
    state = {key: tensor.float() if _is_reduced(tensor) else tensor for key, tensor in loaded.items()}
    for key, tensor in state.items():
        if (
            tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.device.type == "meta"
            or tensor.is_nested
        ):
            raise CheckpointError(
                f"checkpoint {path}: '{key}' is a sparse, quantised or empty tensor, not plain weights."
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise CheckpointError(f"checkpoint {path}: '{key}' holds NaN or infinite weights; the training diverged.")
    return state, notes


def refuse_other_files(path: Path) -> None:
    """Refuse a file that is whole but of another kind: arrays, or a zip file without what PyTorch puts in its own.

    Raises
    ------
    CheckpointError
        It is; data are told where they belong.
    """
    if path.suffix == ".npy":
        raise CheckpointError(f"{path} is an array, not a checkpoint; data go to --dataset, as .npz.")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, ValueError, zipfile.BadZipFile):  # no zip file, or a damaged one: said when it is read
        return
    if path.suffix == ".npz" or (names and all(name.endswith(".npy") for name in names)):
        raise CheckpointError(f"{path} holds arrays, not weights: it is data and goes to --dataset.")
    if any(name.rpartition("/")[2] in _TORCH_ZIP for name in names):
        return
    weights = [name for name in names if name.endswith(SUFFIXES)]
    mend = f"unpack it, and name {weights[0]}" if weights else "name the file of the weights"
    held = ", ".join(names[:3]) or "nothing in it"
    raise CheckpointError(f"{path} is a zip file with {held}, no checkpoint; {mend}.")


def safetensors_bytes(state: Mapping[str, Tensor]) -> bytes:
    """Return weights as a .safetensors file."""
    from safetensors.torch import save

    return bytes(save({k: v.detach().cpu().contiguous().clone() for k, v in state.items()}))  # tied ones share memory


def _is_reduced(tensor: Tensor) -> bool:
    """Whether it is a float of another precision than float32, plainly stored."""
    return tensor.is_floating_point() and tensor.dtype != torch.float32 and tensor.layout is torch.strided


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return _strip_prefixes(load_file(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} is not a whole .safetensors file ({error}).") from error


def _read_torch(path: Path, head: bytes) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    try:
        with warnings.catch_warnings(), weights_only_loading():
            warnings.simplefilter("ignore")  # of old pickles and TorchScript: the refusal says it in one line
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_why_refused(path, str(error))) from error
    except Exception as error:  # a damaged file makes the unpickler raise anything: struct.error, KeyError, EOFError
        if "TorchScript" in str(error):
            raise CheckpointError(
                f"checkpoint {path} is a TorchScript archive, which is code, not weights; it was not run. "
                "Save model.state_dict() where you trained and pass --arch."
            ) from error
        if head[:2] == b"PK":
            raise CheckpointError(f"checkpoint {path} is cut short or damaged; fetch it again.") from error
        raise CheckpointError(f"checkpoint {path} is not a PyTorch checkpoint ({_first_line(error)}).") from error
    state, notes = _find_state(path, loaded)
    return _strip_prefixes(state), notes


@contextlib.contextmanager
def weights_only_loading() -> Iterator[None]:
    """Let other people's ``torch.load`` admit, for a while, plain values beside tensors, and never run code.

    An environment variable that makes it run code is taken back.
    """
    held = os.environ.pop(_FORCE_CODE, None)
    try:
        with torch.serialization.safe_globals(_plain_globals()):
            yield
    finally:
        if held is not None:
            os.environ[_FORCE_CODE] = held


def _plain_globals() -> list[Callable | tuple[Callable, str]]:
    scalar = np.float64(0).__reduce__()[0]
    plain = ("Bool", "Float", "Int", "UInt")
    numpy_types = [getattr(np.dtypes, name) for name in np.dtypes.__all__ if name.startswith(plain)]
    return [
        argparse.Namespace,
        pathlib.PosixPath,
        (pathlib.PosixPath, "pathlib._local.PosixPath"),  # as Python 3.13 writes it
        np.dtype,
        *numpy_types,
        (scalar, "numpy.core.multiarray.scalar"),  # as NumPy 1 wrote it
        (scalar, "numpy._core.multiarray.scalar"),
    ]


def _why_refused(path: Path, message: str) -> str:
    found = re.search(r"GLOBAL ([\w.]+)", message) or re.search(r"(?:class|global|callable)\W+([\w.]+\.\w+)", message)
    if found is None:
        return f"checkpoint {path} is not a PyTorch checkpoint, or it is damaged."
    return (
        f"checkpoint {path} holds '{found[1]}', which is code or a whole pickled model, not weights; it was not run. "
        "Save model.state_dict() where you trained and pass --arch."
    )


def _find_state(path: Path, loaded: Any) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the weights: what lies under the first usual key that holds a matrix, else the mapping with most tensors.

    A note says what else they could have been.
    """
    nested = {str(key): _tensors(value) for key, value in loaded.items()} if isinstance(loaded, Mapping) else {}
    nested = {key: tensors for key, tensors in nested.items() if tensors}
    whole = _tensors(loaded)
    usual = next((key for key in _NESTED if any(t.ndim > 1 for t in nested.get(key, {}).values())), None)
    best = usual or max(nested, key=lambda key: len(nested[key]), default=None)
    if best is not None and len(nested[best]) >= len(whole):
        others = [key for key in nested if key != best and len(nested[key]) >= len(nested[best]) / 2]
        also = f"weights under '{best}' taken; {', '.join(others)} holds some too"
        return nested[best], (also,) if others else ()
    if whole:
        return whole, ()
    held = f"a {type(loaded).__name__}"
    if isinstance(loaded, Mapping):
        held += f" with {', '.join(str(k) for k in list(loaded)[:5]) or 'nothing'}"
    raise CheckpointError(f"checkpoint {path} holds {held}, but no state_dict (looked under {', '.join(_NESTED)}).")


def _tensors(value: Any) -> dict[str, Tensor]:
    """Return the tensors of a mapping; none of anything else."""
    return {str(k): v for k, v in value.items() if isinstance(v, Tensor)} if isinstance(value, Mapping) else {}


def _strip_prefixes(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop what DataParallel and torch.compile put before the keys."""
    state = {key.replace("._orig_mod.", ".").removeprefix("_orig_mod."): value for key, value in state.items()}
    return _strip(state, _WRAPPERS)


def strip_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop also counters, and "model." and "net." where every key has them: habits, but an architecture's right."""
    state = {key: tensor for key, tensor in state.items() if not (key in _COUNTERS and tensor.ndim == 0)}
    return _strip(state, _NAMES)


def _strip(state: dict[str, Tensor], prefixes: tuple[str, ...]) -> dict[str, Tensor]:
    while True:
        shared = next((p for p in prefixes if state and all(key.startswith(p) for key in state)), None)
        if shared is None:
            return state
        state = {key.removeprefix(shared): value for key, value in state.items()}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
