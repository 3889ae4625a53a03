"""What the columns of a table are: names, which belong together, their scale and their range."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairbench.errors import DatasetError
from fairbench.provenance import sha256_array, sha256_bytes
from fairbench.registry import suggest

CATEGORICAL = "categorical"
"""Stands for every one-hot column where columns of the table are named."""


@dataclass(frozen=True, eq=False)
class Features:
    """The F features of a dataset.

    Parameters
    ----------
    names
        F names: "age", and "race=White" for a column of a one-hot.
    columns
        For each feature, the column of the table it is from: "age", "race".
    categorical
        (F,) bool, whether it is part of a one-hot.
    low, high
        (F,) float32, the range of each feature in the training split.
    scale
        What one unit is: "raw", or how the features were scaled. Epsilon is in this unit.

    Raises
    ------
    DatasetError
        The lengths differ, or a range is empty or not finite.
    """

    names: tuple[str, ...]
    columns: tuple[str, ...]
    categorical: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: str = "raw"

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.names, self.columns, self.categorical, self.low, self.high)}
        if len(lengths) != 1 or not self.names:
            raise DatasetError(f"features need one name, column, kind and range each, not {sorted(lengths)} of them.")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all() and (self.low <= self.high).all()):
            raise DatasetError("the range of a feature is empty or not finite.")

    def free(self, protect: Sequence[str] = ()) -> np.ndarray:
        """Return (F,) bool, which features an attack may change.

        Parameters
        ----------
        protect
            Columns of the table that stay as they are; "categorical" stands for all that are one-hot.

        Raises
        ------
        DatasetError
            There is no such column (the nearest is suggested), or none is left.
        """
        known = list(dict.fromkeys(self.columns))
        free = np.ones(len(self.names), dtype=bool)
        for name in protect:
            if name == CATEGORICAL:
                free &= ~np.asarray(self.categorical, dtype=bool)
            elif name in known:
                free &= np.array([column != name for column in self.columns])
            else:
                raise DatasetError(f"--protect {name}: no such column.{suggest(name, [*known, CATEGORICAL])}")
        if not free.any():
            raise DatasetError(f"--protect {','.join(protect)} leaves no feature to change.")
        return free

    @cached_property
    def sha256(self) -> str:
        """Hash of all of it."""
        text = "\0".join((*self.names, *self.columns, self.scale))
        return sha256_bytes(text.encode(), sha256_array(self.categorical, self.low, self.high).encode())
