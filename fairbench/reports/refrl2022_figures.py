"""The three figures of ``refrl2022``, redrawn from kept results: class errors of two or three models side by side."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fairbench.files import make_folder
from fairbench.outcomes import Outcomes
from fairbench.reports.figures import outcome_panels
from fairbench.reports.paper_figure import PaperFigure
from fairbench.reports.refrl2022 import AS_PUBLISHED, AT, REMARGIN, REWEIGHT, STANDARD, result_of

RADIUS = "16/255"


def _figure(number: int, shown: str, panels: Mapping[str, str]) -> PaperFigure:
    return PaperFigure(
        f"refrl2022-{number}",
        f"refrl2022 (reproduction of FRL), Figure {number}: errors of each class, {shown}",
        {"Fashion-MNIST": {title: result_of(model, RADIUS) for title, model in panels.items()}},
        partial(outcome_panels, epsilon=RADIUS),
    )


FIGURE_1 = _figure(
    1, "before and after adversarial training", {"standard training": STANDARD, "adversarial training": AT}
)
FIGURE_2 = _figure(2, "reweighting 5:1", {"adversarial training": AT, "reweighted 5:1": REWEIGHT})
FIGURE_3 = _figure(
    3,
    "remargining",
    {"adversarial training": AT, "remargined": REMARGIN, "remargined, labels mixed up": AS_PUBLISHED},
)


def draw(results: Mapping[str, Outcomes], folder: Path) -> list[Path]:
    """Draw the figures whose results are there, and return their paths.

    Raises
    ------
    OutcomesError
        The folder cannot be written.
    """
    make_folder(folder)
    drawn = []
    for figure in (FIGURE_1, FIGURE_2, FIGURE_3):
        if not figure.missing(results):
            path = folder / f"{figure.key.replace('-', '_')}.png"
            figure.draw(results, path)
            drawn.append(path)
    return drawn
