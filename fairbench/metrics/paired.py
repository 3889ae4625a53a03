"""Two models on the same examples: joint counts, and a bootstrap that resamples the examples of both at once.

The same images are hard for both models, so the difference between the two is known better than their separate
intervals say (docs/definitions.md, "Intervals").
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import BOOTSTRAP_SEED, DRAWS, Interval, percentile_interval
from fairbench.outcomes import Outcomes

RATES = ("std_a", "rob_a", "std_b", "rob_b")
"""Standard and robust error of the first and of the second model: the four axes of the joint counts, in order."""

BOUNDARY = {"bndy_a": ("std_a", "rob_a"), "bndy_b": ("std_b", "rob_b")}
"""Boundary errors: the second minus the first."""


@dataclass(frozen=True)
class Estimate:
    """An observed value and its 95 % interval."""

    value: float
    interval: Interval


def paired_cells(a: Outcomes, b: Outcomes, attack: str, resized: Collection[str] = ()) -> np.ndarray:
    """Count, per class, the sixteen ways an example can go with two models.

    Examples without a prediction under the attack, of either model, are left out; ``resized`` is as in
    :func:`check_same_examples`.

    Returns
    -------
    numpy.ndarray
        (K, 2, 2, 2, 2) int64: [class, wrong clean a, wrong under attack a, wrong clean b, wrong under attack b].

    Raises
    ------
    OutcomesError
        The two tables are not of the same examples, one lacks the attack, or no example was measured with both.
    """
    check_same_examples(a, b, attack, resized)
    column = f"{attack}_pred"
    measured = (a.frame[column].notna() & b.frame[column].notna()).to_numpy()
    if not measured.any():
        raise OutcomesError(f"no example has a prediction under {attack} of both {_name(a)} and {_name(b)}.")
    label = a.frame["label"].to_numpy()[measured]
    wrong = []
    for outcomes in (a, b):
        wrong.append(outcomes.frame["clean_pred"].to_numpy()[measured] != label)
        wrong.append(outcomes.frame[column].to_numpy(dtype=np.int64, na_value=-1)[measured] != label)
    cells = np.zeros((len(a.classes), 2, 2, 2, 2), dtype=np.int64)
    np.add.at(cells, (label, *(w.astype(int) for w in wrong)), 1)
    return cells


def class_rates(cells: np.ndarray, *rates: str) -> np.ndarray:
    """Return class errors in percent from joint counts (..., K, 2, 2, 2, 2); NaN for a class without an example.

    Parameters
    ----------
    rates
        Of :data:`RATES` and :data:`BOUNDARY`, in the order wanted.

    Returns
    -------
    numpy.ndarray
        (len(rates), ..., K).
    """
    total = cells.sum(axis=(-4, -3, -2, -1))

    def wrong(rate: str) -> np.ndarray:
        if rate in BOUNDARY:
            std, rob = BOUNDARY[rate]
            return wrong(rob) - wrong(std)
        counts: np.ndarray = np.take(cells, 1, axis=RATES.index(rate) - len(RATES)).sum(axis=(-3, -2, -1))
        return counts

    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack([100 * wrong(rate) / total for rate in rates])


def resampled_rates(cells: np.ndarray, *rates: str, draws: int = DRAWS, seed: int = BOOTSTRAP_SEED) -> np.ndarray:
    """Resample examples with replacement within each class, the same examples for both models.

    Counts are drawn, not examples: n_c examples of class c have multinomial counts. Axes that are not asked for are
    summed over first, so a statistic of standard errors alone does not depend on the attack.

    Returns
    -------
    numpy.ndarray
        (len(rates), draws, K), class errors in percent.
    """
    asked = {axis for rate in rates for axis in BOUNDARY.get(rate, (rate,))}
    others = tuple(axis + 1 for axis, rate in enumerate(RATES) if rate not in asked)
    kept = cells.sum(axis=others, keepdims=True)
    flat = kept.reshape(len(kept), -1)
    sizes = flat.sum(axis=1)
    shares = flat / np.maximum(sizes, 1)[:, None]
    drawn = np.random.default_rng(seed).multinomial(sizes, shares, size=(draws, len(kept)))
    return class_rates(drawn.reshape(draws, *kept.shape), *rates)


def paired_bootstrap(cells: np.ndarray, statistic: Callable[..., np.ndarray], *rates: str) -> Estimate:
    """Return a statistic of two models' class errors, with its 95 % percentile interval.

    Parameters
    ----------
    cells
        From :func:`paired_cells`.
    statistic
        Takes an array (..., K) in percent per rate, and returns (...).
    rates
        What it takes, of :data:`RATES` and :data:`BOUNDARY`.

    Examples
    --------
    >>> same = np.zeros((2, 2, 2, 2, 2), dtype=int)
    >>> same[:, 0, 0, 0, 0], same[:, 1, 1, 1, 1] = (8, 5), (2, 5)
    >>> paired_bootstrap(same, lambda a, b: b.max(-1) - a.max(-1), "rob_a", "rob_b")
    Estimate(value=0.0, interval=(0.0, 0.0))
    """
    value = float(statistic(*class_rates(cells, *rates)))
    return Estimate(value, percentile_interval(lambda drawn: statistic(*drawn), resampled_rates(cells, *rates), value))


def mcnemar(cells: np.ndarray, rate: str) -> float:
    """Return the p-value of McNemar's exact test: do the models err equally often on the same examples (1947)?

    Parameters
    ----------
    cells
        From :func:`paired_cells`.
    rate
        "std" or "rob".

    Examples
    --------
    >>> cells = np.zeros((1, 2, 2, 2, 2), dtype=int)
    >>> cells[0, 0, 0, 0, 0], cells[0, 1, 1, 0, 0] = 90, 6  # 6 that only the first gets wrong
    >>> mcnemar(cells, "std")
    0.03125
    """
    axes = [RATES.index(f"{rate}_{model}") + 1 for model in "ab"]
    both = cells.sum(axis=tuple(axis for axis in range(cells.ndim) if axis not in axes))
    only_first, only_second = int(both[1, 0]), int(both[0, 1])
    if only_first + only_second == 0:
        return 1.0
    return float(binomtest(only_first, only_first + only_second, 0.5).pvalue)


def check_same_examples(a: Outcomes, b: Outcomes, attack: str, resized: Collection[str] = ()) -> None:
    """Check that two outcome tables are of the same examples under the same attack.

    Parameters
    ----------
    resized
        Names of datasets whose images were resized to what each model takes: one test split, whose hash differs by
        size. Of others, images of another size are other images.

    Raises
    ------
    OutcomesError
        They are not, or one lacks the attack.
    """
    for outcomes in (a, b):
        if attack not in outcomes.attacks:
            raise OutcomesError(f"the outcomes of {_name(outcomes)} have no {attack}.")
    images = {outcomes.manifest["dataset"].get("sha256") for outcomes in (a, b)} - {None}
    same = a.classes == b.classes and all(a.frame[c].equals(b.frame[c]) for c in ("index", "label"))
    if not same or (len(images) > 1 and not differ_in_size(a, b, resized)):
        raise OutcomesError(f"{_name(a)} and {_name(b)} were not evaluated on the same examples; nothing to compare.")


def differ_in_size(a: Outcomes, b: Outcomes, resized: Collection[str]) -> bool:
    """Whether two tables are of one dataset of those ``resized``, its images (C, H, W) at two sizes."""
    first, second = (outcomes.manifest["dataset"] for outcomes in (a, b))
    shapes = [list(held.get("shape") or ()) for held in (first, second)]
    one = first.get("name") in resized and first.get("name") == second.get("name")
    return one and shapes[0] != shapes[1] and [len(s) for s in shapes] == [3, 3] and shapes[0][0] == shapes[1][0]


def _name(outcomes: Outcomes) -> str:
    return str(outcomes.manifest.get("model", {}).get("name", "unnamed"))
