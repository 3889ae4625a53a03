"""Equalized-odds unfairness (``sooksatra2022``, Definition 4; PROTOCOL.md): confidence that depends on a group.

Among the test examples of one true label, the mean confidence of a class is taken in each group of an attribute; EOU is
the largest difference of two groups, a fraction in 0..1. Lower is better. With two classes the confidence is that of
the second one, as in the paper's Tables IV and V; with more it is that of the true label.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.groups import SMALLEST, groups_of, require_two
from fairbench.metrics.intervals import Interval, percentile_interval, resampled_means
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.registry import suggest

CLEAN = "clean"


@dataclass(frozen=True)
class EOU:
    """Mean confidences by true label and group, and their largest differences.

    Parameters
    ----------
    attribute, attack
        What the groups are of; "clean", or the attack under which the confidences were measured.
    groups
        A row per label and group: ``label``, ``class`` (whose confidence), ``group``, ``n``, ``mean``, and ``low`` and
        ``high``, the ends of its 95 % bootstrap interval.
    labels
        A row per label with two groups at least: ``label``, ``eou``, ``low``, ``high`` (bootstrap within groups).
    left_out
        How many examples the groups have that are too small, by (label, group).
    """

    attribute: str
    attack: str
    groups: pd.DataFrame
    labels: pd.DataFrame
    left_out: Mapping[tuple[str, str], int]

    def to_dict(self) -> dict[str, Any]:
        """Return dicts, lists and numbers."""
        return {
            "attribute": self.attribute,
            "attack": self.attack,
            "groups": self.groups.to_dict("records"),
            "labels": self.labels.to_dict("records"),
            "left_out": [{"label": label, "group": group, "n": n} for (label, group), n in self.left_out.items()],
        }


def eou(outcomes: Outcomes, attribute: str, attack: str = CLEAN) -> EOU:
    """Return mean confidences by group and EOU by true label; a group with fewer than 20 examples of it is left out.

    Raises
    ------
    OutcomesError
        The table lacks the attribute or the confidences, or no label has two groups of 20 examples.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": range(80), "label": [0, 1] * 40, "clean_pred": 1})
    >>> frame["sex"] = ["f"] * 40 + ["m"] * 40
    >>> frame["clean_label_confidence"] = [0.2, 0.9] * 20 + [0.3, 0.5] * 20
    >>> manifest = {"dataset": {"classes": ["no", "yes"], "attributes": ["sex"]}}
    >>> found = eou(Outcomes(frame, manifest), "sex")
    >>> found.labels["eou"].round(3).tolist(), found.groups["mean"].round(3).tolist()
    ([0.1, 0.4], [0.8, 0.7, 0.9, 0.5])
    """
    names, codes = groups_of(outcomes, attribute)
    values = _confidences(outcomes, attack)
    label = outcomes.frame["label"].to_numpy()
    two_classes = len(outcomes.classes) == 2
    known = (codes >= 0) & np.isfinite(values)
    groups, labels, left_out = [], [], {}
    sizes = np.zeros(len(names), dtype=np.int64)
    for y, of_label in enumerate(outcomes.classes):
        means, drawn = [], []
        for g, group in enumerate(names):
            found = values[known & (label == y) & (codes == g)]
            sizes[g] = max(sizes[g], len(found))
            if len(found) < SMALLEST:
                left_out[of_label, group] = len(found)
                continue
            draws = resampled_means(found[:, None], y * len(names) + g)[:, 0]
            mean, (low, high) = float(found.mean()), percentile_interval(np.asarray, draws, float(found.mean()))
            confident = outcomes.classes[1] if two_classes else of_label
            row = {"label": of_label, "class": confident, "group": group, "n": len(found), "mean": mean}
            groups.append(row | {"low": low, "high": high})
            means.append(mean)
            drawn.append(draws)
        if len(means) > 1:
            gap = float(spread(np.array(means)))
            low, high = _gap_interval(np.stack(drawn, axis=1), gap)
            labels.append({"label": of_label, "eou": gap, "low": low, "high": high})
    if not labels:
        small = {name: int(n) for name, n in zip(names, sizes, strict=True) if n < SMALLEST}
        require_two(f"{attribute}, in one class", sizes >= SMALLEST, small)
        raise OutcomesError(f"attribute {attribute}: no class has two groups of {SMALLEST} examples.")
    return EOU(attribute, attack, pd.DataFrame(groups), pd.DataFrame(labels), left_out)


def _gap_interval(drawn: np.ndarray, gap: float) -> Interval:
    return percentile_interval(spread, drawn, gap)


def _confidences(outcomes: Outcomes, attack: str) -> np.ndarray:
    """Return (N,) the confidence of the second of two classes, of the true label among more; NaN: not measured."""
    frame, two_classes = outcomes.frame, len(outcomes.classes) == 2
    known = [CLEAN, *outcomes.attacks]
    if attack not in known:
        raise OutcomesError(f"the outcomes have no attack '{attack}'.{suggest(attack, known)}")
    column = f"{attack}_label_confidence"
    if column in frame:
        values = frame[column].to_numpy(dtype=float, na_value=np.nan)
        return np.where(frame["label"].to_numpy() == 1, values, 1 - values) if two_classes else values
    if attack == CLEAN and two_classes and "clean_confidence" in frame:  # tables from before there was the column
        values = frame["clean_confidence"].to_numpy(dtype=float)
        return np.where(frame["clean_pred"].to_numpy() == 1, values, 1 - values)
    raise OutcomesError(f"the outcomes have no {column}: evaluate again, on data with attributes.")
