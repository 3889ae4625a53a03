"""The device an evaluation runs on: whether there is one, and how it computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fairbench.errors import ProtocolError


@contextmanager
def exact() -> Iterator[None]:
    """Compute in float32 proper and repeatably: cuDNN would round to TF32, and choose algorithms by a race."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        yield


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
