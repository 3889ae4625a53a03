"""Source- and target-class tendencies: tables, CSV files, and a figure like Figure 2 of ``sun2023``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fairbench.metrics.intervals import Interval, wilson
from fairbench.metrics.paired import Estimate
from fairbench.metrics.tendency import Tendency
from fairbench.reports.drawing import figure_file
from fairbench.reports.models import write_frames
from fairbench.reports.tables import step_cells
from fairbench.reports.text_tables import tabulated
from fairbench.reports.values import fraction, rate, signed

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_READABLE = 20
"""Classes up to which a confusion matrix is printed, and its cells are written into the figure."""

_BLUE, _ORANGE, _DARK = "#0173b2", "#de8f05", "#333333"


def as_text(found: Mapping[str, Tendency], tablefmt: str = "simple", headlines: Mapping[str, str] | None = None) -> str:
    """Return, per model, its headline, the class table, the distances and correlations, and the confusion matrix."""
    parts = []
    for model, of_model in found.items():
        parts += [(headlines or {}).get(model, model), _class_table(of_model, tablefmt)]
        parts += ["\n".join(overall_lines(of_model))]
        if len(of_model.confusion) <= _READABLE:
            parts += [f"{model}: predicted under {of_model.attack}, percent of the true class (row)"]
            parts += [_confusion_table(of_model, tablefmt)]
    return "\n\n".join(parts)


def overall_lines(found: Tendency) -> list[str]:
    """Return the distances of the targets from uniform, and the correlations over the classes, as lines."""
    distances = (
        f"total variation {_distance(found.total_variation, found.total_variation_by_chance)}; "
        f"KL {_distance(found.kl, found.kl_by_chance)} nats"
    )
    correlations = (
        f"mean steps {signed(found.steps_and_robustness, 2)}, of the broken alone "
        f"{signed(found.broken_steps_and_robustness, 2)}, target share {signed(found.targets_and_robustness, 2)}"
    )
    return [
        f"targets, distance from uniform: {distances}",
        f"rank correlation over the classes, of robust accuracy and: {correlations}",
    ]


def _distance(found: Estimate, by_chance: Interval) -> str:
    if not np.isfinite(found.value):
        return "n/a"
    return f"{fraction(found.value, found.interval)} (by chance {by_chance[0]:.3f} to {by_chance[1]:.3f})"


def _class_table(found: Tendency, tablefmt: str) -> str:
    rows = [
        [
            row["class"],
            str(row["n"]),
            rate(row["rob_acc"], (row["rob_acc_low"], row["rob_acc_high"])),
            rate(row["target"], (row["target_low"], row["target_high"])),
            rate(row["target_no_tendency"]),
            *step_cells(steps),
        ]
        for row, steps in zip(found.classes.to_dict("records"), found.steps.classes.to_dict("records"), strict=True)
    ]
    headers = ["class", "n", f"robust accuracy ({found.attack})", "share of targets", "without tendency"]
    headers += ["mean least steps", "of the broken", f"withstand {found.steps.limit:,}"]
    return tabulated(rows, headers, tablefmt)


def _confusion_table(found: Tendency, tablefmt: str) -> str:
    names = found.classes["class"]
    rows = [
        [name, *("n/a" if np.isnan(share) else f"{share:.0f}" for share in shares)]
        for name, shares in zip(names, _row_shares(found), strict=True)
    ]
    return tabulated(rows, ["", *names], tablefmt)


def _row_shares(found: Tendency) -> np.ndarray:
    """Return the confusion matrix in percent of its rows; NaN for a class without an example."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: np.ndarray = 100 * found.confusion / found.confusion.sum(axis=1, keepdims=True)
    return shares


def write_csv(found: Mapping[str, Tendency], folder: Path) -> list[Path]:
    """Write ``tendency.csv`` (a row per model and class), ``confusion.csv`` and ``overall.csv``; return their paths.

    Raises
    ------
    OutcomesError
        A file cannot be written.
    """
    files = {"tendency.csv": _class_rows, "confusion.csv": _confusion_rows, "overall.csv": _overall_rows}
    return [
        write_frames({model: rows(of_model) for model, of_model in found.items()}, folder / name)
        for name, rows in files.items()
    ]


def _class_rows(found: Tendency) -> pd.DataFrame:
    steps = found.steps.classes.drop(columns=["class", "n"])
    names = {"mean": "steps", "low": "steps_low", "high": "steps_high"}
    return pd.concat([found.classes, steps.rename(columns=lambda c: names.get(c, c.replace("mean", "steps")))], axis=1)


def _confusion_rows(found: Tendency) -> pd.DataFrame:
    names, shares = found.classes["class"], _row_shares(found)
    rows = []
    for (s, t), count in np.ndenumerate(found.confusion):
        n = int(found.confusion[s].sum())
        low, high = wilson(int(count), n)
        row = {"label": names[s], "predicted": names[t], "n": n, "count": int(count)}
        rows.append(row | {"share": shares[s, t], "low": low, "high": high})
    return pd.DataFrame(rows)


def _overall_rows(found: Tendency) -> pd.DataFrame:
    unknown = (np.nan, np.nan)
    estimates = {
        "total_variation": (found.total_variation, found.total_variation_by_chance),
        "kl": (found.kl, found.kl_by_chance),
        "steps_and_robustness": (found.steps_and_robustness, unknown),
        "broken_steps_and_robustness": (found.broken_steps_and_robustness, unknown),
        "targets_and_robustness": (found.targets_and_robustness, unknown),
    }
    return pd.DataFrame(
        [
            {
                "measure": name,
                "value": estimate.value,
                "low": estimate.interval[0],
                "high": estimate.interval[1],
                "by_chance_low": chance[0],
                "by_chance_high": chance[1],
            }
            for name, (estimate, chance) in estimates.items()
        ]
    )


def draw(found: Mapping[str, Tendency], path: Path) -> None:
    """Draw, in a row per model: the confusion matrix, the target-class distribution, and steps with robust accuracy.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    k = len(next(iter(found.values())).confusion)
    height = min(max(2.2, 1.0 + 0.36 * k), 14)
    size = (16.5, 0.6 + (height + 0.9) * len(found))
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    with figure_file(path, len(found), 3, figsize=size, width_ratios=[1.15, 1, 1], layout=layout) as (figure, grid):
        for (model, of_model), row in zip(found.items(), grid, strict=True):
            _heatmap(row[0], of_model, model)
            handles = _targets(row[1], of_model) + _steps(row[2], of_model)
        longest = max(row[1].get_xlim()[1] for row in grid)
        for row in grid:
            row[1].set_xlim(right=longest)
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


def _heatmap(axes: "Axes", found: Tendency, model: str) -> None:
    import seaborn as sns

    names, shares = list(found.classes["class"]), _row_shares(found)
    readable = len(names) <= _READABLE
    sns.heatmap(
        shares,
        ax=axes,
        cmap="Blues",
        vmin=0,
        vmax=100,
        annot=readable,
        fmt=".0f",
        annot_kws={"fontsize": 9},
        xticklabels=names if readable else "auto",
        yticklabels=names if readable else "auto",
        cbar=not readable,
        linewidths=0.5 if readable else 0,
        mask=np.isnan(shares),
    )
    axes.grid(False)
    for place in np.flatnonzero(found.classes["n"] == 0):
        axes.text(len(names) / 2, place + 0.5, "no example", ha="center", va="center", fontsize=9, color="#555555")
    axes.tick_params(axis="x", rotation=40)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    axes.tick_params(axis="y", rotation=0)
    axes.set(ylabel="true class", xlabel=f"predicted under {found.attack}; percent of the true class")
    axes.set_title(model, loc="left", weight="bold")


def _targets(axes: "Axes", found: Tendency) -> "list[Artist]":
    rows = found.classes
    place = np.arange(len(rows))
    reach = [(rows["target"] - rows["target_low"]).clip(lower=0), (rows["target_high"] - rows["target"]).clip(lower=0)]
    axes.barh(place, rows["target"].fillna(0), height=0.65, color=_BLUE)
    axes.errorbar(rows["target"], place, xerr=reach, fmt="none", ecolor=_DARK, elinewidth=1)
    axes.axvline(100 / len(rows), color=_DARK, linewidth=1.2, linestyle="--", label="targets: uniform")
    axes.plot(
        rows["target_no_tendency"], place, "D", color=_ORANGE, markersize=5, label="targets: every other class alike"
    )
    _name_classes(axes, rows)
    axes.set_xlim(left=0)
    axes.set_xlabel("predicted class, percent of the wrong predictions")
    axes.set_title(
        f"targets: total variation {found.total_variation.value:.2f}, "
        f"by chance up to {found.total_variation_by_chance[1]:.2f}"
        if np.isfinite(found.total_variation.value)
        else "targets: no prediction is wrong",
        loc="left",
        fontsize=12,
    )
    return list(axes.get_legend_handles_labels()[0])


def _steps(axes: "Axes", found: Tendency) -> "list[Artist]":
    rows, steps = found.classes, found.steps.classes
    place = np.arange(len(rows))
    reach = [(steps["mean"] - steps["low"]).clip(lower=0), (steps["high"] - steps["mean"]).clip(lower=0)]
    axes.barh(place, steps["mean"].fillna(0), height=0.65, color="#9aa5b1", label="mean least steps (scale below)")
    axes.errorbar(steps["mean"], place, xerr=reach, fmt="none", ecolor=_DARK, elinewidth=1)
    _name_classes(axes, rows)
    axes.set(xlim=(0, found.steps.limit), xlabel=f"steps to break ({found.steps.limit:,} if withstood), true class")
    above = axes.twiny()
    above.plot(rows["rob_acc"], place, "o", color=_ORANGE, markeredgecolor=_DARK, label="robust accuracy (scale above)")
    above.set(xlim=(0, 100))
    above.set_xlabel("robust accuracy (percent)", fontsize=10)
    above.grid(False)
    return [*axes.get_legend_handles_labels()[0], *above.get_legend_handles_labels()[0]]


def _name_classes(axes: "Axes", rows: pd.DataFrame) -> None:
    every = max(1, -(-len(rows) // 40))
    axes.set_yticks(np.arange(len(rows))[::every], list(rows["class"])[::every])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
