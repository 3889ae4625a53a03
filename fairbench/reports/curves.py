"""Curves of success rate over epsilon: a table, a CSV, and a figure with a panel per model."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairbench.metrics.curves import Curves
from fairbench.metrics.least_epsilon import LeastEpsilons
from fairbench.reports.drawing import figure_file
from fairbench.reports.models import write_frames
from fairbench.reports.text_tables import tabulated
from fairbench.reports.values import epsilon_text, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ["", (4, 1.5), (1, 1), (3, 1, 1, 1), (5, 1, 1, 1, 1, 1)]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "*"]


def as_table(curves: Mapping[str, Curves], tablefmt: str = "simple") -> str:
    """Return a row per model and epsilon: average, worst class and CRU_s, each with its interval."""
    rows = [
        [
            model if number == 0 or tablefmt != "simple" else "",
            epsilon_text(row["epsilon"]),
            rate(row["average"], (row["average_low"], row["average_high"])),
            f"{row['worst']:.2f} {row['worst_class']}",
            rate(row["cru_s"], (row["cru_s_low"], row["cru_s_high"])),
        ]
        for model, found in curves.items()
        for number, row in enumerate(found.overall.to_dict("records"))
    ]
    headers = ["model", "epsilon", "broken, average", "broken, worst class", "CRU_s"]
    return tabulated(rows, headers, tablefmt)


def write_csv(curves: Mapping[str, Curves], means: Mapping[str, LeastEpsilons | None], folder: Path) -> list[Path]:
    """Write what the figure shows and return the files, each with the model in its first column.

    ``curves.csv`` has every class's success rate (epsilon, class, n, broken, low, high), ``overall.csv`` average, worst
    class and CRU_s of every epsilon, and ``least_epsilon.csv`` the class means (class, n, mean, low, high, censored).

    Raises
    ------
    OutcomesError
        A file cannot be written.
    """
    tables = {
        "curves.csv": {model: found.classes for model, found in curves.items()},
        "overall.csv": {model: found.overall for model, found in curves.items()},
        "least_epsilon.csv": {model: found.classes for model, found in means.items() if found is not None},
    }
    return [write_frames(of_models, folder / name) for name, of_models in tables.items()]


def draw(
    curves: Mapping[str, Curves], means: Mapping[str, LeastEpsilons | None], path: Path, *, pixels: bool = True
) -> None:
    """Draw success rate over epsilon per class, a panel per model; its marker below them is at its mean least epsilon.

    Radii of ``pixels`` are drawn in 1/255 where they are read so, else as they are; of features in their own unit.

    Classes differ in colour, dash and marker, so that they are told apart in grey too.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    import seaborn as sns

    with figure_file(path, 1, len(curves), figsize=(1.5 + 5.2 * len(curves), 5.6), sharey=True) as (figure, row):
        names = list(dict.fromkeys(next(iter(curves.values())).classes["class"]))
        unit, named = axis_unit(curves, pixels=pixels)
        palette = sns.color_palette("colorblind" if len(names) <= 10 else "husl", len(names))
        looks = {
            n: {"color": c, "marker": m} for n, c, m in zip(names, palette, itertools.cycle(_MARKERS), strict=False)
        }
        for axes, (model, found) in zip(row[0], curves.items(), strict=True):
            for number, name in enumerate(names):
                line = found.classes[found.classes["class"] == name]
                (drawn,) = axes.plot(
                    unit * line["epsilon"],
                    line["broken"],
                    **looks[name],
                    markersize=5,
                    linewidth=1.6,
                    label=name,
                )
                if dashes := _DASHES[number % len(_DASHES)]:
                    drawn.set_dashes(dashes)
            if (of_model := means[model]) is not None:
                _mark_means(axes, of_model, looks, unit)
            axes.set(title=model, xlabel=f"epsilon ({named})")
            axes.set_ylim(-14, 101)
        row[0][0].set_ylabel("broken, clean errors included (percent)")
        handles, labels = row[0][0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=5,
            frameon=False,
            title=f"markers below 0: mean least epsilon of each class{_bound(means, unit)}",
        )


def axis_unit(curves: Mapping[str, Curves], *, pixels: bool) -> tuple[float, str]:
    """Return by what radii are multiplied for the axis, and what that is called."""
    if not pixels:
        return 1.0, "in units of the features"
    radii = [epsilon_text(epsilon) for found in curves.values() for epsilon in found.overall["epsilon"] if epsilon]
    return (1.0, "of pixels in [0, 1]") if all("/" not in text for text in radii) else (255.0, "in 1/255")


def _bound(means: Mapping[str, LeastEpsilons | None], unit: float) -> str:
    """Say what an example counts as that the largest radius does not break: it moves the means."""
    largest = {f"{unit * found.largest:g}" for found in means.values() if found is not None and found.censored}
    return f"; what withstands counts as {' or '.join(sorted(largest))}" if largest else ""


def _mark_means(axes: "Axes", found: LeastEpsilons, looks: Mapping[str, Mapping[str, Any]], unit: float) -> None:
    """Mark the class means below the lines, in two rows in turn, for those that are near one another."""
    rows = sorted((row for row in found.classes.to_dict("records") if row["n"]), key=lambda row: row["mean"])
    for number, row in enumerate(rows):
        place = -5 if number % 2 else -10
        axes.plot(unit * row["mean"], place, **looks[row["class"]], markersize=7)
