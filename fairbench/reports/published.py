"""Tables with the columns of ``sun2023``: printed rows, the models that stand for them, and who is ahead of whom."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.leaderboard.misled import misled_line
from fairbench.leaderboard.ranking import range_text, rank_ranges
from fairbench.leaderboard.results import published_folder, read_result, result_names
from fairbench.leaderboard.zoo_card import trained_note
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.registry import plain_name, suggest
from fairbench.reports.paper_table import HERE, Cell, Column, Line, PaperTable
from fairbench.reports.text_tables import tabulated

METRICS = {
    "avg_std": "Avg. Std.",
    "worst_std": "Worst Std.",
    "avg_bndy": "Avg. Bndy.",
    "worst_bndy": "Worst Bndy.",
    "avg_rob": "Avg. Rob.",
    "worst_rob": "Worst Rob.",
}
"""The columns of ``sun2023``, by their names in files; percent."""

_COLUMNS = tuple(Column(key, title, 2, 1) for key, title in METRICS.items())
_ATTACK, _PROTOCOL = "pgd20", ".standard"

_ROUNDING = 0.0151
"""How far avg_std + avg_bndy may be from avg_rob: each is rounded to two decimals."""


def error_table(
    key: str,
    source: str,
    caption: str,
    *,
    file: str,
    labels: Sequence[str],
    models: Mapping[tuple[str, ...], str],
    beyond: str = "",
) -> PaperTable:
    """Define a table of class errors.

    Parameters
    ----------
    key, source, caption, beyond
        As in :class:`~fairbench.reports.paper_table.PaperTable`.
    file
        The CSV in ``leaderboard/published``, with the columns of :data:`METRICS`.
    labels
        Its columns that name a row; the first is "dataset" if its rows are of several.
    models
        By the row's names, the model of the zoo that stands for it. Rows whose dataset the paper has not are shown
        where it is asked for.
    """
    datasets = tuple(dict.fromkeys(names[0] for names in models)) if labels[0] == "dataset" else ()
    build = partial(_build, key=key, file=file, labels=tuple(labels), models=models)
    return PaperTable(
        key,
        source,
        caption,
        tuple(label.replace("_", " ") for label in labels),
        _COLUMNS,
        (HERE,),
        build,
        notes=_notes,
        datasets=datasets,
        beyond=beyond,
    )


def _build(
    folder: Path | None,
    dataset: str | None,
    *,
    key: str,
    file: str,
    labels: tuple[str, ...],
    models: Mapping[tuple[str, ...], str],
) -> list[Line]:
    frame = pd.read_csv(published_folder() / file, dtype=dict.fromkeys(labels, str))
    printed = {tuple(row[label] for label in labels): row for row in frame.to_dict("records")}
    chosen = list(printed)
    if dataset is not None:
        known = dict.fromkeys(names[0] for names in (*printed, *models))
        asked = same_dataset(dataset, list(known), key)
        chosen = [names for names in dict.fromkeys((*printed, *models)) if names[0] == asked]
    kept = set(result_names(folder))
    return [_line(names, printed.get(names), models.get(names), kept, folder) for names in chosen]


def same_dataset(asked: str, known: Sequence[str], key: str) -> str:
    """Return the name of a dataset as a table has it, of "CIFAR-10" or "cifar10".

    Raises
    ------
    OutcomesError
        The table has none of this name.
    """
    plain = {plain_name(name): name for name in known}
    if plain_name(asked) not in plain:
        raise OutcomesError(f"{key} has no dataset '{asked}'.{suggest(asked, list(plain))}")
    return plain[plain_name(asked)]


def _line(
    names: tuple[str, ...],
    row: Mapping[Any, Any] | None,
    model: str | None,
    kept: set[str],
    folder: Path | None,
) -> Line:
    printed = {} if row is None else {metric: float(row[metric]) for metric in METRICS}
    footnote = _footnote(names, printed)
    if model is None:
        return Line(names, printed, footnote=footnote)
    result = f"{model}{_PROTOCOL}"
    if result not in kept:
        return Line(names, printed, {}, {HERE: result}, (model,), footnote)
    outcomes = read_result(result, folder)
    misled = misled_line(", ".join((*names, "here")), outcomes, folder)
    footnote = " ".join(filter(None, (footnote, misled)))
    return Line(names, printed, {HERE: _cells(outcomes)}, {HERE: result}, (), footnote, misled=bool(misled))


def _cells(outcomes: Outcomes) -> dict[str, Cell]:
    found = summarize(outcomes).attacks[_ATTACK]
    return {metric: Cell(float(getattr(found, metric)), found.intervals[metric]) for metric in METRICS}


def _footnote(names: tuple[str, ...], printed: Mapping[str, float]) -> str:
    """Say where the printed averages do not add up; they are kept as printed (docs/definitions.md)."""
    if not printed:
        return ""
    total = printed["avg_std"] + printed["avg_bndy"]
    off = abs(printed["avg_rob"] - total)
    if off <= _ROUNDING:
        return ""
    return f"{', '.join(names)}: as printed; Avg. Std. + Avg. Bndy. is {total:.2f}, {off:.2f} off the printed Avg. Rob."


def _notes(lines: Sequence[Line]) -> list[str]:
    notes = []
    if any(line.printed and line.measured for line in lines):
        notes.append("difference: here minus paper, in points.")
    trained = trained_note(line.results[HERE].removesuffix(_PROTOCOL) for line in lines if line.measured)
    if trained is not None:
        notes.append(trained)
    if lines and not any(line.printed for line in lines):
        notes.append(f"The paper has no rows of {lines[0].names[0]}; these are its methods by the zoo's models.")
    return notes


@dataclass(frozen=True)
class Ranks:
    """Of a method: its place as printed, and the first and last place that its interval allows here; from 1."""

    paper: int
    here: tuple[int, int]


def rank_rows(printed: Sequence[Line], measured: Sequence[Line]) -> dict[str, dict[str, Ranks]]:
    """Return who is how good, 1 being the least error: by the printed values, and by the measured intervals.

    Only rows that are printed and measured are ranked, so that both ranks are among the same methods. Printed ties
    share the better rank; measured ranks are those of a board (:func:`~fairbench.leaderboard.ranking.rank_ranges`).

    Parameters
    ----------
    printed, measured
        Rows of one dataset each, which may be two: methods are matched by the last of their names.

    Returns
    -------
    dict
        By method and metric; empty for fewer than two rows.
    """
    papers = {line.names[-1]: line.printed for line in printed if line.printed}
    here = {line.names[-1]: line for line in measured if line.measured and line.names[-1] in papers}
    if len(here) < 2:
        return {}
    found: dict[str, dict[str, Ranks]] = {name: {} for name in here}
    for metric in METRICS:
        paper = pd.Series([papers[name][metric] for name in here]).rank(method="min").astype(int)
        tells = partial(_errs_less, [line.misled for line in here.values()], metric)
        places = rank_ranges([line.measured[HERE][metric].interval for line in here.values()], tells)
        for name, first, range_here in zip(here, paper, places, strict=True):
            found[name][metric] = Ranks(int(first), range_here)
    return found


def _errs_less(misled: Sequence[bool], metric: str, better: int, _worse: int) -> bool:
    """Return whether a lower value says that a method errs less: not under attack, where PGD-20 is misled on it."""
    return metric in ("avg_std", "worst_std") or not misled[better]


def ranks_as_text(ranks: Mapping[str, Mapping[str, Ranks]], tablefmt: str) -> str:
    """Return the ranks as a table in a format of tabulate, "paper / here"."""
    if not ranks:
        return "Fewer than two rows are measured: there is nothing to rank."
    lines = [[name, *(f"{of[m].paper} / {range_text(of[m].here)}" for m in METRICS)] for name, of in ranks.items()]
    return tabulated(lines, ["rank: paper / here", *METRICS.values()], tablefmt, "left")
