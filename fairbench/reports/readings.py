"""Readings of two models on the same images: a change, a correlation over the classes, a shared worst class.

Each function here returns a function of the two models' outcomes, ``(before, after) -> Reading``, to be a row of a
claim. Intervals are those of the paired bootstrap.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairbench.metrics.intervals import Interval
from fairbench.metrics.paired import Estimate, class_rates, mcnemar, paired_bootstrap, paired_cells, resampled_rates
from fairbench.metrics.ranks import spearman
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import FAILS, HOLDS, OPEN, Reading, Row, not_measured, verdict
from fairbench.reports.values import signed

ATTACK = "pgd20"

SURE = 0.95
"""Share of the bootstrap draws that decides about a statement that has no number."""

Take = Callable[..., Reading]
Statistic = Callable[[np.ndarray], np.ndarray]
"""A function of class errors (..., K), in percent."""


@dataclass(frozen=True)
class Pair:
    """Two models' outcomes on the same images, and their joint counts."""

    a: Outcomes
    b: Outcomes
    cells: np.ndarray

    @classmethod
    def of(cls, a: Outcomes, b: Outcomes) -> "Pair":
        """Count; raises OutcomesError if the images are not the same."""
        return cls(a, b, paired_cells(a, b, ATTACK))

    def rates(self, *rates: str) -> np.ndarray:
        """Return the observed class errors, of :data:`~fairbench.metrics.paired.RATES`."""
        return class_rates(self.cells, *rates)

    def estimate(self, statistic: Callable[..., np.ndarray], *rates: str) -> Estimate:
        """Return a statistic of class errors with its interval."""
        return paired_bootstrap(self.cells, statistic, *rates)


Quantity = Callable[[Pair, str], tuple[Statistic, Callable[[np.ndarray], str]]]
"""What is compared: of a pair and a rate ("std", "rob"), the statistic, and what to write behind its value."""

Remark = Callable[[Pair, Estimate], str]


def worst_class(pair: Pair, rate: str) -> tuple[Statistic, Callable[[np.ndarray], str]]:
    """The largest class error, each model by its own worst class."""
    return worst, lambda errors: f" ({_worst_name(errors, pair.a.classes)})"


def class_worst_before(pair: Pair, rate: str) -> tuple[Statistic, Callable[[np.ndarray], str]]:
    """The error of the class that is worst with the first model, with both."""
    index = int(np.nanargmax(pair.rates(f"{rate}_a")[0]))
    return lambda errors: errors[..., index], lambda _: f" ({pair.a.classes[index]})"


def average(pair: Pair, rate: str) -> tuple[Statistic, Callable[[np.ndarray], str]]:
    """The error over all images."""
    sizes = pair.cells.sum(axis=(1, 2, 3, 4))
    return lambda errors: np.nansum(errors * sizes, axis=-1) / sizes.sum(), lambda _: ""


def change(statistic: Statistic, before: str, after: str, *, above: bool = True, decimals: int = 1) -> Take:
    """A statistic of one rate and of another, and the difference; claimed to rise, or to fall (``above=False``)."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        pair = Pair.of(a, b)
        values = (f"{float(statistic(errors)):.{decimals}f}" for errors in pair.rates(before, after))
        found = pair.estimate(lambda x, y: statistic(y) - statistic(x), before, after)
        return _reading(pair, found, f"{' to '.join(values)}: ", decimals=decimals, above=above)

    return take


def relative_change(
    quantity: Quantity, rate: str, *, above: bool = False, boundary: float = 0.0, remark: Remark | None = None
) -> Take:
    """A quantity before and after, and its change in percent of before; claimed below the boundary, or above."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        pair = Pair.of(a, b)
        found = relative_estimate(pair, quantity, rate)
        start = _before_after(pair, quantity, rate)
        return _reading(pair, found, start, unit=" %", above=above, boundary=boundary, remark=remark)

    return take


def point_change(quantity: Quantity, rate: str, *, above: bool = False, boundary: float = 0.0) -> Take:
    """A quantity before and after, and the difference in points; claimed below the boundary, or above.

    Of an average, McNemar's exact test speaks too.
    """

    def take(a: Outcomes, b: Outcomes) -> Reading:
        pair = Pair.of(a, b)
        found, text = difference(pair, quantity, rate)
        remark = f"McNemar p {_p_value(mcnemar(pair.cells, rate))}" if quantity is average and rate != "bndy" else ""
        judged = verdict(found.interval, above=above, boundary=boundary)
        return Reading(text, judged, remark, found.value, found.interval)

    return take


def _p_value(p: float) -> str:
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def row_of(
    results: Mapping[str, Outcomes], needed: Mapping[str, Sequence[str]], measure: str, report: str, take: Take
) -> Row:
    """Read a measure at each radius from the results ``needed`` there; where one is absent, the reading says which."""
    readings = {}
    for radius, names in needed.items():
        absent = [name for name in names if name not in results]
        readings[radius] = not_measured(absent) if absent else take(*(results[name] for name in names))
    return Row(measure, report, readings)


def relative_estimate(pair: Pair, quantity: Quantity, rate: str) -> Estimate:
    """Return the change of a quantity in percent of its first value; NaN where that is 0."""
    statistic, _ = quantity(pair, rate)

    def statistic_of_both(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        before, after = statistic(x), statistic(y)
        return 100 * (after - before) / np.where(before > 0, before, np.nan)

    return pair.estimate(statistic_of_both, f"{rate}_a", f"{rate}_b")


def difference(pair: Pair, quantity: Quantity, rate: str) -> tuple[Estimate, str]:
    """Return the difference of a quantity of "std", "rob" or "bndy" in points, and the text of both values and it."""
    statistic, _ = quantity(pair, rate)
    found = pair.estimate(lambda x, y: statistic(y) - statistic(x), f"{rate}_a", f"{rate}_b")
    return found, _before_after(pair, quantity, rate) + signed(found, 1)


def correlation(first: str, second: Statistic | Callable[..., np.ndarray], *rates: str) -> Take:
    """Spearman's correlation over the classes of one rate and a function of ``rates``; claimed positive."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        pair = Pair.of(a, b)
        found = pair.estimate(lambda x, *others: spearman(x, second(*others)), first, *rates)
        return _reading(pair, found, decimals=2)

    return take


def same_worst_class(*rates: str) -> Take:
    """The worst class of several rates: one and the same, in how many of the bootstrap draws."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        pair = Pair.of(a, b)
        names = ", ".join(_worst_name(errors, a.classes) for errors in pair.rates(*rates))
        drawn = resampled_rates(pair.cells, *rates)
        shared = (drawn == worst(drawn)[..., None]).all(axis=0).any(axis=-1)
        share = float(shared.mean())
        judged = HOLDS if share >= SURE else FAILS if share <= 1 - SURE else OPEN
        return Reading(
            f"{names}; the same in {100 * share:.1f} % of draws", judged, value=100 * share, unit="% of draws"
        )

    return take


def higher_in_most_classes(rate: str) -> Take:
    """In how many classes an error is higher after than before; claimed: in more than half, so many of the draws."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        pair = Pair.of(a, b)
        before, after = pair.rates(f"{rate}_a", f"{rate}_b")
        classes = int(np.isfinite(before).sum())
        drawn = resampled_rates(pair.cells, f"{rate}_a", f"{rate}_b")
        share = float(((drawn[1] > drawn[0]).sum(axis=-1) > classes / 2).mean())
        judged = HOLDS if share >= SURE else FAILS if share <= 1 - SURE else OPEN
        found = int((after > before).sum())
        text = f"{found} of {classes}; more than half in {100 * share:.1f} % of draws"
        return Reading(text, judged, value=100 * share, unit="% of draws")

    return take


def extent(rate: str) -> Take:
    """The smallest and the largest class error of a rate; says nothing of a claim."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        (errors,) = Pair.of(a, b).rates(rate)
        return Reading(f"{np.nanmin(errors):.1f} to {np.nanmax(errors):.1f}")

    return take


def deviation(errors: np.ndarray) -> np.ndarray:
    """Return the standard deviation over the classes (they are all there are: divided by their number)."""
    return np.nanstd(errors, axis=-1)


def cau(errors: np.ndarray) -> np.ndarray:
    """Return the largest difference of two class errors as a fraction: CAU, of standard errors."""
    return spread(errors) / 100


def worst(errors: np.ndarray) -> np.ndarray:
    """Return the largest class error."""
    return np.fmax.reduce(errors, axis=-1)


def inside(value: float, interval: Interval) -> bool:
    """Return whether an interval contains a value."""
    return interval[0] <= value <= interval[1]


def _reading(
    pair: Pair,
    found: Estimate,
    start: str = "",
    *,
    decimals: int = 1,
    unit: str = "",
    above: bool = True,
    boundary: float = 0.0,
    remark: Remark | None = None,
) -> Reading:
    return Reading(
        start + signed(found, decimals, unit),
        verdict(found.interval, above=above, boundary=boundary),
        "" if remark is None else remark(pair, found),
        found.value,
        found.interval,
        unit.strip(),
        decimals,
    )


def _before_after(pair: Pair, quantity: Quantity, rate: str) -> str:
    statistic, name = quantity(pair, rate)
    before, after = (f"{float(statistic(e)):.1f}{name(e)}" for e in pair.rates(f"{rate}_a", f"{rate}_b"))
    return f"{before} to {after}: "


def _worst_name(errors: np.ndarray, classes: tuple[str, ...]) -> str:
    ties = int((errors == worst(errors)).sum()) - 1
    name = classes[int(np.nanargmax(errors))]
    return f"{name} and {ties} more" if ties else name
