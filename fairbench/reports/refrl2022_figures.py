"""The three figures of ``refrl2022``, redrawn from kept results: class errors of two or three models side by side."""

from collections.abc import Mapping
from pathlib import Path

from fairbench.files import make_folder
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.reports.figures import class_panels
from fairbench.reports.readings import ATTACK
from fairbench.reports.refrl2022 import AS_PUBLISHED, AT, REMARGIN, REWEIGHT, STANDARD, result_of

RADIUS = "16/255"

FIGURES: dict[str, dict[str, str]] = {
    "refrl2022_1.png": {"standard training": STANDARD, "adversarial training": AT},
    "refrl2022_2.png": {"adversarial training": AT, "reweighted 5:1": REWEIGHT},
    "refrl2022_3.png": {
        "adversarial training": AT,
        "remargined": REMARGIN,
        "remargined, labels mixed up": AS_PUBLISHED,
    },
}
"""Each figure's panels: title and model."""


def needed(name: str) -> list[str]:
    """Return the results that a figure is drawn from."""
    return [result_of(model, RADIUS) for model in FIGURES[name].values()]


def draw(results: Mapping[str, Outcomes], folder: Path) -> list[Path]:
    """Draw the figures whose results are there, and return their paths.

    Raises
    ------
    OutcomesError
        The folder cannot be written.
    """
    make_folder(folder)
    drawn = []
    for name, panels in FIGURES.items():
        if all(result in results for result in needed(name)):
            summaries = [summarize(results[result]).attacks[ATTACK] for result in needed(name)]
            class_panels(list(zip(panels, summaries, strict=True)), folder / name, epsilon=RADIUS)
            drawn.append(folder / name)
    return drawn
