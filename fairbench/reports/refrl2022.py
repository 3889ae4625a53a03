"""The four claims of ``refrl2022``, the reproduction of FRL (``xu2021``) with LeNet-5 on Fashion-MNIST, measured.

Each claim is a pure function of kept outcome tables, at 16/255, with which the report's notebooks evaluate, and at
8/255. Two models are compared on the same images: intervals tell what other test images could change, not what another
training would.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from fairbench.leaderboard.results import published_folder
from fairbench.metrics.intervals import Interval
from fairbench.metrics.paired import Estimate
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import FAILS, HOLDS, OPEN, Claim, Group, Paper, Reading, Row, verdict
from fairbench.reports.readings import (
    SURE,
    Pair,
    Quantity,
    Take,
    average,
    cau,
    change,
    class_worst_before,
    correlation,
    deviation,
    difference,
    extent,
    higher_in_most_classes,
    inside,
    relative_change,
    relative_estimate,
    row_of,
    same_worst_class,
    worst_class,
)

RADII = {"16/255": "standard.epsilon-16-255", "8/255": "standard"}
"""The radii, that of the report's notebooks first, each with the end of its results' names."""

STANDARD, AT = "standard_lenet5_fashion_mnist", "refrl_at_lenet5_fashion_mnist"
REWEIGHT, REMARGIN = "refrl_reweight_lenet5_fashion_mnist", "refrl_remargin_lenet5_fashion_mnist"
AS_PUBLISHED = "refrl_remargin_as_published_lenet5_fashion_mnist"
PUBLIC_STANDARD, PUBLIC_AT = "lenet5_fashion_natural", "lenet5_fashion_adversarial"
MODELS = (STANDARD, AT, REWEIGHT, REMARGIN, AS_PUBLISHED, PUBLIC_STANDARD, PUBLIC_AT)

LITTLE = 5.0
"""A relative reduction below this counts as "little", in percent: the report gives no number, and calls 11 % one."""


def result_of(model: str, radius: str) -> str:
    """Return the name of a model's kept result at a radius.

    Examples
    --------
    >>> result_of("lenet5_fashion_natural", "16/255")
    'lenet5_fashion_natural.standard.epsilon-16-255'
    """
    return f"{model}.{RADII[radius]}"


def published_reductions(folder: Path | None = None) -> dict[str, float]:
    """Return the reductions of the worst-class errors that the report prints for claim 3, in percent: "std", "rob"."""
    table = pd.read_csv((folder or published_folder()) / "refrl2022_claims.csv").set_index("measure")["value"]
    names = {"std": "standard", "rob": "robust"}
    return {rate: float(table[f"relative reduction of worst-class {name} error"]) for rate, name in names.items()}


def measure(results: Mapping[str, Outcomes]) -> tuple[Claim, ...]:
    """Measure the four claims with the results there are, by name; a row that lacks one says which.

    Raises
    ------
    OutcomesError
        Results that are compared are not of the same images.
    """
    return (
        inequality(results),
        same_classes(results),
        reweighting(results, published_reductions()),
        remargining(results),
    )


def inequality(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 1: adversarial training makes class errors unequal."""

    def rows(*models: str) -> tuple[Row, ...]:
        row = partial(_row, results, models)
        return (
            row("CAU, the largest gap of the standard error", "larger", change(cau, "std_a", "std_b", decimals=3)),
            row("largest gap, standard before and robust after, points", "larger", change(spread, "std_a", "rob_b")),
            row("largest gap of the robust error, points", "larger", change(spread, "rob_a", "rob_b")),
            row("standard deviation of the robust error, points", "larger", change(deviation, "rob_a", "rob_b")),
            row("range of the robust error before", "high, not quite uniform", extent("rob_a")),
        )

    return Claim(
        1,
        "Adversarial training makes class errors unequal",
        "The report: after adversarial training some classes are much more robust than others, and the standard error "
        "suffers unequally (Section 4.1, Figure 1). It gives no number.",
        _both_pairs(rows),
        "Values are before to after adversarial training, and their difference. The gap of the robust error before "
        "depends on where these errors lie: all near 100 % they leave no room for a gap, in between they can have a "
        "large one. So the two rows that compare robust errors say less about adversarial training than those that "
        "compare with the standard error before.",
    )


def same_classes(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 2: the worst classes are those that were worst before."""

    def rows(*models: str) -> tuple[Row, ...]:
        row = partial(_row, results, models)
        return (
            row("worst class: standard before, standard after, robust after", "the same", _SAME_WORST),
            row("rank correlation of standard before and robust after", "positive", _WITH_ROBUST),
            row("rank correlation of standard before and its increase", "positive", _WITH_INCREASE),
        )

    return Claim(
        2,
        "The worst classes are those that were worst before",
        "The report: the classes with the larger standard error before adversarial training have the larger robust "
        "error after it, and their standard error suffers most (Section 4.1, Figure 1). It gives no number.",
        _both_pairs(rows),
        "The correlation is Spearman's, over the classes. Resampling adds noise, which pulls a correlation towards 0 "
        "(the second below it), so its interval reaches too far down rather than too far up. The worst class counts as "
        f"the same if it is in {100 * SURE:.0f} % of the draws.",
    )


def reweighting(results: Mapping[str, Outcomes], published: Mapping[str, float]) -> Claim:
    """Claim 3: reweighting 5:1 lowers the worst class's standard error and, less, its robust error.

    ``published`` is what :func:`published_reductions` returns.
    """
    row = partial(_row, results, (AT, REWEIGHT))
    rows = []
    for rate, name in (("std", "standard"), ("rob", "robust")):
        remark = partial(_beside_the_published, published[rate])
        report = f"{published[rate]:g} % lower"
        rows += [
            row(f"worst {name} error", report, relative_change(worst_class, rate, remark=remark)),
            row(
                f"{name} error of the class worst before",
                report,
                relative_change(class_worst_before, rate, remark=remark),
            ),
        ]
    rows += [
        row(
            "CAU, the largest gap of the standard error",
            "lower",
            change(cau, "std_a", "std_b", above=False, decimals=3),
        ),
        row("largest gap of the robust error, points", "lower, less", change(spread, "rob_a", "rob_b", above=False)),
    ]
    return Claim(
        3,
        "Reweighting 5:1 lowers the worst class's errors",
        f"The report: the worst class's standard error falls by {published['std']:g} % and its robust error by "
        f"{published['rob']:g} %, relative to adversarial training, and the classes come nearer to each other, in "
        "standard error more than in robust error (Summary, Sections 3.3 and 4.1, Figure 2).",
        (Group("our models", (AT, REWEIGHT), tuple(rows)),),
        "Values are errors in percent before to after reweighting, and the relative change, of gaps the difference; "
        "below 0 is better. The verdict is on the direction, what follows it on the size.",
    )


def remargining(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 4: remargining helps the worst class little, and robustness degrades; and whether mixed labels are why."""

    def rows(*models: str) -> tuple[Row, ...]:
        row = partial(_row, results, models)
        robust = relative_change(worst_class, "rob", above=True, boundary=-LITTLE, remark=_as_xu2021)
        return (
            row("worst standard error", "slightly lower", relative_change(worst_class, "std", remark=_slightly)),
            row("worst robust error", f"lower by little or nothing (here: less than {LITTLE:g} %)", robust),
            row(
                "average robust error",
                "higher",
                relative_change(average, "rob", above=True),
            ),
            row("classes with a higher robust error", "most", higher_in_most_classes("rob")),
            row(
                "standard deviation of the robust error, points",
                "lower",
                change(deviation, "rob_a", "rob_b", above=False),
            ),
        )

    mixed = partial(_row, results, (AT, REMARGIN, AS_PUBLISHED))
    return Claim(
        4,
        "Remargining helps the worst class little, and robustness degrades",
        "The report: the worst class's standard error falls slightly, its robust error little or not at all, and the "
        "robust error of most classes rises, at less variance across classes (Sections 4 and 4.1, Figure 3). It gives "
        "no number. `xu2021` found the opposite: remargining lowers the worst robust error, and more than reweighting.",
        (
            Group("right labels", (AT, REMARGIN), rows(AT, REMARGIN)),
            Group("labels mixed up as in the public code", (AT, AS_PUBLISHED), rows(AT, AS_PUBLISHED)),
            Group(
                "the mix-up as the explanation",
                (AT, REMARGIN, AS_PUBLISHED),
                (
                    mixed("worst standard error", "", _explained(worst_class, "std", None)),
                    mixed("worst robust error not lowered", "", _explained(worst_class, "rob", _not_lowered)),
                    mixed("average robust error higher", "", _explained(average, "rob", _higher)),
                ),
            ),
        ),
        "Values are errors in percent before to after remargining, and the relative change; below 0 is better. The "
        f"verdict is on the direction; most classes are more than half of them, in {100 * SURE:.0f} % of the draws. In "
        "the last table they are with right to with mixed labels, and the difference in points: the mix-up explains "
        "what is found with mixed labels and not with right ones, if the difference is not chance.",
    )


_SAME_WORST = same_worst_class("std_a", "std_b", "rob_b")
_WITH_ROBUST = correlation("std_a", lambda rob_b: rob_b, "rob_b")
_WITH_INCREASE = correlation("std_a", lambda std_a, std_b: std_b - std_a, "std_a", "std_b")


def _row(results: Mapping[str, Outcomes], models: tuple[str, ...], measure: str, report: str, take: Take) -> Row:
    needed = {radius: [result_of(model, radius) for model in models] for radius in RADII}
    return row_of(results, needed, measure, report, take)


def _both_pairs(rows: Callable[..., tuple[Row, ...]]) -> tuple[Group, ...]:
    ours, public = (STANDARD, AT), (PUBLIC_STANDARD, PUBLIC_AT)
    return Group("our models", ours, rows(*ours)), Group("the report's public checkpoints", public, rows(*public))


def _beside_the_published(reduction: float, _: Pair, found: Estimate) -> str:
    """Say where the published reduction lies; changes are negative where an error fell."""
    if np.isnan(found.value):
        return ""
    if inside(-reduction, found.interval):
        return f"{reduction:g} % is in the interval"
    return f"{reduction:g} % is not in the interval: {'less' if found.value > -reduction else 'more'} here"


def _as_xu2021(_: Pair, found: Estimate) -> str:
    return f"lower, as in `xu2021`: {verdict(found.interval, above=False)}"


def _slightly(_: Pair, found: Estimate) -> str:
    return f"by less than {LITTLE:g} %: {verdict(found.interval, above=True, boundary=-LITTLE)}"


def _not_lowered(interval: Interval) -> bool:
    return verdict(interval, above=False) != HOLDS


def _higher(interval: Interval) -> bool:
    return verdict(interval, above=True) == HOLDS


def _explained(quantity: Quantity, rate: str, finding: Callable[[Interval], bool] | None) -> Take:
    """Compare right labels with mixed ones; say whether the mix-up explains a finding about the change since AT."""

    def take(at: Outcomes, right: Outcomes, mixed: Outcomes) -> Reading:
        found, text = difference(Pair.of(right, mixed), quantity, rate)
        if finding is None:
            return Reading(text, value=found.value, interval=found.interval)
        with_right, with_mixed = (
            finding(relative_estimate(Pair.of(at, other), quantity, rate).interval) for other in (right, mixed)
        )
        return Reading(text, *explains(with_right, with_mixed, found.interval), found.value, found.interval)

    return take


def explains(with_right: bool, with_mixed: bool, mixed_minus_right: Interval) -> tuple[str, str]:
    """Return the verdict on "the mix-up explains the finding", and why.

    Parameters
    ----------
    with_right, with_mixed
        Whether the finding, an error that is too high, is there with right and with mixed labels.
    mixed_minus_right
        Interval of the difference of that error.
    """
    if not with_mixed:
        return FAILS, "nothing to explain: not found with mixed labels either"
    worse = verdict(mixed_minus_right, above=True)
    if worse == OPEN:
        return OPEN, "the two are not told apart"
    if worse == FAILS:
        return FAILS, "the right labels do worse"
    if with_right:
        return FAILS, "found with right labels too, but less"
    return HOLDS, "found with mixed labels only"


def _draw(results: Mapping[str, Outcomes], folder: Path) -> list[Path]:
    from fairbench.reports.refrl2022_figures import draw

    return draw(results, folder)


PAPER = Paper(
    key="refrl2022",
    title="the reproduction of FRL with LeNet-5 on Fashion-MNIST: four claims",
    results=tuple(result_of(model, radius) for radius in RADII for model in MODELS),
    radii=tuple(RADII),
    measure=measure,
    draw=_draw,
)
