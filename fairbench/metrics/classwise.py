"""Class-wise standard, boundary and robust error (docs/definitions.md; ``sun2023``, ``xu2021``).

Percent, in 0..100 (boundary error in -100..100); lower is better. Denominators are observed counts; a class or a column
without a measurement is NaN, never 0.
"""

import numpy as np
import pandas as pd

PRINTED_ERRORS = ("std", "bndy", "rob")
"""Standard, boundary (rob - std) and robust error: those of the papers' tables."""
ERRORS = (*PRINTED_ERRORS, "strict_bndy")
"""And strict boundary error (right clean and wrong under attack)."""


def count_cells(frame: pd.DataFrame, attack: str, num_classes: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Count, per class, the four ways an example can go; rows where the attack was not measured are left out.

    Parameters
    ----------
    groups
        (N,) numbers below ``num_classes`` to count by instead of the class, such as a group's.

    Returns
    -------
    numpy.ndarray
        (K, 2, 2) int64: [class, wrong clean, wrong under attack]. Every class-wise metric is a function of it.
    """
    measured = frame[f"{attack}_pred"].notna().to_numpy()
    label = frame["label"].to_numpy()[measured]
    clean_wrong = frame["clean_pred"].to_numpy()[measured] != label
    attack_wrong = frame[f"{attack}_pred"].to_numpy(dtype=np.int64, na_value=-1)[measured] != label
    cells = np.zeros((num_classes, 2, 2), dtype=np.int64)
    by = label if groups is None else groups[measured]
    np.add.at(cells, (by, clean_wrong.astype(int), attack_wrong.astype(int)), 1)
    return cells


def errors_from_cells(cells: np.ndarray) -> dict[str, np.ndarray]:
    """Return each of :data:`ERRORS` in percent from counts (..., 2, 2); NaN where there is no example."""
    total = cells.sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        std = 100 * cells[..., 1, :].sum(-1) / total
        rob = 100 * cells[..., :, 1].sum(-1) / total
        strict = 100 * cells[..., 0, 1] / total
        bndy = 100 * (cells[..., 0, 1] - cells[..., 1, 0]) / total
    return {"std": std, "bndy": bndy, "rob": rob, "strict_bndy": strict}


def class_errors(frame: pd.DataFrame, attack: str, classes: tuple[str, ...]) -> pd.DataFrame:
    """Return one row per class: ``class``, ``n`` (measured examples) and :data:`ERRORS` in percent.

    Examples
    --------
    >>> frame = pd.DataFrame({"label": [0, 0, 1], "clean_pred": [0, 1, 1], "pgd20_pred": [1, 1, 1]})
    >>> class_errors(frame, "pgd20", ("cat", "dog"))
      class  n   std  bndy    rob  strict_bndy
    0   cat  2  50.0  50.0  100.0         50.0
    1   dog  1   0.0   0.0    0.0          0.0
    """
    cells = count_cells(frame, attack, len(classes))
    return pd.DataFrame({"class": classes, "n": cells.sum(axis=(1, 2)), **errors_from_cells(cells)})
