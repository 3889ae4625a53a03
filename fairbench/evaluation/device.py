"""The device an evaluation runs on: whether there is one, and how it computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fairbench.errors import ProtocolError


@contextmanager
def exact() -> Iterator[None]:
    """Compute in float32 proper and repeatably: cuDNN and cuBLAS round to TF32 where the caller's settings let them.

    cuDNN would also choose its algorithms by a race. The caller's settings come back after.
    """
    try:
        named = torch.get_float32_matmul_precision()
    except RuntimeError:  # the caller set it by the newer attributes, which the older functions do not read
        named = None
    of_backends = [backend.fp32_precision for backend in _matmul_backends()]
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        if named is not None:
            torch.set_float32_matmul_precision(named)
        for backend, precision in zip(_matmul_backends(), of_backends, strict=True):
            backend.fp32_precision = precision


def _matmul_backends() -> list[Any]:
    """Return those that have a precision of their own: from torch 2.9 on."""
    known: Any = torch.backends
    found = (getattr(getattr(known, name, None), "matmul", None) for name in ("cuda", "mkldnn"))
    return [backend for backend in found if hasattr(backend, "fp32_precision")]


def default_device() -> str:
    """Return "cuda" where there is one, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def checked_device(device: str | None) -> str:
    """Return the device's name; of none, the default.

    Raises
    ------
    ProtocolError
        There is no such device here.
    """
    device = device or default_device()
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first, _, _ = (str(error).splitlines() or ["not available"])[0].partition(". ")  # then it lists all there are
        raise ProtocolError(f"device '{device}' cannot be used: {first.rstrip('.')}.") from error
    return device
