"""How CRU_eps and CRU_s change from a standard to a robust model on the same images, each with a paired interval."""

from collections.abc import Callable, Mapping

import numpy as np

from fairbench.metrics.class_means import ClassMeans
from fairbench.metrics.least_epsilon import limited_epsilons
from fairbench.metrics.paired import check_same_examples
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import Reading, verdict
from fairbench.reports.readings import ATTACK, Take
from fairbench.reports.sooksatra2022_pairs import LE
from fairbench.reports.values import signed

Quantity = Callable[[Outcomes], np.ndarray]
"""What is known of each example: (n,), finite."""


def _paired(a: Outcomes, b: Outcomes, *quantities: Quantity) -> ClassMeans:
    """Return class means of quantities of a, then of b, with the same examples resampled for both."""
    check_same_examples(a, b, LE)
    values = np.stack([quantity(outcomes) for outcomes in (a, b) for quantity in quantities], axis=1)
    return ClassMeans.of(a.frame["label"].to_numpy(), values, len(a.classes))


def _least(outcomes: Outcomes) -> np.ndarray:
    return limited_epsilons(outcomes, LE)


def _broken_at(radius: float) -> Quantity:
    """Return whether an example is broken at a radius, as 0 or 100."""

    def broken(outcomes: Outcomes) -> np.ndarray:
        least = outcomes.frame[f"{LE}_epsilon"].to_numpy(dtype=float)
        return np.where(least <= radius + 1e-6, 100.0, 0.0)

    return broken


def mean_change(
    statistic: Callable[[np.ndarray, np.ndarray], np.ndarray], decimals: int = 3, *, claimed: bool = False
) -> Take:
    """A statistic of the class means of least epsilon (..., K) and the class sizes, of both models; claimed to rise."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        means = _paired(a, b, _least)

        def of(model: int, values: np.ndarray) -> np.ndarray:
            return statistic(values[..., model], means.sizes)

        found = means.estimate(lambda m: of(1, m) - of(0, m))
        start = " to ".join(f"{float(of(model, means.observed)):.{decimals}f}" for model in (0, 1))
        judged = verdict(found.interval, above=True) if claimed else None
        return Reading(f"{start}: {signed(found, decimals)}", judged, value=found.value, interval=found.interval)

    return take


def gap_change(radius: float) -> Take:
    """CRU_s at a radius of both models, and the difference; claimed to rise."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        means = _paired(a, b, _broken_at(radius))
        found = means.estimate(lambda m: spread(m[..., 1]) - spread(m[..., 0]))
        start = " to ".join(f"{float(spread(means.observed[..., model])):.1f}" for model in (0, 1))
        text = f"{start}: {signed(found, 1)}"
        return Reading(text, verdict(found.interval, above=True), value=found.value, interval=found.interval)

    return take


def broken_share(radii: Mapping[str, float], a: Outcomes, _: Outcomes) -> Reading:
    """Say how much of the standard model is broken at each radius: where the two can be compared as in the paper."""
    shares = (f"{float(_broken_at(radius)(a).mean()):.1f} at {written}" for written, radius in radii.items())
    return Reading(", ".join(shares))


def withstanding(a: Outcomes, b: Outcomes) -> Reading:
    """Say of how many examples the search found no radius: they count as the largest, in means and their gap."""
    counts = (int((~np.isfinite(outcomes.frame[f"{LE}_epsilon"].to_numpy(dtype=float))).sum()) for outcomes in (a, b))
    return Reading(f"{' to '.join(f'{count:,}' for count in counts)} of {len(a.frame):,}")


def difference_change(smaller: float, larger: float) -> Take:
    """The difference of the two models' CRU_s at one radius and at a larger one; claimed to fall."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        return _difference_fell(_paired(a, b, _broken_at(smaller), _broken_at(larger)), ((0, 2), (1, 3)))

    return take


def difference_change_on_all(a: Outcomes, b: Outcomes, c: Outcomes, d: Outcomes) -> Reading:
    """The same under PGD-20, the two models at one radius (a, b) and at a larger one (c, d)."""
    for other in (b, c, d):
        check_same_examples(a, other, ATTACK)
    values = np.stack([_wrong_under_attack(outcomes) for outcomes in (a, b, c, d)], axis=1)
    means = ClassMeans.of(a.frame["label"].to_numpy(), values, len(a.classes))
    return _difference_fell(means, ((0, 1), (2, 3)))


def _difference_fell(means: ClassMeans, columns: tuple[tuple[int, int], tuple[int, int]]) -> Reading:
    """Read from shares of broken images whether robust less standard CRU_s fell; columns at either radius."""

    def difference(m: np.ndarray, radius: int) -> np.ndarray:
        standard, robust = columns[radius]
        return spread(m[..., robust]) - spread(m[..., standard])

    found = means.estimate(lambda m: difference(m, 1) - difference(m, 0))
    start = " to ".join(f"{float(difference(means.observed, radius)):+.1f}" for radius in (0, 1))
    text = f"{start}: {signed(found, 1)}"
    return Reading(text, verdict(found.interval, above=False), value=found.value, interval=found.interval)


def _wrong_under_attack(outcomes: Outcomes) -> np.ndarray:
    """Return whether each example is misclassified under PGD-20, as 0 or 100."""
    wrong = outcomes.frame[f"{ATTACK}_pred"].to_numpy() != outcomes.frame["label"].to_numpy()
    return np.where(wrong, 100.0, 0.0)
