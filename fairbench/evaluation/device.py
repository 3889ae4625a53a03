"""The device an evaluation runs on: whether there is one, and how it computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fairbench.errors import ProtocolError


@contextmanager
def exact() -> Iterator[None]:
    """Compute in float32 proper and repeatably: cuDNN and cuBLAS round to TF32 where the caller's settings let them.

    cuDNN would also choose its algorithms by a race. The caller's settings come back after.
    """
    found = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(found)


def checked_device(device: str) -> str:
    """Return the device's name.

    Raises
    ------
    ProtocolError
        There is no such device here.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first, _, _ = (str(error).splitlines() or ["not available"])[0].partition(". ")  # then it lists all there are
        raise ProtocolError(f"device '{device}' cannot be used: {first.rstrip('.')}.") from error
    return device
