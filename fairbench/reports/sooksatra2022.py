"""Claims on unfairness beyond one epsilon, measured: ``sooksatra2022`` on CAU and CRU, ``sun2023`` on its Figure 2.

``sooksatra2022`` compares a standard with a robust CIFAR-10 network; here two such pairs are, and three of LeNet-5 on
Fashion-MNIST, on the same images each. Figure 2 of ``sun2023`` is about one model at a time.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from fairbench.leaderboard.results import published_folder
from fairbench.metrics.class_means import ClassMeans
from fairbench.metrics.curves import success_curves
from fairbench.metrics.least_epsilon import least_epsilons, limited_epsilons
from fairbench.metrics.paired import Estimate, check_same_examples
from fairbench.metrics.tendency import Tendency, tendency
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import MEASURED, Claim, Group, Paper, Reading, Row, not_measured, verdict
from fairbench.reports.paper_figure import Panels, PaperFigure
from fairbench.reports.readings import ATTACK, Take, cau, change, row_of, signed

STANDARD, PGD_AT, BAT = (f"{method}_lenet5_fashion_mnist" for method in ("standard", "pgd_at", "bat"))
CIFAR10 = CIFAR10_STANDARD, CIFAR10_STATIC, CIFAR10_PGD_AT = tuple(
    f"{method}_small_cnn_cifar10" for method in ("standard", "static_augmentation", "pgd_at")
)
"""The paper's network and training; static augmentation is its robust model, PGD-AT is not in it."""
PAPERS_OWN = CIFAR10_STANDARD, CIFAR10_STATIC
PUBLIC_STANDARD, PUBLIC_ROBUST = "lenet5_fashion_natural", "lenet5_fashion_adversarial"
ZOO, PUBLIC = (STANDARD, PGD_AT, BAT), (PUBLIC_STANDARD, PUBLIC_ROBUST)
TITLES = {
    STANDARD: "zoo, standard training",
    PGD_AT: "zoo, PGD-AT",
    BAT: "zoo, BAT",
    PUBLIC_STANDARD: "public checkpoint, standard training",
    PUBLIC_ROBUST: "public checkpoint, adversarial training",
}
"""The models that are looked at one by one, and what they are."""

LE, PGD10, STEPS = "least-epsilon", "pgd10", "least-steps"
SEARCHED, CIFAR10_SEARCHED = 64, 0.04
"""Largest radius of the kept searches: of LeNet-5 in 1/255, of the small CNN in pixels."""

RADII = {f"{radius}/255": radius / 255 for radius in (4, 8, 16, 24, 32, 48)}
"""Radii at which CRU_s is read off the search for least epsilon, as written."""
CIFAR10_RADII = {f"{radius:g}": radius for radius in (0.004, 0.01, 0.012, 0.014, 0.02, 0.03)}
"""The same on CIFAR-10; those of the paper's Table I are among them."""
TABLE_1 = ("0.01", "0.012", "0.014")
READINGS = WHITE_BOX, TRANSFER = "white-box", "transfer"
"""An attack made for the model itself, and one made for the standard model."""

Quantity = Callable[[Outcomes], np.ndarray]
"""What is known of each example: (n,), finite."""

_FROM_FIGURE_2 = "`sun2023`, on its Figure 2 (ResNet-18 on CIFAR-10, PGD-AT)"


def whole_split(model: str) -> str:
    """Return the name of a model's result on all test images."""
    return f"{model}.standard.epsilon-0.01" if model in CIFAR10 else f"{model}.standard"


def sample(model: str) -> str:
    """Return the name of a model's result on the sample, with least epsilon, PGD-10 and (LeNet-5) least steps."""
    if model in CIFAR10:
        return f"{model}.quick.attacks-{PGD10}-{LE}.max_epsilon-{CIFAR10_SEARCHED:g}.resolution-0.0002"
    return f"{model}.quick.attacks-{PGD10}-{STEPS}-{LE}.max_epsilon-{SEARCHED}-255"


@dataclass(frozen=True)
class Pair:
    """A standard and a robust model, and how they are compared.

    Parameters
    ----------
    radii
        On the sample, by the search for least epsilon: as written, and in pixels.
    whole
        Radii of PGD-20 on all test images, where they are the paper's: attacks made for the model, and for the standard
        one.
    decimals
        Of class means of least epsilon.
    """

    standard: str
    robust: str
    radii: Mapping[str, float]
    whole: tuple[str, ...] = ()
    decimals: int = 3

    @property
    def models(self) -> tuple[str, str]:
        """Return both."""
        return self.standard, self.robust

    @property
    def whole_split(self) -> list[str]:
        """Return their results on all test images."""
        return [whole_split(model) for model in self.models]

    @property
    def sample(self) -> list[str]:
        """Return their results on the sample."""
        return [sample(model) for model in self.models]

    def at(self, radius: str, reading: str) -> list[str]:
        """Return their results under PGD-20 on all test images at a radius of ``whole``."""
        transfer = f".transfer-{self.standard}" if reading == TRANSFER else ""
        return [f"{self.standard}.standard.epsilon-{radius}", f"{self.robust}.standard.epsilon-{radius}{transfer}"]

    @property
    def results(self) -> list[str]:
        """Return all results that are compared."""
        whole = [name for radius in self.whole for reading in READINGS for name in self.at(radius, reading)]
        return [*self.whole_split, *self.sample, *whole]


PAIRS = {
    "zoo, PGD-AT": Pair(STANDARD, PGD_AT, RADII),
    "zoo, BAT": Pair(STANDARD, BAT, RADII),
    "public checkpoints": Pair(PUBLIC_STANDARD, PUBLIC_ROBUST, RADII),
    "CIFAR-10, the paper's robust model": Pair(CIFAR10_STANDARD, CIFAR10_STATIC, CIFAR10_RADII, TABLE_1, 4),
    "CIFAR-10, PGD-AT": Pair(CIFAR10_STANDARD, CIFAR10_PGD_AT, CIFAR10_RADII, TABLE_1, 4),
}


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

    return Claim(
        1,
        "A robust model has the larger CAU",
        "`sooksatra2022`: on CIFAR-10 the largest difference of two class accuracies is 0.286 for the standard and "
        "0.344 for the robust network (Section IV-B, Figure 1).",
        _pairs(rows),
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
            _row(results, names, "CRU_eps", _printed("CRU_eps", 4), _mean_change(gap, pair.decimals, claimed=True)),
            _row(
                results,
                names,
                "smallest class mean of least epsilon",
                "hardly larger",
                _mean_change(smallest, pair.decimals),
            ),
            _row(
                results,
                names,
                "largest class mean of least epsilon",
                "much larger",
                _mean_change(largest, pair.decimals),
            ),
            _row(results, names, "CRU_eps, in units of the average least epsilon", "", _mean_change(share)),
        ]

    return Claim(
        2,
        "A robust model has the larger CRU_eps",
        "`sooksatra2022`: on CIFAR-10 the largest difference of two classes' mean least epsilon is 0.0014 for the "
        "standard and 0.005 for the robust network, because hard classes gain little and easy ones much (Section IV-C, "
        "Figure 2).",
        _pairs(rows),
        f"Radii in pixels of [0, 1]; an image that {SEARCHED}/255 (on CIFAR-10 {CIFAR10_SEARCHED:g}) does not break "
        "counts as that. The last row says "
        "whether the gap grows more than robustness as a whole does.",
    )


def success_rate_unfairness(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 3: robust models have the larger CRU_s."""
    gap = change(spread, "rob_a", "rob_b")

    def rows(pair: Pair) -> list[Row]:
        gaps = [
            _row(results, pair.sample, f"CRU_s at {written}, points", "larger", _gap_change(radius))
            for written, radius in pair.radii.items()
        ]
        broken = partial(_broken_standard, pair.radii)
        shares = _row(results, pair.sample, "images broken, standard model, percent", "95.76 at 0.01", broken)
        whole = [
            _row(results, pair.at(radius, reading), f"CRU_s at {radius}, all test images, {reading}", "larger", gap)
            for radius in pair.whole
            for reading in READINGS
        ]
        return [*gaps, shares, *whole]

    return Claim(
        3,
        "A robust model has the larger CRU_s",
        f"`sooksatra2022`: on CIFAR-10, standard to robust, {_printed_success_rates()} (Table I). The smallest of "
        "these epsilons already breaks the standard network on nearly all images.",
        _pairs(rows),
        "Success rates are over all images of a class, clean errors included. The row of broken images says how far "
        "the standard model is broken: the paper compares where it is broken nearly whole.",
    )


def shrinking_difference(results: Mapping[str, Outcomes]) -> Claim:
    """Claim 4: the difference of the two CRU_s shrinks as epsilon grows."""

    def rows(pair: Pair) -> list[Row]:
        sampled = [
            _row(results, pair.sample, f"robust less standard, {a} to {b}", "smaller", _difference_change(at_a, at_b))
            for (a, at_a), (b, at_b) in itertools.pairwise(pair.radii.items())
        ]
        whole = [
            _row(
                results,
                pair.at(a, reading) + pair.at(b, reading),
                f"the same on all test images, {reading}, {a} to {b}",
                "smaller",
                _difference_change_on_all,
            )
            for a, b in itertools.pairwise(pair.whole)
            for reading in READINGS
        ]
        return sampled + whole

    return Claim(
        4,
        "The difference of their CRU_s shrinks as epsilon grows",
        f"`sooksatra2022`: on CIFAR-10 it is {_printed_differences()}; the reason given is that the attack is more "
        "effective at larger epsilon (Section IV-C).",
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


def _printed(name: str, decimals: int) -> str:
    """Return what the paper prints for a measure on CIFAR-10, standard to robust."""
    table = pd.read_csv(published_folder() / "sooksatra2022_text.csv").set_index(["measure", "dataset", "model"])
    before, after = (float(table["value"][name, "CIFAR-10", model]) for model in ("standard", "robust"))
    return f"larger ({before:.{decimals}f} to {after:.{decimals}f})"


def _printed_table() -> pd.DataFrame:
    """Return CRU_s on CIFAR-10 as Table I prints it: a row per epsilon, a column per model."""
    table = pd.read_csv(published_folder() / "sooksatra2022_table1.csv")
    return table.pivot(index="epsilon", columns="model", values="cru_s")


def _printed_success_rates() -> str:
    rows = _printed_table().iterrows()
    return ", ".join(f"{row['standard']:.2f} to {row['robust']:.2f} at {epsilon:g}" for epsilon, row in rows)


def _printed_differences() -> str:
    rows = _printed_table().iterrows()
    return ", ".join(f"{row['robust'] - row['standard']:.2f} at {epsilon:g}" for epsilon, row in rows)


def _row(results: Mapping[str, Outcomes], names: Sequence[str], measure: str, report: str, take: Take) -> Row:
    return row_of(results, {MEASURED: names}, measure, report, take)


def _pairs(rows: Callable[[Pair], list[Row]]) -> tuple[Group, ...]:
    return tuple(Group(title, pair.models, tuple(rows(pair))) for title, pair in PAIRS.items())


def _models(found: Mapping[str, Tendency], rows: Sequence[_Measure]) -> tuple[Group, ...]:
    """Read measures of one model at a time."""

    def read(model: str, reading: Callable[[Tendency], Reading]) -> Reading:
        return reading(found[model]) if model in found else not_measured([sample(model)])

    return tuple(
        Group(title, (model,), tuple(Row(name, report, {MEASURED: read(model, of)}) for name, report, of in rows))
        for model, title in TITLES.items()
    )


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


def _mean_change(
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


def _gap_change(radius: float) -> Take:
    """CRU_s at a radius of both models, and the difference; claimed to rise."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        means = _paired(a, b, _broken_at(radius))
        found = means.estimate(lambda m: spread(m[..., 1]) - spread(m[..., 0]))
        start = " to ".join(f"{float(spread(means.observed[..., model])):.1f}" for model in (0, 1))
        text = f"{start}: {signed(found, 1)}"
        return Reading(text, verdict(found.interval, above=True), value=found.value, interval=found.interval)

    return take


def _broken_standard(radii: Mapping[str, float], a: Outcomes, _: Outcomes) -> Reading:
    """Say how much of the standard model is broken at each radius: where the two can be compared as in the paper."""
    shares = (f"{float(_broken_at(radius)(a).mean()):.1f} at {written}" for written, radius in radii.items())
    return Reading(", ".join(shares))


def _difference_change(smaller: float, larger: float) -> Take:
    """The difference of the two models' CRU_s at one radius and at a larger one; claimed to fall."""

    def take(a: Outcomes, b: Outcomes) -> Reading:
        return _difference_fell(_paired(a, b, _broken_at(smaller), _broken_at(larger)), ((0, 2), (1, 3)))

    return take


def _difference_change_on_all(a: Outcomes, b: Outcomes, c: Outcomes, d: Outcomes) -> Reading:
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
        f"{distance.value:.3f} [{distance.interval[0]:.3f}, {distance.interval[1]:.3f}]",
        verdict(distance.interval, above=True, boundary=high),
        f"by chance {low:.3f} to {high:.3f}",
        distance.value,
        distance.interval,
    )


def _most_frequent(found: Tendency) -> Reading:
    if found.classes["target"].isna().all():
        return Reading("n/a")
    row = found.classes.iloc[int(np.nanargmax(found.classes["target"]))]
    text = f"{row['class']}, {row['target']:.1f} % [{row['target_low']:.1f}, {row['target_high']:.1f}]"
    return Reading(text, None, f"{row['target_no_tendency']:.1f} % without tendency", float(row["target"]))


def draw_curves(panels: Panels, path: Path) -> None:
    """Draw the share of each class broken over epsilon, a panel per model."""
    from fairbench.reports import curves

    radii = _drawn_radii(panels[0][1])
    found = {model: success_curves(outcomes, LE, radii) for model, outcomes in panels}
    curves.draw(found, {model: least_epsilons(outcomes, LE) for model, outcomes in panels}, path)


def _drawn_radii(outcomes: Outcomes) -> list[float]:
    """Return radii up to the largest that was searched, at most some 40 of those there are."""
    attack = outcomes.manifest["attacks"][LE]
    count = round(attack["epsilon"] / attack["resolution"])
    return [attack["resolution"] * number for number in range(0, count + 1, -(-count // 40))]


def draw_tendencies(panels: Panels, path: Path) -> None:
    """Draw confusion, target classes and steps to break, a row per model."""
    from fairbench.reports import tendency as tendencies

    tendencies.draw({model: tendency(outcomes) for model, outcomes in panels}, path)


FIGURE_3 = PaperFigure(
    "sooksatra2022-3",
    "sooksatra2022, Figures 2 and 3: share of each class broken over epsilon, small CNN (on Fashion-MNIST LeNet-5)",
    {
        "CIFAR-10": {model: sample(model) for model in PAPERS_OWN},
        "Fashion-MNIST": {model: sample(model) for model in ZOO},
    },
    draw_curves,
)
SUN2023_FIGURE_2 = PaperFigure(
    "sun2023-2",
    "sun2023, Figure 2, on Fashion-MNIST: confusion under PGD-10, target classes, steps to break",
    {"Fashion-MNIST": {model: sample(model) for model in ZOO}},
    draw_tendencies,
)


def _draw(results: Mapping[str, Outcomes], folder: Path) -> list[Path]:
    """Draw curves and tendencies, each set of models in a figure of its own; of CIFAR-10 curves alone."""
    from fairbench.files import make_folder

    make_folder(folder)
    drawn = []
    for title, models in (("zoo", ZOO), ("public", PUBLIC), ("cifar10", PAPERS_OWN)):
        if not all(sample(model) in results for model in models):
            continue
        panels = [(model, results[sample(model)]) for model in models]
        kinds = (
            {"curves": draw_curves} if models == PAPERS_OWN else {"curves": draw_curves, "tendency": draw_tendencies}
        )
        for kind, draw in kinds.items():
            path = folder / f"unfairness_{kind}_{title}.png"
            draw(panels, path)
            drawn.append(path)
    return drawn


PAPER = Paper(
    key="sooksatra2022",
    title="CAU and CRU of standard and robust models, and sun2023's source and target classes",
    results=tuple(dict.fromkeys(name for pair in PAIRS.values() for name in pair.results)),
    radii=(MEASURED,),
    measure=measure,
    draw=_draw,
    page="unfairness.md",
)
