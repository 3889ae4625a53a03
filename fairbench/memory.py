"""Keep freed memory for the next step instead of returning it to the kernel after each.

A step of an attack frees and asks again for the same activations. glibc maps and unmaps blocks of that size each time,
and the kernel then clears every page anew: on ResNet-18 with 128 CIFAR images that is a sixth of the time
(``benchmarks/attack_throughput.py``). GPU memory has such a cache already.
"""

import ctypes
import sys
from functools import cache

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
