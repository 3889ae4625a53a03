"""Unfairness between classes: CAU and CRU_s (``sooksatra2022``, Definitions 1 and 2). Lower is better.

Inputs are class-wise values with the class on the last axis; classes without an example are NaN and left out.
"""

import numpy as np

from fairbench.metrics.classwise import errors_from_cells


def spread(values: np.ndarray) -> np.ndarray:
    """Return the largest difference between two classes; NaN where fewer than two classes have a value."""
    known = np.isfinite(values)
    gap = np.where(known, values, -np.inf).max(-1) - np.where(known, values, np.inf).min(-1)
    return np.where(known.sum(-1) >= 2, gap, np.nan)


def cau(cells: np.ndarray) -> np.ndarray:
    """Class-wise accuracy unfairness: largest difference of clean class accuracies, a fraction in 0..1.

    ``cells`` is (..., K, 2, 2) from :func:`~fairbench.metrics.classwise.count_cells`.
    """
    return spread(errors_from_cells(cells)["std"]) / 100


def cru_s(cells: np.ndarray) -> np.ndarray:
    """Class-wise robustness unfairness by success rate: largest difference of robust errors, percentage points."""
    return spread(errors_from_cells(cells)["rob"])


def cru_s_correct(cells: np.ndarray) -> np.ndarray:
    """CRU_s with the success rate taken among the examples classified correctly clean, percentage points."""
    right = cells[..., 0, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        return spread(100 * right[..., 1] / right.sum(-1))
