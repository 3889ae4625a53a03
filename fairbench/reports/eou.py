"""Equalized-odds unfairness of models side by side: a table, a CSV, and a figure like ``sooksatra2022``, 5 and 6."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fairbench.files import replacing
from fairbench.metrics.eou import EOU
from fairbench.metrics.groups import SMALLEST
from fairbench.metrics.paired import Estimate
from fairbench.reports.drawing import figure_file
from fairbench.reports.text_tables import tabulated
from fairbench.reports.values import fraction, signed


def as_table(found: Mapping[str, EOU], tablefmt: str = "simple") -> str:
    """Return a row per model, true label and group with its mean confidence, and EOU in the first row of a label."""
    rows = []
    for model, one in found.items():
        gaps = {row["label"]: fraction(row["eou"], (row["low"], row["high"])) for row in one.labels.to_dict("records")}
        seen: set[str] = set()
        for row in one.groups.to_dict("records"):
            label = row["label"]
            first = label not in seen
            gap = gaps.get(label, "n/a") if first else ""
            start = [model if not seen else "", label if first else ""] if tablefmt == "simple" else [model, label]
            seen.add(label)
            mean = fraction(row["mean"], (row["low"], row["high"]))
            rows.append([*start, row["group"], str(row["n"]), mean, gap])
    one = next(iter(found.values()))
    confident = ", ".join(dict.fromkeys(one.groups["class"])) if one.groups["class"].nunique() == 1 else "true label"
    headers = ["model", "true label", one.attribute, "n", f"mean confidence of {confident}", "EOU"]
    return tabulated(rows, headers, tablefmt, ("left", "left", "left", *["right"] * 3))


def differences(minus_first: Mapping[str, pd.DataFrame], first: str, tablefmt: str = "simple") -> str:
    """Return a row per further model and true label: by how much its EOU is above the first one's."""
    rows = [
        [model, row["label"], signed(Estimate(row["difference"], (row["low"], row["high"])), 3)]
        for model, of_model in minus_first.items()
        for row in of_model.to_dict("records")
    ]
    headers = ["model", "true label", f"EOU minus that of {first}, on the same examples"]
    return tabulated(rows, headers, tablefmt, ("left", "left", "right"))


def left_out_line(found: EOU) -> str | None:
    """Say which groups are too small; None where none is."""
    if not found.left_out:
        return None
    names = ", ".join(f"{group} of {label} ({n})" for (label, group), n in found.left_out.items())
    return f"left out, fewer than {SMALLEST} examples: {names}"


def write_csv(found: Mapping[str, EOU], minus_first: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Write every mean, every EOU and every difference to the first model's: model, attack, attribute, measure
    ("mean_confidence", "eou", "eou_minus_first"), label, group ("" for EOU), n, value, low, high.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    parts = []
    for model, one in found.items():
        means = one.groups.rename(columns={"mean": "value"}).assign(measure="mean_confidence")
        gaps = one.labels.rename(columns={"eou": "value"}).assign(measure="eou", group="", n="")
        both = pd.concat([means.astype({"n": object}), gaps]).assign(
            model=model, attack=one.attack, attribute=one.attribute
        )
        if model in minus_first:
            gap = minus_first[model].rename(columns={"difference": "value"})
            named = {"measure": "eou_minus_first", "group": "", "n": "", "model": model}
            both = pd.concat([both, gap.assign(attack=one.attack, attribute=one.attribute, **named)])
        parts.append(both)
    columns = ["model", "attack", "attribute", "measure", "label", "group", "n", "value", "low", "high"]
    with replacing(path) as temporary:
        pd.concat(parts)[columns].to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")


def draw(found: Mapping[str, EOU], path: Path) -> None:
    """Draw EOU of each model, a pair of bars per true label with 95 % intervals; hatches tell the models apart in grey.

    Raises
    ------
    OutcomesError
        The file cannot be written.
    """
    import seaborn as sns

    one = next(iter(found.values()))
    labels = list(dict.fromkeys(label for each in found.values() for label in each.labels["label"]))
    with figure_file(path, figsize=(2.6 + 1.1 * len(labels) * len(found), 4.6)) as (figure, ((axes,),)):
        palette = sns.color_palette("colorblind", len(found))
        width = 0.8 / len(found)
        for number, (model, each) in enumerate(found.items()):
            rows = each.labels.set_index("label")
            places = [place for place, label in enumerate(labels) if label in rows.index]
            rows = rows.loc[[labels[place] for place in places]]
            left = [place + (number - (len(found) - 1) / 2) * width for place in places]
            reach = [rows["eou"] - rows["low"], rows["high"] - rows["eou"]]
            axes.bar(
                left,
                rows["eou"],
                0.92 * width,
                yerr=reach,
                label=model,
                color=palette[number],
                hatch=["", "//", "..", "xx", "\\\\"][number % 5],
                edgecolor="white",
                error_kw={"ecolor": "#333333", "elinewidth": 1.2, "capsize": 3},
            )
        axes.set_xticks(range(len(labels)), labels)
        axes.set(xlabel="true label", ylabel=f"EOU of {one.attribute} (lower is better)", ylim=(0, None))
        how = "without attack" if one.attack == "clean" else f"under {one.attack}"
        axes.set_title(f"Largest gap of mean confidence between groups\n{how}, 95 % intervals", loc="left", fontsize=12)
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=1, frameon=False)
