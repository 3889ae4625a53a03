"""Models side by side: a row for each model and attack, of a dataset the least worst-class robust error first."""

import csv
import io
import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.files import replacing, write_json
from fairbench.metrics import AttackSummary, Summary
from fairbench.metrics.classwise import PRINTED_ERRORS
from fairbench.reports.tables import HOW, changes_text, cru_eps_text, how, precision_text
from fairbench.reports.text_tables import tabulated
from fairbench.reports.values import epsilon_text, fraction, rate

FORMATS = {"table": "simple", "markdown": "github", "latex": "latex_booktabs"}
"""How a table is printed, and tabulate's word for it."""
STEM = "models"
GAPS = {"cau": "CAU", "cru_s": "CRU_s"}
"""What sets a model's classes apart, by its name in files; CRU_eps stands behind them where it was searched for."""
_COLUMNS = [f"{kind}_{error}" for error in PRINTED_ERRORS for kind in ("avg", "worst")]
_Row = tuple[str, Summary, AttackSummary]


def write_frames(frames: Mapping[str, pd.DataFrame], path: Path) -> Path:
    """Write tables of models under one another as CSV, the model in the first column; return the file.

    Raises
    ------
    OutcomesError
        It cannot be written.
    """
    frame = pd.concat([table.assign(model=model) for model, table in frames.items()])
    columns = ["model", *(c for c in frame.columns if c != "model")]
    with replacing(path) as temporary:
        frame[columns].to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")
    return path


def average_cell(found: AttackSummary, name: str) -> str:
    """Return a figure with its interval."""
    return rate(getattr(found, name), found.intervals[name])


def worst_cell(found: AttackSummary, name: str) -> str:
    """Return a worst-class figure with its interval and the class."""
    worst = getattr(found, f"{name}_class")
    return average_cell(found, name) + (f" {worst}" if worst is not None else "")


def as_text(summaries: Mapping[str, Summary], form: str) -> str:
    """Return the table in one of :data:`FORMATS`, or "csv"."""
    if form == "csv":
        return as_csv(summaries).rstrip("\n")
    header = ["model", "dataset", "n", "attack", *(column.replace("_", " ") for column in _COLUMNS), *GAPS.values()]
    rows = _rows(summaries)
    cells = [_cells(row) for row in rows]
    searches = [attack.least_epsilon for _, _, attack in rows]
    if any(searches):
        header.append("CRU_eps")
        for row, search in zip(cells, searches, strict=True):
            row.append("" if search is None else cru_eps_text(search))
    table = tabulated(cells, header, FORMATS[form], ["left"] * len(header))
    lines = [f"{name}: {said}" for name, summary in summaries.items() if (said := _otherwise(summary))]
    if form == "latex":
        return "\n".join([*(f"% {line}" for line in lines), table])
    return "\n\n".join([table, "\n".join(lines)] if lines else [table])


def as_csv(summaries: Mapping[str, Summary]) -> str:
    """Return plain numbers, and the ends of intervals as columns of their own; empty: not measured."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    plain = [*_COLUMNS, *GAPS]
    ends = [f"{column}{end}" for column in (*plain, "cru_eps") for end in ("", "_low", "_high")]
    classes = [f"worst_{error}_class" for error in PRINTED_ERRORS]
    writer.writerow(
        ["model", "dataset", "protocol", "n", "attack", "epsilon", "precision", *ends, "censored", *classes, *HOW]
    )
    for name, summary, attack in _rows(summaries):
        numbers = [value for column in plain for value in (getattr(attack, column), *attack.intervals[column])]
        search = attack.least_epsilon
        radii = [math.nan] * 3 if search is None else [search.cru_eps, *search.cru_eps_interval]
        writer.writerow(
            [
                *(name, summary.dataset, summary.protocol, attack.n, attack.attack),
                "" if attack.epsilon is None else f"{attack.epsilon:.6g}",
                summary.precision,
                *(f"{value:.4f}" if math.isfinite(value) else "" for value in numbers),
                *(f"{value:.6f}" if math.isfinite(value) else "" for value in radii),
                "" if search is None else search.censored,
                *(getattr(attack, column) or "" for column in classes),
                *how(summary),
            ]
        )
    return stream.getvalue()


def to_dict(summaries: Mapping[str, Summary], failed: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of each model, and why others have none, by the name each was asked for."""
    return {"models": {name: found.to_dict() for name, found in summaries.items()}, "failed": dict(failed)}


def refuse_other_models(names: Collection[str], folder: Path) -> None:
    """Raise if a folder holds a table of all of other models, or files of those names that are none.

    Raises
    ------
    OutcomesError
        It does; nothing was overwritten.
    """
    present = [f"{STEM}{suffix}" for suffix in (".md", ".csv", ".json") if (folder / f"{STEM}{suffix}").exists()]
    if not present:
        return
    try:
        document = json.loads((folder / f"{STEM}.json").read_text(encoding="utf-8"))
        held = set(document["models"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise OutcomesError(
            f"{folder} already has {', '.join(present)}; nothing was overwritten. Choose another --out."
        ) from None
    if missing := sorted(held - set(names)):
        raise OutcomesError(
            f"{folder} holds the table of {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''} too; "
            "nothing was overwritten. Name them again, or choose another --out."
        )


def keep(summaries: Mapping[str, Summary], failed: Mapping[str, str], folder: Path) -> list[Path]:
    """Write ``models.md``, ``models.csv`` and ``models.json`` in a folder, each whole or not at all.

    Raises
    ------
    OutcomesError
        The folder cannot be written.
    """
    texts = {".md": as_text(summaries, "markdown") + "\n", ".csv": as_csv(summaries)}
    for suffix, text in texts.items():
        with replacing(folder / f"{STEM}{suffix}") as temporary:
            temporary.write_text(text, encoding="utf-8")
    write_json(to_dict(summaries, failed), folder / f"{STEM}.json")
    return [folder / f"{STEM}{suffix}" for suffix in (*texts, ".json")]


def _otherwise(summary: Summary) -> str:
    """Return what is not the protocol's own, with the protocol; empty where all of it is."""
    changed = changes_text(summary)
    parts = [f"protocol {summary.protocol}, modified: {changed}"] if changed else []
    if summary.transfer_from is not None:
        parts.append(f"transfer: attacks made for {summary.transfer_from}")
    return "; ".join(parts)


def _rows(summaries: Mapping[str, Summary]) -> Sequence[_Row]:
    rows = [(name, summary, attack) for name, summary in summaries.items() for attack in summary.attacks.values()]

    def place(row: _Row) -> tuple[Any, ...]:
        name, summary, attack = row
        worst = attack.worst_rob
        order = list(summary.attacks).index(attack.attack)
        return (
            summary.dataset,
            attack.epsilon or 0.0,
            order,
            math.isnan(worst),
            0.0 if math.isnan(worst) else worst,
            name,
        )

    return sorted(rows, key=place)


def _cells(row: _Row) -> list[str]:
    name, summary, attack = row
    method = attack.attack if attack.epsilon is None else f"{attack.attack} {epsilon_text(attack.epsilon)}"
    if summary.precision != "float32":
        method += f" ({precision_text(summary.precision)})"
    figures = [
        f(attack, f"{kind}_{e}") for e in PRINTED_ERRORS for kind, f in (("avg", average_cell), ("worst", worst_cell))
    ]
    gaps = [fraction(attack.cau, attack.intervals["cau"]), average_cell(attack, "cru_s")]
    return [name, summary.dataset, f"{attack.n:,}", method, *figures, *gaps]
