"""Class means of what is known of each example, and their bootstrap statistics (docs/definitions.md)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairbench.metrics.intervals import DRAWS, percentile_interval, resampled_means
from fairbench.metrics.paired import Estimate


@dataclass(frozen=True)
class ClassMeans:
    """Means of C quantities by class: observed, and of examples resampled within classes.

    Parameters
    ----------
    sizes
        (K,) numbers of examples.
    observed, drawn
        (K, C) and (draws, K, C); NaN for a class without an example.
    """

    sizes: np.ndarray
    observed: np.ndarray
    drawn: np.ndarray

    @classmethod
    def of(cls, label: np.ndarray, values: np.ndarray, num_classes: int) -> "ClassMeans":
        """Take the means of ``values`` (n, C), finite, by ``label`` (n,)."""
        sizes = np.bincount(label, minlength=num_classes)
        observed = np.full((num_classes, values.shape[1]), np.nan)
        drawn = np.full((DRAWS, *observed.shape), np.nan)
        for c in np.flatnonzero(sizes):
            of_class = values[label == c]
            observed[c] = of_class.mean(axis=0)
            drawn[:, c] = resampled_means(of_class, int(c))
        return cls(sizes, observed, drawn)

    def estimate(self, statistic: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        """Return a statistic of class means, which takes (..., K, C) and returns (...), with its interval."""
        value = float(statistic(self.observed))
        return Estimate(value, percentile_interval(statistic, self.drawn, value))

    def by_class(self, quantity: Callable[[np.ndarray], np.ndarray], name: str, ends: tuple[str, str]) -> pd.DataFrame:
        """Return a quantity, which maps (..., K, C) to (..., K), of each class, and the ends of its interval."""
        observed, drawn = quantity(self.observed), quantity(self.drawn)
        rows = [(v, *percentile_interval(lambda d: d, drawn[:, c], float(v))) for c, v in enumerate(observed)]
        return pd.DataFrame(rows, columns=[name, *ends])

    def average(self, means: np.ndarray) -> np.ndarray:
        """Return the mean over all examples, not over classes, from the means (..., K) of one quantity."""
        return np.nansum(means * self.sizes, axis=-1) / max(int(self.sizes.sum()), 1)
