"""Figures of class errors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fairbench.metrics import AttackSummary, Summary, summarize
from fairbench.outcomes import Outcomes
from fairbench.reports.drawing import figure_file
from fairbench.reports.values import epsilon_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STANDARD = "standard error"
GREY = "#9aa5b1"
"""The colour of standard errors."""


def class_bars(summary: Summary, path: Path) -> None:
    """Draw, per class, the standard error and the robust error under each attack, with 95 % intervals; worst marked.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    import seaborn as sns

    data = _bars(summary)
    classes, series = list(dict.fromkeys(data["class"])), list(dict.fromkeys(data["series"]))
    height = 1.6 + len(classes) * (0.16 + 0.16 * len(series))
    with figure_file(path, figsize=(8, height), despine_left=True) as (figure, grid):
        axes = grid[0][0]
        palette = [GREY, *sns.color_palette("colorblind", n_colors=max(len(series) - 1, 1)).as_hex()]
        palette = palette[: len(series)]
        for rows, centres in draw_bars(axes, data, dict(zip(series, palette, strict=True))):
            _mark(axes, rows, centres)
        axes.set(xlim=(0, 118), xlabel="error (percent, bars with 95 % intervals; lower is better)", ylabel="")
        axes.set_xticks(range(0, 101, 20))
        axes.set_title(
            f"{summary.model} on {summary.dataset}\n{summary.n:,} test examples, protocol {summary.protocol}",
            loc="left",
        )
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=1 if len(series) > 2 else 2, frameon=False)


def class_panels(panels: Sequence[tuple[str, AttackSummary]], path: Path, *, epsilon: str) -> None:
    """Draw class errors of models side by side, a panel each, on the same axes; the largest of each error is marked.

    Parameters
    ----------
    panels
        Titles, and summaries of PGD-20 on the same classes.
    epsilon
        As the legend names it, "8/255".

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    size = (1.6 + 3.7 * len(panels), 1.6 + 0.46 * len(panels[0][1].classes))
    options = {"sharex": True, "sharey": True, "layout": ConstrainedLayoutEngine(w_pad=0.12)}
    with figure_file(path, 1, len(panels), figsize=size, despine_left=True, **options) as (figure, row):
        names = {"std": _STANDARD, "rob": f"robust error (PGD-20, epsilon {epsilon})"}
        for axes, (title, summary) in zip(row[0], panels, strict=True):
            data = pd.DataFrame(error_rows(summary, names))
            for rows, centres in draw_bars(axes, data, {names["std"]: GREY, names["rob"]: "#0173b2"}):
                _mark(axes, rows, centres, "")
            axes.set(xlim=(0, 114), ylabel="")
            axes.set_xlabel("error (percent, 95 % intervals; worst in bold)", fontsize=11)
            axes.set_xticks(range(0, 101, 20))
            axes.set_title(title, loc="left")
        handles, labels = row[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)


_METHODS = {"#4a7fb0": "", "#de8f05": "//", "#c9d6df": ""}
"""Colours and hatches of methods side by side, told apart in grey too; none so dark that it hides the intervals."""


def method_bars(panels: Sequence[tuple[str, Outcomes]], path: Path, *, epsilon: str) -> None:
    """Draw class errors with up to three methods beside one another in each class: standard errors, then robust ones.

    Parameters
    ----------
    panels
        Methods, and their outcomes on the same classes, with PGD-20.
    epsilon
        As the heading names it, "8/255".

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    found = [(title, summarize(outcomes).attacks["pgd20"]) for title, outcomes in panels]
    dataset = panels[0][1].manifest["dataset"]["name"]
    titles = {"std": "clean: standard error", "rob": f"adversarial: robust error (PGD-20, {epsilon})"}
    size = (11, 1.8 + 0.6 * len(found[0][1].classes))
    with figure_file(path, 1, 2, figsize=size, despine_left=True, sharex=True, sharey=True) as (figure, row):
        for axes, (error, title) in zip(row[0], titles.items(), strict=True):
            data = pd.DataFrame([line for name, attack in found for line in error_rows(attack, {error: name})])
            colours = dict(zip((name for name, _ in found), _METHODS, strict=False))
            for (rows, centres), bars, hatch in zip(
                draw_bars(axes, data, colours), axes.containers, _METHODS.values(), strict=False
            ):
                for bar in bars:
                    bar.set(hatch=hatch, edgecolor="white", linewidth=0.6)
                _mark(axes, rows, centres, "")
            axes.set(xlim=(0, 114), ylabel="")
            axes.set_xlabel("error (percent, 95 % intervals; each method's worst in bold)", fontsize=11)
            axes.set_xticks(range(0, 101, 20))
            axes.set_title(title, loc="left")
        figure.suptitle(f"{dataset}: errors of each class", x=0.01, ha="left")
        handles, labels = row[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def outcome_panels(panels: Sequence[tuple[str, Outcomes]], path: Path, *, epsilon: str) -> None:
    """Draw :func:`class_panels` of outcomes with PGD-20."""
    class_panels([(title, summarize(outcomes).attacks["pgd20"]) for title, outcomes in panels], path, epsilon=epsilon)


def draw_bars(
    axes: "Axes", data: pd.DataFrame, colours: Mapping[str, str]
) -> Iterator[tuple[pd.DataFrame, list[float]]]:
    """Draw a bar with its interval for each class and series, and give each series' rows and the heights of its bars.

    Parameters
    ----------
    data
        Of :func:`error_rows`, the classes in the order to draw them in.
    colours
        Of the series, in their order.
    """
    import seaborn as sns

    classes = list(dict.fromkeys(data["class"]))
    sns.barplot(
        data.fillna({"error": 0.0}),  # a class without an example has no bar, but keeps its place
        y="class",
        x="error",
        hue="series",
        order=classes,
        hue_order=list(colours),
        palette=list(colours.values()),
        ax=axes,
        errorbar=None,
        legend=False,
    )
    for container, name in zip(list(axes.containers), colours, strict=True):
        container.set_label(name)
        rows = data[data["series"] == name].set_index("class").loc[classes]
        centres = [bar.get_y() + bar.get_height() / 2 for bar in container]
        reach = [(rows["error"] - rows["low"]).clip(lower=0), (rows["high"] - rows["error"]).clip(lower=0)]
        axes.errorbar(rows["error"], centres, xerr=reach, fmt="none", ecolor="#333333", elinewidth=1, capsize=0)
        yield rows, centres


def error_rows(attack: AttackSummary, names: Mapping[str, str]) -> list[dict[str, object]]:
    """Return a row per error ("std", "rob") and class, with the ends of its interval; ``names`` are those of series."""
    rows = []
    for error, name in names.items():
        for row in attack.classes.to_dict("records"):
            low, high = attack.class_intervals[row["class"]][error]
            rows.append({"class": row["class"], "series": name, "error": row[error], "low": low, "high": high})
    return rows


def _mark(axes: "Axes", rows: pd.DataFrame, centres: list[float], word: str = "worst: ") -> None:
    """Write beside its bar what is worst (all of equals), and that a class without an example has no bar."""
    worst = rows["error"].max()
    for error, high, centre in zip(rows["error"], rows["high"], centres, strict=True):
        if math.isnan(error):
            axes.annotate(" n/a: no example", (0, centre), va="center", fontsize=9, color="#555555")
        elif error == worst:
            axes.annotate(f" {word}{error:.1f}", (high, centre), va="center", fontsize=9, weight="bold")


def _bars(summary: Summary) -> pd.DataFrame:
    """Return one row per class and series, with the ends of its interval; the standard error comes first, once."""
    rows = []
    for number, attack in enumerate(summary.attacks.values()):
        epsilon = "" if attack.epsilon is None else f", epsilon {epsilon_text(attack.epsilon)}"
        series = {"rob": f"robust error ({attack.attack}{epsilon})"}
        if number == 0:
            series = {"std": _STANDARD, **series}
        rows += error_rows(attack, series)
    return pd.DataFrame(rows).sort_values("series", key=lambda s: s != _STANDARD, kind="stable")
