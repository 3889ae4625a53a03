"""The device an evaluation runs on, and whether there is one."""

import torch

from fairbench.errors import ProtocolError


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
