"""Rank correlation over the classes."""

import numpy as np


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation along the last axis, of the places where both have a value.

    NaN where all values of one are equal, and where fewer than two places are left.

    Examples
    --------
    >>> round(float(spearman(np.array([1.0, 2.0, 9.0, np.nan]), np.array([30.0, 20.0, 10.0, 40.0]))), 6)
    -1.0
    """
    from scipy.stats import rankdata

    known = np.isfinite(x) & np.isfinite(y)
    count = np.maximum(known.sum(-1, keepdims=True), 1)

    def centred(values: np.ndarray) -> np.ndarray:
        ranks = np.where(known, rankdata(np.where(known, values, np.inf), axis=-1), 0)  # the missing rank last
        return np.where(known, ranks - ranks.sum(-1, keepdims=True) / count, 0)

    a, b = centred(x), centred(y)
    with np.errstate(invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
