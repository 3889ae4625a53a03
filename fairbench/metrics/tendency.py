"""Source- and target-class fairness (``sun2023``, Figure 2; docs/definitions.md).

What breaks into what, and how hard it is.

Row s of the confusion matrix holds the examples of true class s, column t those predicted as t under attack. The target
of a wrong prediction is its column; its distribution over the classes is compared with the uniform one over all K
classes of the dataset, absent ones included, because a model can predict a class of which the test set has no example.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import BOOTSTRAP_SEED, DRAWS, Interval, percentile_interval, resampled_means, wilson
from fairbench.metrics.least_steps import LeastSteps, broken_mean, least_steps, restricted_mean, step_columns
from fairbench.metrics.paired import Estimate
from fairbench.metrics.ranks import spearman
from fairbench.outcomes import Outcomes


@dataclass(frozen=True)
class Tendency:
    """Tendencies of one model under attack, with 95 % intervals.

    Parameters
    ----------
    confusion
        (K, K) int64 counts.
    classes
        A row per class: ``class``, ``n``, ``rob_acc`` with ``rob_acc_low`` and ``rob_acc_high`` (percent, Wilson),
        ``target`` (percent of the wrong predictions that go to the class) with ``target_low`` and ``target_high``
        (bootstrap), ``target_no_tendency`` (what it would be if each wrong prediction went to any other class alike).
    steps
        The least steps by class.
    total_variation
        Of the target-class distribution from uniform: half the sum of absolute differences, 0 to 1 - 1/K.
    kl
        KL divergence of the target-class distribution from uniform, natural logarithm: 0 to log K nats.
    total_variation_by_chance, kl_by_chance
        Where 95 % of these distances lie if each wrong prediction goes to any other class alike.
    steps_and_robustness, broken_steps_and_robustness
        Spearman's correlation, over the classes, of robust accuracy and mean steps: the censored counted as the limit,
        and of the broken alone.
    targets_and_robustness
        The same of robust accuracy and target share.
    """

    attack: str
    confusion: np.ndarray
    classes: pd.DataFrame
    steps: LeastSteps
    total_variation: Estimate
    kl: Estimate
    total_variation_by_chance: Interval
    kl_by_chance: Interval
    steps_and_robustness: Estimate
    broken_steps_and_robustness: Estimate
    targets_and_robustness: Estimate


def tendency(outcomes: Outcomes, attack: str = "pgd10", steps: str = "least-steps") -> Tendency:
    """Return the tendencies under ``attack``, and the least steps that ``steps`` counted.

    Raises
    ------
    OutcomesError
        One of the two attacks is not in the outcomes.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 1], "pgd10_pred": [1, 0, 0]})
    >>> frame["least-steps_pred"], frame["least-steps_broken_at"] = [1, 0, 0], pd.array([30, None, 2])
    >>> frame["least-steps_censored"] = [False, True, False]
    >>> manifest = {"dataset": {"classes": ["cat", "dog", "fox"]}, "attacks": {"least-steps": {"steps": 1000}}}
    >>> found = tendency(Outcomes(frame, manifest))
    >>> found.classes["target"].tolist(), round(found.total_variation.value, 3)
    ([50.0, 50.0, 0.0], 0.333)
    """
    if attack not in outcomes.attacks:
        raise OutcomesError(f"the outcomes have no {attack}, from which the confusion matrix is made.")
    counted = least_steps(outcomes, steps)
    if counted is None:
        raise OutcomesError(f"the outcomes have no {steps}: the steps to break an example were not counted.")
    both = outcomes.frame[[f"{attack}_pred", f"{steps}_pred"]].notna().all(axis=1)
    frame = outcomes.frame[both]
    label = frame["label"].to_numpy()
    predicted = frame[f"{attack}_pred"].to_numpy(dtype=np.int64)
    k = len(outcomes.classes)
    confusion = np.zeros((k, k), dtype=np.int64)
    np.add.at(confusion, (label, predicted), 1)
    columns = step_columns(frame, steps, counted.limit)
    means, wrong = _resampled(label, predicted, columns, k)
    targets = target_shares(wrong_targets(confusion))
    drawn = target_shares(wrong)
    observed = _observed(label, predicted, columns, k)

    def correlation(quantity: Callable[[np.ndarray], np.ndarray]) -> Estimate:
        return _estimate(spearman(quantity(means), means[..., 3]), spearman(quantity(observed), observed[..., 3]))

    by_chance = target_shares(_without_tendency(confusion))
    return Tendency(
        attack=attack,
        confusion=confusion,
        classes=_classes(outcomes.classes, confusion, targets, drawn),
        steps=counted,
        total_variation=_estimate(total_variation(drawn), total_variation(targets)),
        kl=_estimate(kl(drawn), kl(targets)),
        total_variation_by_chance=percentile_interval(total_variation, by_chance),
        kl_by_chance=percentile_interval(kl, by_chance),
        steps_and_robustness=correlation(restricted_mean),
        broken_steps_and_robustness=correlation(broken_mean),
        targets_and_robustness=_estimate(spearman(drawn, means[..., 3]), spearman(targets, observed[..., 3])),
    )


def wrong_targets(confusion: np.ndarray) -> np.ndarray:
    """Return how many wrong predictions go to each class: column sums (..., K) without the diagonal."""
    return confusion.sum(axis=-2) - np.diagonal(confusion, axis1=-2, axis2=-1)


def target_shares(wrong: np.ndarray) -> np.ndarray:
    """Return the target-class distribution, (..., K) fractions, from counts (..., K) of :func:`wrong_targets`.

    NaN where no prediction is wrong.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return wrong / wrong.sum(axis=-1, keepdims=True)


def total_variation(shares: np.ndarray) -> np.ndarray:
    """Return the total variation distance of distributions (..., K) from the uniform one: 0 to 1 - 1/K.

    Examples
    --------
    >>> float(total_variation(np.array([0.5, 0.5, 0.0, 0.0])))
    0.5
    """
    return np.abs(shares - 1 / shares.shape[-1]).sum(axis=-1) / 2


def kl(shares: np.ndarray) -> np.ndarray:
    """Return KL(shares || uniform) of distributions (..., K), natural logarithm: 0 to log K.

    Examples
    --------
    >>> round(float(kl(np.array([0.5, 0.5, 0.0, 0.0]))), 4)  # log 2
    0.6931
    """
    ratio = np.where(shares == 0, 1, shares * shares.shape[-1])
    return (shares * np.log(ratio)).sum(axis=-1)


def _resampled(label: np.ndarray, predicted: np.ndarray, columns: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Resample within classes: return means (draws, K, 4) of ``columns`` and of being right, and wrong targets.

    A class at a time, because all resampled confusion matrices at once would not fit in memory for 1,000 classes.
    """
    means = np.full((DRAWS, k, 4), np.nan)
    wrong = np.zeros((DRAWS, k))
    for c in np.unique(label):
        rows = label == c
        hits = predicted[rows, None] == np.arange(k)
        drawn = resampled_means(np.concatenate([columns[rows], hits], axis=1), int(c))
        means[:, c] = drawn[:, [0, 1, 2, 3 + c]]
        drawn[:, 3 + c] = 0
        wrong += rows.sum() * drawn[:, 3:]
    return means, wrong


def _observed(label: np.ndarray, predicted: np.ndarray, columns: np.ndarray, k: int) -> np.ndarray:
    """Return the means (K, 4) of ``columns`` and of being right."""
    means = np.full((k, 4), np.nan)
    for c in np.unique(label):
        rows = label == c
        means[c] = [*columns[rows].mean(axis=0), (predicted[rows] == c).mean()]
    return means


def _without_tendency(confusion: np.ndarray) -> np.ndarray:
    """Draw the targets (draws, K) of as many wrong predictions of each class, any other class being as likely."""
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    k = len(confusion)
    total = np.zeros((DRAWS, k), dtype=np.int64)
    for source, count in enumerate(confusion.sum(axis=1) - np.diagonal(confusion)):
        others = np.full(k, 1 / (k - 1))
        others[source] = 0
        total += generator.multinomial(count, others, size=DRAWS)
    return total


def _estimate(drawn: np.ndarray, value: np.ndarray) -> Estimate:
    return Estimate(float(value), percentile_interval(lambda values: values, drawn, float(value)))


def _classes(names: tuple[str, ...], confusion: np.ndarray, targets: np.ndarray, drawn: np.ndarray) -> pd.DataFrame:
    n, right = confusion.sum(axis=1), np.diagonal(confusion)
    wrong = n - right
    with np.errstate(invalid="ignore", divide="ignore"):
        table = pd.DataFrame({"class": names, "n": n, "rob_acc": 100 * right / n})
        table["rob_acc_low"], table["rob_acc_high"] = zip(*map(wilson, right, n), strict=True)
        ends = [_estimate(drawn[:, c], targets[c]).interval for c in range(len(n))]
        table["target"] = 100 * targets
        table["target_low"], table["target_high"] = 100 * np.array(ends).T
        table["target_no_tendency"] = 100 * (wrong.sum() - wrong) / (len(n) - 1) / wrong.sum()
    return table
