"""Class means of the least epsilon, and CRU_eps (``sooksatra2022``, Definition 2; PROTOCOL.md). Lower CRU is better.

An example that no radius breaks (censored) has a least epsilon above the largest one tried. It counts as that, so a
mean with censored examples is a lower bound of the mean least epsilon; how many there are stands beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fairbench.metrics.intervals import Interval, percentile_interval, resampled_means
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes


@dataclass(frozen=True)
class LeastEpsilons:
    """What least-epsilon search found; radii in the unit of the inputs.

    ``classes`` has a row per class: ``class``, ``n``, ``mean``, ``low`` and ``high`` (95 % bootstrap interval) and
    ``censored``, the number of examples that withstood ``largest``.
    """

    largest: float
    average: float
    average_interval: Interval
    cru_eps: float
    cru_eps_interval: Interval
    censored: int
    classes: pd.DataFrame

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists and numbers."""
        return {
            "largest": self.largest,
            "average": self.average,
            "cru_eps": self.cru_eps,
            "censored": self.censored,
            "intervals": {"average": self.average_interval, "cru_eps": self.cru_eps_interval},
            "classes": self.classes.to_dict("records"),
        }


def least_epsilons(outcomes: Outcomes, attack: str) -> LeastEpsilons | None:
    """Return the class means of a search for least epsilon; None for another attack.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 0]})
    >>> frame["least-epsilon_pred"] = [1, 0, 0]
    >>> frame["least-epsilon_epsilon"] = [0.1, np.nan, 0.0]  # the second withstands 0.2, the third is wrong clean
    >>> manifest = {"dataset": {"classes": ["cat", "dog"]}, "attacks": {"least-epsilon": {"epsilon": 0.2}}}
    >>> found = least_epsilons(Outcomes(frame, manifest), "least-epsilon")
    >>> [round(v, 3) for v in found.classes["mean"]], round(found.cru_eps, 3), found.censored
    ([0.15, 0.0], 0.15, 1)
    """
    column = f"{attack}_epsilon"
    if column not in outcomes.frame:
        return None
    largest = float(outcomes.manifest["attacks"][attack]["epsilon"])
    frame = outcomes.frame[outcomes.frame[f"{attack}_pred"].notna()]
    label = frame["label"].to_numpy()
    radius = frame[column].to_numpy(dtype=float)
    values = [np.where(np.isnan(radius[label == c]), largest, radius[label == c]) for c in range(len(outcomes.classes))]
    sizes = np.array([len(of_class) for of_class in values])
    means = np.array([of_class.mean() if len(of_class) else np.nan for of_class in values])
    drawn = np.stack([resampled_means(of_class, c) for c, of_class in enumerate(values)], axis=1)

    def average(class_means: np.ndarray) -> np.ndarray:
        return np.nansum(class_means * sizes, axis=-1) / max(int(sizes.sum()), 1)

    def interval(statistic: Callable[[np.ndarray], np.ndarray]) -> Interval:
        return percentile_interval(statistic, drawn, float(statistic(means)))

    ends = [interval(partial(np.take, indices=c, axis=-1)) for c in range(len(values))]
    table = pd.DataFrame({"class": outcomes.classes, "n": sizes, "mean": means})
    table["low"], table["high"] = zip(*ends, strict=True)
    table["censored"] = [int(np.isnan(radius[label == c]).sum()) for c in range(len(values))]
    return LeastEpsilons(
        largest=largest,
        average=float(average(means)) if sizes.any() else float("nan"),
        average_interval=interval(average),
        cru_eps=float(spread(means)),
        cru_eps_interval=interval(spread),
        censored=int(table["censored"].sum()),
        classes=table,
    )
