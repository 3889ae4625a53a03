"""Class means of the least epsilon, and CRU_eps (``sooksatra2022``, Definition 2; docs/definitions.md).

Lower CRU is better. An example that no radius breaks (censored) has a least epsilon above the largest one tried. It
counts as that, so a mean with censored examples is a lower bound of the mean least epsilon; how many there are stands
beside it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.class_means import ClassMeans
from fairbench.metrics.intervals import Interval
from fairbench.metrics.paired import Estimate, check_same_examples
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
    measured = outcomes.frame[f"{attack}_pred"].notna().to_numpy()
    frame = outcomes.frame[measured]
    label = frame["label"].to_numpy()
    censored = np.bincount(label[frame[column].isna()], minlength=len(outcomes.classes))
    means = ClassMeans.of(label, limited_epsilons(outcomes, attack)[measured, None], len(outcomes.classes))
    average = means.estimate(lambda m: means.average(m[..., 0]))
    gap = means.estimate(lambda m: spread(m[..., 0]))
    table = pd.DataFrame({"class": outcomes.classes, "n": means.sizes})
    table = table.join(means.by_class(lambda m: m[..., 0], "mean", ("low", "high"))).assign(censored=censored)
    return LeastEpsilons(
        largest=largest,
        average=average.value if len(frame) else float("nan"),
        average_interval=average.interval,
        cru_eps=gap.value,
        cru_eps_interval=gap.interval,
        censored=int(censored.sum()),
        classes=table,
    )


def cru_eps_difference(a: Outcomes, b: Outcomes, attack: str, resized: Collection[str] = ()) -> Estimate | None:
    """Return CRU_eps of the second minus that of the first, by the same examples resampled; None for another attack.

    ``resized`` is as in :func:`~fairbench.metrics.paired.check_same_examples`.

    Raises
    ------
    OutcomesError
        They are not of the same examples, or searched up to other radii.
    """
    check_same_examples(a, b, attack, resized)
    if f"{attack}_epsilon" not in a.frame:
        return None
    if len({outcomes.manifest["attacks"][attack]["epsilon"] for outcomes in (a, b)}) > 1:
        raise OutcomesError(f"{attack} searched up to other radii; means of what withstands cannot be compared.")
    measured = (a.frame[f"{attack}_pred"].notna() & b.frame[f"{attack}_pred"].notna()).to_numpy()
    radii = np.stack([limited_epsilons(outcomes, attack)[measured] for outcomes in (a, b)], axis=1)
    means = ClassMeans.of(a.frame["label"].to_numpy()[measured], radii, len(a.classes))
    return means.estimate(lambda m: spread(m[..., 1]) - spread(m[..., 0]))


def limited_epsilons(outcomes: Outcomes, attack: str) -> np.ndarray:
    """Return each example's least epsilon (n,), those that withstand counted as the largest radius tried."""
    radius = outcomes.frame[f"{attack}_epsilon"].to_numpy(dtype=float)
    return np.where(np.isnan(radius), float(outcomes.manifest["attacks"][attack]["epsilon"]), radius)
