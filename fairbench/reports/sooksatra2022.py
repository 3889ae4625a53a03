"""Claims on unfairness beyond one epsilon, measured: ``sooksatra2022`` on CAU and CRU, ``sun2023`` on its Figure 2.

``sooksatra2022`` compares a standard with a robust CIFAR-10 network; here two such pairs are, and three of LeNet-5 on
Fashion-MNIST, on the same images each. Figure 2 of ``sun2023`` is about one model at a time.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from fairbench.leaderboard.results import published_folder
from fairbench.metrics.paired import Estimate
from fairbench.metrics.tendency import Tendency, tendency
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import MEASURED, Claim, Group, Paper, Reading, Row, not_measured, verdict
from fairbench.reports.readings import Take, cau, change, row_of
from fairbench.reports.sooksatra2022_changes import (
    broken_share,
    difference_change,
    difference_change_on_all,
    gap_change,
    mean_change,
    withstanding,
)
from fairbench.reports.sooksatra2022_figures import draw
from fairbench.reports.sooksatra2022_pairs import (
    ADULT_PGD_AT,
    ADULT_RADII,
    ADULT_STANDARD,
    ADULT_STATIC,
    CIFAR10_SEARCHED,
    PAIRS,
    READINGS,
    SEARCHED,
    TITLES,
    WHITE_BOX,
    Pair,
    on_adult,
    sample,
)
from fairbench.reports.values import fraction, measured, signed

_ADULT = {"Adult, the paper's robust model": ADULT_STATIC, "Adult, PGD-AT": ADULT_PGD_AT}
"""The pairs on Adult by their robust model; the standard one is the same."""
_FROM_FIGURE_2 = "`sun2023`, on its Figure 2 (ResNet-18 on CIFAR-10, PGD-AT)"


def measure(results: Mapping[str, Outcomes]) -> tuple[Claim, ...]:
    """Measure the claims with the results there are, by name; a row that lacks one says which.

    Raises
    ------
    OutcomesError
        Results that are compared are not of the same images.
    """
    found = {model: tendency(results[sample(model)]) for model in TITLES if sample(model) in results}
    return (
        accuracy_unfairness(results),
        least_epsilon_unfairness(results),
        success_rate_unfairness(results),
        shrinking_difference(results),
        source_classes(found),
        target_classes(found),
    )


def accuracy_unfairness(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 1: robust models have the larger CAU."""
    take = change(cau, "std_a", "std_b", decimals=3)

    def rows(pair: Pair) -> list[Row]:
        return [_row(results, pair.whole_split, "CAU, all test images", _printed("CAU", 3), take)]

    printed = _printed("CAU", 4, "Adult")

    def adult(robust: str) -> list[Row]:
        return [_row(results, on_adult(robust, ADULT_RADII[0], WHITE_BOX), "CAU, all test rows", printed, take)]

    return Claim(
        1,
        "A robust model has the larger CAU",
        "`sooksatra2022`: on CIFAR-10 the largest difference of two class accuracies is 0.286 for the standard and "
        "0.344 for the robust network, on Adult 0.0195 and 0.0205 (Section IV-B, Figure 1).",
        (*_pairs(rows), *_on_adult(adult)),
        "Values are of the standard and the robust model, and their difference.",
    )


def least_epsilon_unfairness(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 2: robust models have the larger CRU_eps."""

    def share(means: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        return spread(means) / (np.nansum(means * sizes, axis=-1) / sizes.sum())

    def smallest(means: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.fmin.reduce(means, axis=-1)

    def largest(means: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.fmax.reduce(means, axis=-1)

    def gap(means: np.ndarray, _: np.ndarray) -> np.ndarray:
        return spread(means)

    def rows(pair: Pair) -> list[Row]:
        names = pair.sample
        return [
            _row(results, names, "CRU_eps", _printed("CRU_eps", 4), mean_change(gap, pair.decimals, claimed=True)),
            _row(
                results,
                names,
                "smallest class mean of least epsilon",
                "hardly larger",
                mean_change(smallest, pair.decimals),
            ),
            _row(
                results,
                names,
                "largest class mean of least epsilon",
                "much larger",
                mean_change(largest, pair.decimals),
            ),
            _row(results, names, "CRU_eps, in units of the average least epsilon", "", mean_change(share)),
            _row(results, names, "images that withstand the largest radius", "", withstanding),
        ]

    return Claim(
        2,
        "A robust model has the larger CRU_eps",
        "`sooksatra2022`: on CIFAR-10 the largest difference of two classes' mean least epsilon is 0.0014 for the "
        "standard and 0.005 for the robust network, because hard classes gain little and easy ones much (Section IV-C, "
        "Figure 2).",
        _pairs(rows),
        f"Radii in pixels of [0, 1]; an image that {SEARCHED}/255 (on CIFAR-10 {CIFAR10_SEARCHED:g}) does not break "
        "counts as that, so where there are any, means are lower bounds, and their gap is one up to that radius. The "
        "gap in units of the average says whether it grows more than robustness as a whole does.",
    )


def success_rate_unfairness(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 3: robust models have the larger CRU_s."""
    gap = change(spread, "rob_a", "rob_b")

    def rows(pair: Pair) -> list[Row]:
        gaps = [
            _row(results, pair.sample, f"CRU_s at {written}, points", "larger", gap_change(radius))
            for written, radius in pair.radii.items()
        ]
        broken = partial(broken_share, pair.radii)
        shares = _row(results, pair.sample, "images broken, standard model, percent", "95.76 at 0.01", broken)
        whole = [
            _row(results, pair.at(radius, reading), f"CRU_s at {radius}, all test images, {reading}", "larger", gap)
            for radius in pair.whole
            for reading in READINGS
        ]
        return [*gaps, shares, *whole]

    def adult(robust: str) -> list[Row]:
        return [
            _row(
                results,
                on_adult(robust, radius, reading),
                f"CRU_s at {radius}, all test rows, {reading}",
                "larger",
                gap,
            )
            for radius in ADULT_RADII
            for reading in READINGS
        ]

    return Claim(
        3,
        "A robust model has the larger CRU_s",
        f"`sooksatra2022`: standard to robust, on CIFAR-10 {_printed_success_rates(1)} (Table I), on Adult "
        f"{_printed_success_rates(2)} (Table II). The smallest of the epsilons on CIFAR-10 already breaks the standard "
        "network on nearly all images.",
        (*_pairs(rows), *_on_adult(adult)),
        "Success rates are over all images of a class, clean errors included. The row of broken images says how far "
        "the standard model is broken: the paper compares where it is broken nearly whole.",
    )


def shrinking_difference(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 4: the difference of the two CRU_s shrinks as epsilon grows."""

    def rows(pair: Pair) -> list[Row]:
        sampled = [
            _row(results, pair.sample, f"robust less standard, {a} to {b}", "smaller", difference_change(at_a, at_b))
            for (a, at_a), (b, at_b) in itertools.pairwise(pair.radii.items())
        ]
        whole = [
            _row(
                results,
                pair.at(a, reading) + pair.at(b, reading),
                f"the same on all test images, {reading}, {a} to {b}",
                "smaller",
                difference_change_on_all,
            )
            for a, b in itertools.pairwise(pair.whole)
            for reading in READINGS
        ]
        return sampled + whole

    return Claim(
        4,
        "The difference of their CRU_s shrinks as epsilon grows",
        f"`sooksatra2022`: on CIFAR-10 it is {_printed_differences()}; the reason given is that the attack is more "
        "effective at larger epsilon (Section IV-C). On Adult the paper sees no such pattern.",
        _pairs(rows),
        "Each row compares the difference at a radius with that at the next, in points; a change below 0 means that "
        "the robust model's CRU_s comes nearer to the standard one's, or falls further below it.",
    )


def source_classes(found: Mapping[str, Tendency]) -> Claim:
    """Claim 5: the steps to break a class agree with its robust accuracy."""
    rows: list[_Measure] = [
        (
            "rank correlation of robust accuracy and mean least steps",
            "positive",
            lambda of: _correlation(of.steps_and_robustness, above=True),
        ),
        (
            "the same, of the broken images alone",
            "positive, if it leaves the others out",
            lambda of: _correlation(of.broken_steps_and_robustness, above=True),
        ),
        ("images that withstand all steps, percent", "", _withstanding),
        ("most steps that a broken image took", "", _most_steps),
    ]
    return Claim(
        5,
        "Steps to break a class agree with its robust accuracy",
        f"{_FROM_FIGURE_2}: the average number of attack steps (1,000 of 0.4/255) and the robust accuracy of the "
        "classes are correlated. It gives no number, and does not say how it counts images that are never broken.",
        _models(found, rows),
        "Robust accuracy is under PGD-10. An image that withstands counts as 1,000 steps in the first row. Where "
        "images break early or never, that mean is close to 1,000 times the share that withstands, and the first row "
        "agrees nearly by construction. The second row is free of this: do images of a robust class that break hold "
        "out longer?",
    )


def target_classes(found: Mapping[str, Tendency]) -> Claim:
    """Claim 6: the targets of adversarial examples are not uniform, and robust classes are rarely targets."""
    rows: list[_Measure] = [
        ("total variation of the targets from uniform", "clear tendency", partial(_distance, "total_variation")),
        ("KL from uniform, nats", "clear tendency", partial(_distance, "kl")),
        ("most frequent target", "", _most_frequent),
        (
            "rank correlation of robust accuracy and target share",
            "negative",
            lambda of: _correlation(of.targets_and_robustness, above=False),
        ),
    ]
    return Claim(
        6,
        "Targets are not uniform, and robust classes are rarely targets",
        f"{_FROM_FIGURE_2}: adversarial examples tend towards some classes, and the more robust a class, the rarer it "
        "is a target. It gives no number.",
        _models(found, rows),
        "Targets are the wrong predictions under PGD-10. A distance speaks of a tendency if its interval lies above "
        "what chance gives when each wrong prediction goes to any other class alike (the range in the remark holds "
        "95 % of such draws).",
    )


_Measure = tuple[str, str, Callable[[Tendency], Reading]]


def _printed(name: str, decimals: int, dataset: str = "CIFAR-10") -> str:
    """Return what the paper prints for a measure, standard to robust."""
    table = pd.read_csv(published_folder() / "sooksatra2022_text.csv").set_index(["measure", "dataset", "model"])
    before, after = (float(table["value"][name, dataset, model]) for model in ("standard", "robust"))
    return f"larger ({before:.{decimals}f} to {after:.{decimals}f})"


def _printed_table(number: int) -> pd.DataFrame:
    """Return CRU_s as Table I (CIFAR-10) or II (Adult) prints it: a row per epsilon, a column per model."""
    table = pd.read_csv(published_folder() / f"sooksatra2022_table{number}.csv")
    return table.pivot(index="epsilon", columns="model", values="cru_s")


def _printed_success_rates(number: int) -> str:
    rows = _printed_table(number).iterrows()
    return ", ".join(f"{row['standard']:.2f} to {row['robust']:.2f} at {epsilon:g}" for epsilon, row in rows)


def _printed_differences() -> str:
    rows = _printed_table(1).iterrows()
    return ", ".join(f"{row['robust'] - row['standard']:.2f} at {epsilon:g}" for epsilon, row in rows)


def _row(results: Mapping[str, Outcomes], names: Sequence[str], measure: str, report: str, take: Take) -> Row:
    return row_of(results, {MEASURED: names}, measure, report, take)


def _pairs(rows: Callable[[Pair], list[Row]]) -> tuple[Group, ...]:
    return tuple(Group(title, pair.models, tuple(rows(pair))) for title, pair in PAIRS.items())


def _on_adult(rows: Callable[[str], list[Row]]) -> tuple[Group, ...]:
    return tuple(Group(title, (ADULT_STANDARD, robust), tuple(rows(robust))) for title, robust in _ADULT.items())


def _models(found: Mapping[str, Tendency], rows: Sequence[_Measure]) -> tuple[Group, ...]:
    """Read measures of one model at a time."""

    def read(model: str, reading: Callable[[Tendency], Reading]) -> Reading:
        return reading(found[model]) if model in found else not_measured([sample(model)])

    return tuple(
        Group(title, (model,), tuple(Row(name, report, {MEASURED: read(model, of)}) for name, report, of in rows))
        for model, title in TITLES.items()
    )


def _correlation(found: Estimate, *, above: bool) -> Reading:
    judged = verdict(found.interval, above=above)
    return Reading(signed(found, 2), judged, value=found.value, interval=found.interval)


def _withstanding(found: Tendency) -> Reading:
    n = int(found.steps.classes["n"].sum())
    share = 100 * found.steps.censored / n if n else float("nan")
    return Reading(f"{share:.1f}", value=share)


def _most_steps(found: Tendency) -> Reading:
    return Reading("n/a" if found.steps.most is None else f"{found.steps.most:,} of {found.steps.limit:,}")


def _distance(name: str, found: Tendency) -> Reading:
    distance: Estimate = getattr(found, name)
    low, high = getattr(found, f"{name}_by_chance")
    return Reading(
        fraction(distance.value, distance.interval),
        verdict(distance.interval, above=True, boundary=high),
        f"by chance {low:.3f} to {high:.3f}",
        distance.value,
        distance.interval,
    )


def _most_frequent(found: Tendency) -> Reading:
    if found.classes["target"].isna().all():
        return Reading("n/a")
    row = found.classes.iloc[int(np.nanargmax(found.classes["target"]))]
    text = f"{row['class']}, {measured(row['target'], (row['target_low'], row['target_high']), 1, unit=' %')}"
    return Reading(text, None, f"{row['target_no_tendency']:.1f} % without tendency", float(row["target"]))


PAPER = Paper(
    key="sooksatra2022",
    title="CAU and CRU of standard and robust models, and sun2023's source and target classes",
    results=tuple(
        dict.fromkeys(
            [
                *(name for pair in PAIRS.values() for name in pair.results),
                *(
                    name
                    for robust in _ADULT.values()
                    for radius in ADULT_RADII
                    for reading in READINGS
                    for name in on_adult(robust, radius, reading)
                ),
            ]
        )
    ),
    radii=(MEASURED,),
    measure=measure,
    draw=draw,
    page="unfairness.md",
)
