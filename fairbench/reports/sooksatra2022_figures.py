"""Figures of ``sooksatra2022`` (curves over epsilon) and ``sun2023`` (source and target classes) from kept results."""

from collections.abc import Mapping
from pathlib import Path

from fairbench.files import make_folder
from fairbench.metrics.curves import success_curves
from fairbench.metrics.least_epsilon import least_epsilons
from fairbench.metrics.tendency import tendency
from fairbench.outcomes import Outcomes
from fairbench.reports.paper_figure import Panels, PaperFigure
from fairbench.reports.sooksatra2022_pairs import CIFAR10, LE, PUBLIC, ZOO, sample


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
        "CIFAR-10": {model: sample(model) for model in CIFAR10},
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


def draw(results: Mapping[str, Outcomes], folder: Path) -> list[Path]:
    """Draw curves and tendencies, each set of models in a figure of its own; of CIFAR-10 curves alone."""
    make_folder(folder)
    drawn = []
    for title, models in (("zoo", ZOO), ("public", PUBLIC), ("cifar10", CIFAR10)):
        if not all(sample(model) in results for model in models):
            continue
        panels = [(model, results[sample(model)]) for model in models]
        kinds = {"curves": draw_curves} if models == CIFAR10 else {"curves": draw_curves, "tendency": draw_tendencies}
        for kind, draw in kinds.items():
            path = folder / f"unfairness_{kind}_{title}.png"
            draw(panels, path)
            drawn.append(path)
    return drawn
