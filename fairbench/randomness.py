"""Noise that depends on (seed, example index) alone, never on the batch an example rides in or on the device.

Each example owns one Philox stream keyed by the seed and its index, so a shard, a resumed run, another batch size or
another machine draws the same random start for it.
"""

from enum import IntEnum

import numpy as np

_STREAM_BITS = 16
"""An index is shifted by this much in the key, so that one example can own several independent streams."""

MAX_INDEX = 1 << (63 - _STREAM_BITS)
"""Example indices are below this."""


class Stream(IntEnum):
    """Where the streams of each kind of attack begin; none reaches the next, so no two attacks share a draw."""

    RESTARTS = 0
    """PGD's, and least steps': the restart's number."""
    APGD_CE = 1_000
    APGD_TARGETED = 1_001
    """And the target's rank."""
    SQUARE = 2_000
    LEAST_EPSILON = 3_000


MAX_SEED = 2**63
"""Seeds are below this."""

MAX_RESTARTS = Stream.APGD_CE - Stream.RESTARTS


def uniform_noise(seed: int, index: np.ndarray, shape: tuple[int, ...], *, stream: int = 0) -> np.ndarray:
    """Draw one uniform tensor in [-1, 1) for every example.

    Parameters
    ----------
    seed
        Seed of the run, 0 <= seed < :data:`MAX_SEED`.
    index
        (B,) int64, each example's position in its test split.
    shape
        Shape of one draw.
    stream
        Which of the example's streams (:class:`Stream`), 0 <= stream < 2**16.

    Returns
    -------
    numpy.ndarray
        (B, *shape) float32.
    """
    if not 0 <= stream < 1 << _STREAM_BITS:
        raise ValueError(f"stream {stream} is not in 0..{(1 << _STREAM_BITS) - 1}")
    noise = np.empty((len(index), *shape), dtype=np.float32)
    for row, i in enumerate(np.asarray(index, dtype=np.uint64)):
        key = np.array([seed, (int(i) << _STREAM_BITS) + stream], dtype=np.uint64)
        np.random.Generator(np.random.Philox(key=key)).random(out=noise[row], dtype=np.float32)
    noise *= 2
    noise -= 1
    return noise
