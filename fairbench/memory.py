"""The memory of this process: what it may still take, and freed blocks kept for the next step.

A step of an attack frees and asks again for the same activations. By itself glibc maps and unmaps blocks of that size
each time, and the kernel then clears every page anew: on ResNet-18 with 128 CIFAR images that is a sixth of the time
(``benchmarks/attack_throughput.py``). GPU memory has such a cache already.
"""

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from fairbench.errors import words_of

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MAP_ABOVE = 2**30
_TRIM_ABOVE = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Set glibc's allocator to reuse freed blocks, once a process; False where there is no glibc.

    Peak memory stays what the largest batch needs; it is only not given back in between.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAP_ABOVE)) and bool(mallopt(_M_TRIM_THRESHOLD, _TRIM_ABOVE))


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error is of memory: CUDA and Python have classes for it, torch's allocator has only words."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in words_of(error)


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process could still take; None where nobody says.

    The least of what the machine has free and of what the limits of its control groups (a container's, a Slurm job's)
    leave. ``root`` is for tests.
    """
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    return min([free, *_left_by_control_groups(root)])


def _left_by_control_groups(root: Path) -> Iterator[int]:
    """Yield what each control group of this process that has a limit leaves, of versions 2 and 1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = top / path.lstrip("/")
        for place in (group, *group.parents):  # a limit of a group holds for the groups in it
            try:
                limit, used = (int((place / name).read_text(encoding="ascii")) for name in names)
                pages = (place / "memory.stat").read_text(encoding="ascii").split()
                cached = int(pages[pages.index("inactive_file") + 1])  # counts as used, and is given up when asked for
            except (OSError, ValueError):  # not there (the container sees its own top alone), or "max"
                pass
            else:
                yield max(limit - used + cached, 0)
            if place == top:
                break
