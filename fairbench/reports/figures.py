"""Figures: drawn with seaborn, written whole or not at all."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fairbench.files import replacing
from fairbench.metrics import Summary
from fairbench.reports.tables import epsilon_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STANDARD = "standard error"


def class_bars(summary: Summary, path: Path) -> None:
    """Draw, per class, the standard error and the robust error under each attack, with 95 % intervals; worst marked.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    import matplotlib as mpl

    with mpl.rc_context({"backend": "Agg", "svg.hashsalt": "fairbench"}):
        import matplotlib.pyplot as plt
        import seaborn as sns

        data = _bars(summary)
        classes, series = list(dict.fromkeys(data["class"])), list(dict.fromkeys(data["series"]))
        sns.set_theme(style="whitegrid", context="notebook")
        height = 1.6 + len(classes) * (0.16 + 0.16 * len(series))
        figure, axes = plt.subplots(figsize=(8, height), layout="constrained")
        palette = ["#9aa5b1", *sns.color_palette("colorblind", n_colors=max(len(series) - 1, 1)).as_hex()]
        palette = palette[: len(series)]
        sns.barplot(
            data.fillna({"error": 0.0}),  # a class without an example has no bar, but keeps its place
            y="class",
            x="error",
            hue="series",
            order=classes,
            hue_order=series,
            palette=palette,
            ax=axes,
            errorbar=None,
        )
        for container, name in zip(list(axes.containers), series, strict=True):
            rows = data[data["series"] == name].set_index("class").loc[classes]
            centres = [bar.get_y() + bar.get_height() / 2 for bar in container]
            reach = [(rows["error"] - rows["low"]).clip(lower=0), (rows["high"] - rows["error"]).clip(lower=0)]
            axes.errorbar(rows["error"], centres, xerr=reach, fmt="none", ecolor="#333333", elinewidth=1, capsize=0)
            _mark(axes, rows, centres)
        axes.set(xlim=(0, 118), xlabel="error (percent, bars with 95 % intervals; lower is better)", ylabel="")
        axes.set_xticks(range(0, 101, 20))
        axes.set_title(
            f"{summary.model} on {summary.dataset}\n{summary.n:,} test examples, protocol {summary.protocol}",
            loc="left",
        )
        handles, labels = axes.get_legend_handles_labels()
        if (inner := axes.get_legend()) is not None:
            inner.remove()
        figure.legend(handles, labels, loc="outside lower center", ncols=1 if len(series) > 2 else 2, frameon=False)
        sns.despine(figure, left=True)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Software": None})
        plt.close(figure)


def _mark(axes: "Axes", rows: pd.DataFrame, centres: list[float]) -> None:
    """Write beside its bar what is worst (all of equals), and that a class without an example has no bar."""
    worst = rows["error"].max()
    for error, high, centre in zip(rows["error"], rows["high"], centres, strict=True):
        if math.isnan(error):
            axes.annotate(" n/a: no example", (0, centre), va="center", fontsize=9, color="#555555")
        elif error == worst:
            axes.annotate(f" worst: {error:.1f}", (high, centre), va="center", fontsize=9, weight="bold")


def _bars(summary: Summary) -> pd.DataFrame:
    """Return one row per class and series, with the ends of its interval; the standard error comes first, once."""
    rows = []
    for number, attack in enumerate(summary.attacks.values()):
        epsilon = "" if attack.epsilon is None else f", epsilon {epsilon_text(attack.epsilon)}"
        series = {"rob": f"robust error ({attack.attack}{epsilon})"}
        if number == 0:
            series = {"std": _STANDARD, **series}
        for error, name in series.items():
            for row in attack.classes.to_dict("records"):
                low, high = attack.class_intervals[row["class"]][error]
                rows.append({"class": row["class"], "series": name, "error": row[error], "low": low, "high": high})
    return pd.DataFrame(rows).sort_values("series", key=lambda s: s != _STANDARD, kind="stable")
