"""A table of a paper beside what fairbench measured: the same columns in the same order, and who is ahead of whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.leaderboard.results import published_folder, read_result, result_names
from fairbench.metrics import AttackSummary, summarize
from fairbench.registry import suggest
from fairbench.reports.tables import rate

METRICS = {
    "avg_std": "Avg. Std.",
    "worst_std": "Worst Std.",
    "avg_bndy": "Avg. Bndy.",
    "worst_bndy": "Worst Bndy.",
    "avg_rob": "Avg. Rob.",
    "worst_rob": "Worst Rob.",
}
"""The columns of ``sun2023``, by their names in files; percent."""

_ROUNDING = 0.0151
"""How far avg_std + avg_bndy may be from avg_rob: each is rounded to two decimals."""


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed, and the model of the zoo that stands for each row of it.

    Parameters
    ----------
    key
        What users type, "sun2023-1".
    title
        What it shows, and where it is from.
    file
        The CSV in ``leaderboard/published``, with the columns of :data:`METRICS`.
    labels
        Its columns that name a row, beside ``dataset`` if it has one.
    models
        By dataset and the row's name, the model of the zoo that stands for it; "" where the table has no datasets.
    """

    key: str
    title: str
    file: str
    labels: tuple[str, ...]
    models: Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Entry:
    """One row: its name, what is printed, the model that stands for it, and what that did (None: not measured)."""

    dataset: str
    name: str
    printed: Mapping[str, float]
    model: str | None
    measured: AttackSummary | None

    @property
    def title(self) -> str:
        """Return dataset and name."""
        return f"{self.dataset}, {self.name}" if self.dataset else self.name

    @property
    def footnote(self) -> str:
        """Say where the printed averages do not add up; they are kept as printed (PROTOCOL.md)."""
        total = self.printed["avg_std"] + self.printed["avg_bndy"]
        off = self.printed["avg_rob"] - total
        if abs(off) <= _ROUNDING:
            return ""
        return (
            f"{self.title}: as printed; Avg. Std. + Avg. Bndy. is {total:.2f}, {abs(off):.2f} off the printed Avg. Rob."
        )


def entries(table: PublishedTable, dataset: str | None = None, folder: Path | None = None) -> list[Entry]:
    """Read the printed rows and the kept results beside them.

    Parameters
    ----------
    dataset
        Whose rows: "CIFAR-10" as the table prints it, or "cifar10"; default: all.
    folder
        Of the results; default: those of the package.

    Raises
    ------
    OutcomesError
        No row is of that dataset, or a result is damaged.
    """
    printed = pd.read_csv(published_folder() / table.file, dtype=dict.fromkeys(table.labels, str))
    if "dataset" in printed and dataset is not None:
        names = printed["dataset"].str.lower().str.replace("-", "")
        asked = dataset.lower().replace("-", "")
        if asked not in set(names):
            raise OutcomesError(
                f"table {table.key} has no dataset '{dataset}'.{suggest(asked, list(dict.fromkeys(names)))}"
            )
        printed = printed[names == asked]
    kept = set(result_names(folder))
    found = []
    for row in printed.to_dict("records"):
        of, name = str(row.get("dataset", "")), ", ".join(row[label] for label in table.labels)
        model = table.models.get((of, name))
        result = f"{model}.standard"
        measured = summarize(read_result(result, folder)).attacks["pgd20"] if result in kept else None
        shown = "" if dataset is not None else of
        found.append(Entry(shown, name, {metric: float(row[metric]) for metric in METRICS}, model, measured))
    return found


def as_text(table: PublishedTable, rows: Sequence[Entry]) -> str:
    """Return the table for a terminal: two lines a row, as printed and as measured."""
    from tabulate import tabulate

    lines = []
    for entry in rows:
        lines.append([entry.title + _mark(entry), "paper", *_printed(entry)])
        lines.append(["", "here", *_measured(entry)])
    body = tabulate(lines, ["", "", *METRICS.values()], "simple", disable_numparse=True, colalign=_ALIGN)
    return "\n\n".join([table.title, body, *_notes(rows)])


_ALIGN = ("left", "left", *["right"] * len(METRICS))


def as_markdown(table: PublishedTable, rows: Sequence[Entry]) -> str:
    """Return the table as Markdown: the printed half, and the measured half with intervals."""
    from tabulate import tabulate

    lines = [[e.title + _mark(e), *_printed(e), *_measured(e)] for e in rows]
    header = ["", *METRICS.values(), *(f"{name} (here)" for name in METRICS.values())]
    align = ("left", *["right"] * (2 * len(METRICS)))
    body = tabulate(lines, header, "github", disable_numparse=True, colalign=align)
    return "\n\n".join([table.title, body, *_notes(rows)])


def as_latex(table: PublishedTable, rows: Sequence[Entry]) -> str:
    """Return the table for LaTeX (booktabs): two halves under their own headings, notes as comments."""
    columns = pd.MultiIndex.from_product([["published", "measured"], METRICS.values()])
    index = [entry.title + _mark(entry) for entry in rows]
    frame = pd.DataFrame([[*_printed(e), *_measured(e)] for e in rows], index=index, columns=columns)
    style = frame.style.format(escape="latex").format_index(escape="latex").format_index(escape="latex", axis=1)
    body = style.to_latex(hrules=True, multicol_align="c", column_format="l" + "r" * frame.shape[1])
    return "\n".join([f"% {line}" for line in (table.title, *_notes(rows))] + [body.replace("λ", r"$\lambda$")])


def ranks(rows: Sequence[Entry]) -> str:
    """Return who is how good, printed and measured: ranks from 1, the least error; ties share the better rank.

    Only rows that were measured are ranked, so that both ranks are among the same methods.
    """
    from tabulate import tabulate

    both = [entry for entry in rows if entry.measured is not None]
    if len(both) < 2:
        return "Fewer than two rows are measured: there is nothing to rank."
    printed = pd.DataFrame([e.printed for e in both]).rank(method="min").astype(int)
    values = [{m: float(getattr(e.measured, m)) for m in METRICS} for e in both]
    measured = pd.DataFrame(values).rank(method="min").astype(int)
    lines = [[e.title, *(f"{printed[m].iloc[i]} / {measured[m].iloc[i]}" for m in METRICS)] for i, e in enumerate(both)]
    return tabulate(lines, ["rank: paper / here", *METRICS.values()], "github", disable_numparse=True)


def to_dict(table: PublishedTable, rows: Sequence[Entry]) -> dict[str, Any]:
    """Return the table as plain data; what was not measured is None."""
    plain = []
    for entry in rows:
        found = entry.measured
        measured = None if found is None else {m: getattr(found, m) for m in METRICS}
        intervals = None if found is None else {m: list(found.intervals[m]) for m in METRICS}
        plain.append(
            {
                "row": entry.title,
                "model": entry.model,
                "published": dict(entry.printed),
                "measured": measured,
                "intervals": intervals,
                "footnote": entry.footnote,
            }
        )
    return {"table": table.key, "title": table.title, "rows": plain}


def _printed(entry: Entry) -> list[str]:
    return [f"{entry.printed[metric]:.2f}" for metric in METRICS]


def _measured(entry: Entry) -> list[str]:
    found = entry.measured
    if found is None:
        return [""] * len(METRICS)
    return [rate(getattr(found, metric), found.intervals[metric]) for metric in METRICS]


def _mark(entry: Entry) -> str:
    return " *" if entry.footnote else ""


def _notes(rows: Sequence[Entry]) -> list[str]:
    notes = [f"* {entry.footnote}" for entry in rows if entry.footnote]
    absent = [entry.model for entry in rows if entry.measured is None and entry.model is not None]
    if absent:
        notes.append(f"Not measured yet: {', '.join(absent)}.")
    return notes
