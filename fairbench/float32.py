"""Float32 proper: settings of the process under which a number is what float32 arithmetic gives, each time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


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
