"""Class means of the least PGD steps, the difficulty of a source class (``sun2023``, Figure 2; docs/definitions.md).

An example that withstands all steps (censored) would need more, or cannot be broken at all. It counts as the limit, as
the largest radius does in a mean least epsilon: the restricted mean of survival analysis, a lower bound. The mean of
the broken ones alone stands beside it. That one leaves out just those that a robust class has many of, so it can be
smaller for the more robust of two classes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairbench.metrics.class_means import ClassMeans
from fairbench.metrics.intervals import Interval
from fairbench.outcomes import Outcomes


@dataclass(frozen=True)
class LeastSteps:
    """What counting the least steps found; clean errors count as 0.

    ``classes`` has a row per class: ``class``, ``n``, ``mean`` (censored ones counted as ``limit``), ``low`` and
    ``high`` (95 % bootstrap interval), ``censored``, and ``mean_broken``, ``mean_broken_low``, ``mean_broken_high`` of
    the others (NaN where there are none).
    """

    limit: int
    average: float
    average_interval: Interval
    censored: int
    most: int | None
    """Most steps a broken example took; None where none was broken."""
    classes: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists and numbers."""
        return {
            "limit": self.limit,
            "average": self.average,
            "censored": self.censored,
            "most": self.most,
            "intervals": {"average": self.average_interval},
            "classes": self.classes.to_dict("records"),
        }


def least_steps(outcomes: Outcomes, attack: str) -> LeastSteps | None:
    """Return the class means of the least steps; None for another attack.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 0]})
    >>> frame["least-steps_pred"] = [1, 0, 0]
    >>> frame["least-steps_broken_at"] = pd.array([30, None, 0])  # the second withstands, the third is wrong clean
    >>> frame["least-steps_censored"] = [False, True, False]
    >>> manifest = {"dataset": {"classes": ["cat", "dog"]}, "attacks": {"least-steps": {"steps": 1000}}}
    >>> found = least_steps(Outcomes(frame, manifest), "least-steps")
    >>> found.classes["mean"].tolist(), found.classes["mean_broken"].tolist(), found.censored
    ([515.0, 0.0], [30.0, 0.0], 1)
    """
    if f"{attack}_censored" not in outcomes.frame or f"{attack}_broken_at" not in outcomes.frame:
        return None
    limit = int(outcomes.manifest["attacks"][attack]["steps"])
    frame = outcomes.frame[outcomes.frame[f"{attack}_pred"].notna()]
    label = frame["label"].to_numpy()
    means = ClassMeans.of(label, step_columns(frame, attack, limit), len(outcomes.classes))
    table = pd.DataFrame({"class": outcomes.classes, "n": means.sizes})
    table = table.join(means.by_class(restricted_mean, "mean", ("low", "high")))
    table["censored"] = np.bincount(label[frame[f"{attack}_censored"]], minlength=len(table))
    table = table.join(means.by_class(broken_mean, "mean_broken", ("mean_broken_low", "mean_broken_high")))
    average = means.estimate(lambda m: means.average(restricted_mean(m)))
    return LeastSteps(
        limit=limit,
        average=average.value if len(frame) else float("nan"),
        average_interval=average.interval,
        censored=int(table["censored"].sum()),
        most=None if (known := frame[f"{attack}_broken_at"].dropna()).empty else int(known.max()),
        classes=table,
    )


def step_columns(frame: pd.DataFrame, attack: str, limit: int) -> np.ndarray:
    """Return (n, 3): steps with the censored counted as ``limit``, whether broken, and steps where broken, else 0."""
    steps = frame[f"{attack}_broken_at"].to_numpy(dtype=float, na_value=np.nan)
    broken = np.isfinite(steps)
    return np.stack([np.where(broken, steps, limit), broken, np.where(broken, steps, 0)], axis=1)


def restricted_mean(means: np.ndarray) -> np.ndarray:
    """Return the mean with the censored counted as the limit, from class means (..., K, 3 or more)."""
    return means[..., 0]


def broken_mean(means: np.ndarray) -> np.ndarray:
    """Return the mean of the broken ones, from class means (..., K, 3 or more); NaN where there are none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return means[..., 2] / means[..., 1]
