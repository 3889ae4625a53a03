"""Equalized-odds unfairness (``sooksatra2022``, Definition 4; docs/definitions.md): confidence that depends on a group.

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


def eou_difference(a: Outcomes, b: Outcomes, attribute: str, attack: str = CLEAN) -> pd.DataFrame:
    """Return by how much the EOU of ``b`` is above that of ``a``: a row per true label with two groups at least.

    Columns ``label``, ``difference``, ``low`` and ``high``: a bootstrap that draws the same examples for both models,
    within labels and groups (1,000 draws). An interval without 0 tells them apart, which two overlapping intervals of
    the models do not rule out.

    Raises
    ------
    OutcomesError
        The tables are not of the same examples, or lack the attribute or the confidences.
    """
    if not of_same_examples(a, b):
        raise OutcomesError("the models were not evaluated on the same examples; there is no difference to test.")
    names, codes = groups_of(a, attribute)
    values = np.stack([_confidences(a, attack), _confidences(b, attack)], axis=1)
    label = a.frame["label"].to_numpy()
    known = (codes >= 0) & np.isfinite(values).all(axis=1)
    rows = []
    for y, of_label in enumerate(a.classes):
        members = {g: values[known & (label == y) & (codes == g)] for g in range(len(names))}
        kept = {g: found for g, found in members.items() if len(found) >= SMALLEST}
        if len(kept) < 2:
            continue
        means = np.stack([found.mean(axis=0) for found in kept.values()], axis=-1)
        drawn = np.stack([resampled_means(found, y * len(names) + g) for g, found in kept.items()], axis=-1)
        difference = float(_second_minus_first(means))
        low, high = percentile_interval(_second_minus_first, drawn, difference)
        rows.append({"label": of_label, "difference": difference, "low": low, "high": high})
    return pd.DataFrame(rows, columns=["label", "difference", "low", "high"])


def of_same_examples(a: Outcomes, b: Outcomes) -> bool:
    """Whether two tables have the same examples, so that their EOU can be subtracted."""
    return a.classes == b.classes and all(a.frame[c].equals(b.frame[c]) for c in ("index", "label"))


def _second_minus_first(means: np.ndarray) -> np.ndarray:
    """Return the difference of the spreads of (..., 2, groups)."""
    gaps = spread(means)
    return np.asarray(gaps[..., 1] - gaps[..., 0])


def _gap_interval(drawn: np.ndarray, gap: float) -> Interval:
    return percentile_interval(spread, drawn, gap)


def _confidences(outcomes: Outcomes, attack: str) -> np.ndarray:
    """Return (N,) the confidence of the second of two classes, of the true label among more; NaN: not measured."""
    frame, two_classes = outcomes.frame, len(outcomes.classes) == 2
    known = [CLEAN, *outcomes.attacks]
    if attack not in known:
        raise OutcomesError(f"the outcomes have no attack '{attack}'.{suggest(attack, known)}")
    column = f"{attack}_label_confidence"
    if column not in frame:
        raise OutcomesError(f"the outcomes have no {column}: evaluate again, on data with attributes.")
    values = frame[column].to_numpy(dtype=float, na_value=np.nan)
    return np.where(frame["label"].to_numpy() == 1, values, 1 - values) if two_classes else values
