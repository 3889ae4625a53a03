"""The three figures of ``refrl2022``, redrawn from kept results: class errors of two or three models side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fairbench.files import make_folder, replacing
from fairbench.metrics import AttackSummary, summarize
from fairbench.outcomes import Outcomes
from fairbench.reports.readings import ATTACK
from fairbench.reports.refrl2022 import AS_PUBLISHED, AT, REMARGIN, REWEIGHT, STANDARD, result_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RADIUS = "16/255"
SERIES = {"std": ("standard error", "#9aa5b1"), "rob": (f"robust error (PGD-20, epsilon {RADIUS})", "#0173b2")}
"""Errors drawn, with their names and colours, which are those of ``class_bars``."""

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
            draw_panels(list(zip(panels, summaries, strict=True)), folder / name)
            drawn.append(folder / name)
    return drawn


def draw_panels(panels: Sequence[tuple[str, AttackSummary]], path: Path) -> None:
    """Draw class errors with their 95 % intervals, a panel per model, on the same axes; the worst are marked."""
    import matplotlib as mpl

    with mpl.rc_context({"backend": "Agg"}):
        import matplotlib.pyplot as plt
        import seaborn as sns
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        sns.set_theme(style="whitegrid", context="notebook")
        size = (1.6 + 3.7 * len(panels), 1.6 + 0.46 * len(panels[0][1].classes))
        figure, row = plt.subplots(
            1,
            len(panels),
            figsize=size,
            sharex=True,
            sharey=True,
            squeeze=False,
            layout=ConstrainedLayoutEngine(w_pad=0.12),
        )
        for axes, (title, summary) in zip(row[0], panels, strict=True):
            _draw_panel(axes, summary)
            axes.set_title(title, loc="left")
        handles, labels = row[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        sns.despine(figure, left=True)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Software": None})
        plt.close(figure)


def _draw_panel(axes: "Axes", summary: AttackSummary) -> None:
    import seaborn as sns

    data = _bars(summary)
    names, colours = zip(*SERIES.values(), strict=True)
    bars = data.fillna({"error": 0.0})  # a class without an example has no bar, but keeps its place
    sns.barplot(
        bars, y="class", x="error", hue="series", hue_order=names, palette=colours, ax=axes, errorbar=None, legend=False
    )
    for container, name in zip(list(axes.containers), names, strict=True):
        rows = data[data["series"] == name]
        container.set_label(name)
        centres = [bar.get_y() + bar.get_height() / 2 for bar in container]
        reach = [(rows["error"] - rows["low"]).clip(lower=0), (rows["high"] - rows["error"]).clip(lower=0)]
        axes.errorbar(rows["error"], centres, xerr=reach, fmt="none", ecolor="#333333", elinewidth=1, capsize=0)
        for error, high, centre in zip(rows["error"], rows["high"], centres, strict=True):
            if error == rows["error"].max():
                axes.annotate(f" {error:.1f}", (high, centre), va="center", fontsize=9, weight="bold")
    axes.set(xlim=(0, 114), ylabel="")
    axes.set_xlabel("error (percent, 95 % intervals; worst in bold)", fontsize=11)
    axes.set_xticks(range(0, 101, 20))


def _bars(summary: AttackSummary) -> pd.DataFrame:
    """Return one row per error and class, with the ends of its interval."""
    rows = []
    for error, (name, _) in SERIES.items():
        for row in summary.classes.to_dict("records"):
            low, high = summary.class_intervals[row["class"]][error]
            rows.append({"class": row["class"], "series": name, "error": row[error], "low": low, "high": high})
    return pd.DataFrame(rows)
