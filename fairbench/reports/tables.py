"""The class table of one attack, for a terminal, Markdown, LaTeX or CSV."""

import csv
import io
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fairbench.metrics import AttackSummary, Summary
from fairbench.metrics.groups import SMALLEST, GroupErrors
from fairbench.metrics.least_epsilon import LeastEpsilons
from fairbench.metrics.least_steps import LeastSteps
from fairbench.outcomes.schema import PRECISIONS, UNION
from fairbench.reports.text_tables import tabulated
from fairbench.reports.values import count, epsilon_text, fraction, radius, rate

if TYPE_CHECKING:
    from rich.table import Table

TextFormat = Literal["markdown", "latex", "csv"]
TEXT_FORMATS: dict[str, TextFormat] = {"markdown": "markdown", "latex": "latex", "csv": "csv"}

HOW = ("seed", "modified", "transfer_from")
"""The last columns of files of numbers: what else than protocol and precision determines them."""
COLUMNS = {"std": "standard error", "bndy": "boundary error", "rob": "robust error"}
"""Errors of the table, in the order and with the names of the papers; percent."""


def class_rows(attack: AttackSummary) -> list[list[str]]:
    """Return one row per class: name, n, and each error with its interval."""
    rows = []
    for row in attack.classes.to_dict("records"):
        intervals = attack.class_intervals[row["class"]]
        rows.append([row["class"], str(row["n"]), *(rate(row[e], intervals[e]) for e in COLUMNS)])
    return rows


def closing_rows(attack: AttackSummary) -> list[list[str]]:
    """Return the average, the worst class of each error, and its name."""
    average = [rate(getattr(attack, f"avg_{e}"), attack.intervals[f"avg_{e}"]) for e in COLUMNS]
    worst = [rate(getattr(attack, f"worst_{e}"), attack.intervals[f"worst_{e}"]) for e in COLUMNS]
    names = [_worst_name(attack, e) for e in COLUMNS]
    return [["average", str(attack.n), *average], ["worst class", "", *worst], ["", "", *names]]


def _worst_name(attack: AttackSummary, error: str) -> str:
    name = getattr(attack, f"worst_{error}_class")
    return "n/a" if name is None else with_ties(name, attack.classes[error], getattr(attack, f"worst_{error}"))


def with_ties(name: str, errors: Iterable[float], worst: float) -> str:
    """Return the worst class's name, and how many others are as bad."""
    ties = sum(error == worst for error in errors) - 1
    return f"{name} (and {ties} more)" if ties > 0 else name


def unfairness_line(attack: AttackSummary) -> str:
    """Return CAU and CRU_s in a line, with their intervals."""
    return (
        f"CAU {fraction(attack.cau, attack.intervals['cau'])}   "
        f"CRU_s {rate(attack.cru_s, attack.intervals['cru_s'])} points   "
        f"CRU_s among clean-correct {rate(attack.cru_s_correct, attack.intervals['cru_s_correct'])} points"
    )


def least_epsilon_lines(found: LeastEpsilons) -> str:
    """Return the class means of the least epsilon and CRU_eps as lines, with their intervals."""
    unit = f"in the unit of the inputs; those that withstand {epsilon_text(found.largest)} count as that"
    width = max(len(str(name)) for name in found.classes["class"])
    lines = [f"least epsilon, mean of each class [95 % interval], {unit}"]
    for row in found.classes.to_dict("records"):
        value = radius(row["mean"], (row["low"], row["high"]))
        lines.append(f"  {row['class']:<{width}}  {value}   {row['censored']} of {row['n']} withstand")
    lines.append(f"  {'average':<{width}}  {radius(found.average, found.average_interval)}")
    lines.append(f"CRU_eps {cru_eps_text(found)}")
    return "\n".join(lines)


def cru_eps_text(found: LeastEpsilons) -> str:
    """Return CRU_eps with its interval, and up to which radius it is if examples withstand that."""
    return f"{radius(found.cru_eps, found.cru_eps_interval)}{_limited(found)}"


def _limited(found: LeastEpsilons) -> str:
    """Say it where CRU_eps is that of means which withstanding examples hold down: a larger limit may change it."""
    return f" up to {epsilon_text(found.largest)}" if found.censored else ""


def least_steps_lines(found: LeastSteps) -> str:
    """Return the class means of the least steps as lines, with their intervals."""
    width = max(len(str(name)) for name in found.classes["class"])
    lines = [
        f"least steps, mean of each class [95 % interval]; those that withstand all {found.limit:,} count as that; "
        "of the broken alone behind it"
    ]
    for row in found.classes.to_dict("records"):
        lines.append(f"  {row['class']:<{width}}  {' '.join(step_cells(row))} of {row['n']} withstand")
    lines.append(f"  {'average':<{width}}  {count(found.average, found.average_interval)}")
    return "\n".join(lines)


def step_cells(row: Mapping[Hashable, Any]) -> list[str]:
    """Return mean, mean of the broken ones, and the censored, of a row of :class:`LeastSteps` classes."""
    broken = count(row["mean_broken"], (row["mean_broken_low"], row["mean_broken_high"]))
    return [count(row["mean"], (row["low"], row["high"])), broken, str(row["censored"])]


def headline(summary: Summary) -> str:
    """Return what was evaluated: model, dataset, how many examples (and that they are a sample), protocol, seed."""
    changed = changes_text(replace(summary, modified={k: v for k, v in summary.modified.items() if k != "seed"}))
    protocol = summary.protocol + (f", modified: {changed}" if changed else "")
    sample = " (a quick look: at most the first 100 of each class)" if summary.protocol == "quick" else ""
    source = "" if summary.transfer_from is None else f"; transfer: attacks made for {summary.transfer_from}"
    gradients = "" if summary.precision == "float32" else f"; gradients in {precision_text(summary.precision)}"
    return (
        f"{summary.model} on {summary.dataset}: {summary.n:,} test examples{sample}, protocol {protocol}, "
        f"seed {summary.seed}{source}{gradients}"
    )


def changes_text(summary: Summary) -> str:
    """Return what was asked for otherwise than the protocol has it; empty where nothing was."""
    return ", ".join(f"{k} {_short(v)}" for k, v in summary.modified.items())


def how(summary: Summary) -> list[str]:
    """Return the values of :data:`HOW`, for files of numbers."""
    return [str(summary.seed), changes_text(summary), summary.transfer_from or ""]


def precision_text(precision: str) -> str:
    """Return what people call a precision that a manifest names: "bf16" for "bfloat16"."""
    return next((said for said, written in PRECISIONS.items() if written == precision), precision)


def attack_line(attack: AttackSummary) -> str:
    """Return the attack's name and epsilon, and how many rows it has no measurement for."""
    epsilon = "" if attack.epsilon is None else f", epsilon {epsilon_text(attack.epsilon)}"
    missing = f"; {attack.not_measured} examples not measured" if attack.not_measured else ""
    name = "any attack" if attack.attack == UNION else attack.attack
    return f"{name}{epsilon}{missing}: error in percent [95 % interval], lower is better"


def gist(attack: AttackSummary) -> str:
    """Return in a line what an attack did: average and worst robust error, with their intervals."""
    average = rate(attack.avg_rob, attack.intervals["avg_rob"])
    worst = rate(attack.worst_rob, attack.intervals["worst_rob"])
    return f"{attack.attack}: robust error {average} on average, {worst} of {attack.worst_rob_class}, the worst class"


def as_text(summary: Summary, format: TextFormat) -> str:
    """Return the tables of every attack as Markdown, LaTeX (booktabs) or CSV.

    CSV has one line per attack and class, plain numbers, and the interval's ends as columns of their own.
    """
    if format == "csv":
        return _csv(summary)
    tablefmt = {"markdown": "github", "latex": "latex_booktabs"}[format]
    parts = []
    for attack in summary.attacks.values():
        rows, closing = class_rows(attack), closing_rows(attack)
        headers = ["class", "n", *COLUMNS.values()]
        table = tabulated(rows + closing, headers, tablefmt, closing=len(closing))
        lines = [headline(summary), attack_line(attack), unfairness_line(attack)]
        if format == "latex":
            parts.append("\n".join([*(f"% {line}" for line in lines), table]))
        else:
            parts.append("\n\n".join([*lines[:2], table, lines[2]]))
        if attack.least_epsilon is not None:
            parts.append(_least_epsilon_table(attack.least_epsilon, tablefmt))
        if attack.least_steps is not None:
            parts.append(_least_steps_table(attack.least_steps, tablefmt))
    return "\n\n".join(parts)


def _least_epsilon_table(found: LeastEpsilons, tablefmt: str) -> str:
    rows = [
        [row["class"], str(row["n"]), radius(row["mean"], (row["low"], row["high"])), str(row["censored"])]
        for row in found.classes.to_dict("records")
    ]
    rows.append(["average", "", radius(found.average, found.average_interval), str(found.censored)])
    rows.append([f"CRU_eps{_limited(found)}", "", radius(found.cru_eps, found.cru_eps_interval), ""])
    headers = ["class", "n", "mean least epsilon", f"withstand {epsilon_text(found.largest)}"]
    return tabulated(rows, headers, tablefmt, closing=2)


def _least_steps_table(found: LeastSteps, tablefmt: str) -> str:
    rows = [[row["class"], str(row["n"]), *step_cells(row)] for row in found.classes.to_dict("records")]
    rows.append(["average", "", count(found.average, found.average_interval), "", str(found.censored)])
    headers = ["class", "n", "mean least steps", "of the broken", f"withstand {found.limit:,}"]
    return tabulated(rows, headers, tablefmt, closing=1)


def group_table(found: GroupErrors, format: str) -> str:
    """Return the errors of each group as text ("table"), Markdown or LaTeX, with the gap and what was left out."""
    rows = [
        [row["group"], str(row["n"]), *(rate(row[e], (row[f"{e}_low"], row[f"{e}_high"])) for e in COLUMNS)]
        for row in found.groups.to_dict("records")
    ]
    rows.append(["largest gap (points)", "", *(rate(found.gap[e], found.gap_intervals[e]) for e in COLUMNS)])
    tablefmt = {"markdown": "github", "latex": "latex_booktabs"}.get(format, "simple")
    headers = [found.attribute, "n", *COLUMNS.values()]
    table = tabulated(rows, headers, tablefmt, closing=1)
    lines = [f"{found.attack} by {found.attribute}: error in percent [95 % interval], lower is better"]
    lines += left_out_lines(found.attribute, found.left_out)
    if format == "latex":
        return "\n".join([*(f"% {line}" for line in lines), table])
    return (
        "\n\n".join([lines[0], table, *lines[1:]]) if format == "markdown" else "\n".join([lines[0], table, *lines[1:]])
    )


def left_out_lines(attribute: str, left_out: Mapping[str, int]) -> list[str]:
    """Say in a line which groups are too small to be shown; no line where none is."""
    if not left_out:
        return []
    names = ", ".join(f"{name} ({n})" for name, n in left_out.items())
    return [f"left out, fewer than {SMALLEST} examples of {attribute}: {names}"]


def as_rich(attack: AttackSummary) -> "Table":
    """Return the table of one attack for a terminal; the worst class of each error is bold."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=attack_line(attack), title_justify="left", title_style="")
    table.add_column("class", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for name in COLUMNS.values():
        table.add_column(name, justify="right", no_wrap=True)
    worst = [getattr(attack, f"worst_{e}_class") for e in COLUMNS]
    for row in class_rows(attack):
        cells = [Text(cell, style="bold red" if row[0] == w else "") for cell, w in zip(row[2:], worst, strict=True)]
        table.add_row(Text(row[0]), row[1], *cells)
    table.add_section()
    for row in closing_rows(attack):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _csv(summary: Summary) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    errors = (*COLUMNS, "strict_bndy")
    searched = [s for s in ("least_epsilon", "least_steps") if any(getattr(a, s) for a in summary.attacks.values())]
    ends = [f"{e}{end}" for e in (*errors, *searched) for end in ("", "_low", "_high")]
    writer.writerow(["model", "dataset", "protocol", "attack", "epsilon", "class", "n", *ends, "precision", *HOW])
    for attack in summary.attacks.values():
        least = {s: None if (of := getattr(attack, s)) is None else of.classes for s in searched}
        for number, row in enumerate(attack.classes.to_dict("records")):
            intervals = attack.class_intervals[row["class"]]
            numbers = [v for e in errors for v in (row[e], *intervals[e])]
            for found in least.values():
                numbers += [math.nan] * 3 if found is None else list(found.loc[number, ["mean", "low", "high"]])
            start = [summary.model, summary.dataset, summary.protocol, attack.attack, attack.epsilon]
            writer.writerow(
                [
                    *(*start, row["class"], row["n"]),
                    *(f"{v:.4f}" if math.isfinite(v) else "" for v in numbers),
                    *(summary.precision, *how(summary)),
                ]
            )
    return stream.getvalue().rstrip("\n")


def _short(value: object) -> str:
    if isinstance(value, float):
        return epsilon_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
