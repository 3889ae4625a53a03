"""``sooksatra2022``, Table III: leave-one-out unfairness as printed, and as measured here, with what was run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.leaderboard.luf import luf_folder, read_luf
from fairbench.leaderboard.results import published_folder
from fairbench.metrics.luf import LeaveOneOut
from fairbench.reports.luf import NOTE, with_interval

COLUMNS = {"luf_mean": ("LUF_mean", 4), "luf_t": ("LUF_t", 2), "luf_l": ("LUF_l", 2)}
"""Name and decimals of each measure."""

_PAPERS_RUN = "The paper: 100 samples left out of CIFAR-10, 20 epochs, batch 250, Adam; intervals are not given."


@dataclass(frozen=True)
class LufRow:
    """A printed row, the kept result that stands for it, and what that is (None: not measured)."""

    name: str
    printed: Mapping[str, float]
    result: str
    measured: LeaveOneOut | None
    manifest: Mapping[str, Any] | None

    @property
    def was_run(self) -> str:
        """Return epochs, left-out samples and seed of the measured half."""
        if self.manifest is None:
            return "not measured"
        epochs = self.manifest["epochs"]
        left_out = len(self.manifest["left_out"])
        return f"{epochs} epoch{'s' if epochs != 1 else ''}, {left_out} left out, seed {self.manifest['seed']}"


@dataclass(frozen=True)
class LufTable:
    """The table; ``models`` names by the row as printed the kept result (``leaderboard/luf``) that stands for it."""

    key: str
    title: str
    file: str
    models: Mapping[str, str]

    def rows(self, folder: Path | None = None) -> list[LufRow]:
        """Read the printed rows and the kept results; ``folder`` holds those, default: that of the package.

        Raises
        ------
        OutcomesError
            A kept result is damaged.
        """
        folder = folder or luf_folder()
        found = []
        for printed in pd.read_csv(published_folder() / self.file).to_dict("records"):
            name = self.models[str(printed["model"])]
            path = folder / f"{name}.json"
            measured, _, manifest = read_luf(path) if path.is_file() else (None, None, None)
            values = {column: float(printed[column]) for column in COLUMNS}
            found.append(LufRow(f"{printed['dataset']}, {printed['model']}", values, name, measured, manifest))
        return found

    def render(self, format: str, folder: Path | None = None) -> str:
        """Return the table as "text", "markdown", "latex" or "json"."""
        rows = self.rows(folder)
        if format == "json":
            return json.dumps(self._plain(rows), indent=2, allow_nan=False)
        from tabulate import tabulate

        header = ["", *(title for title, _ in COLUMNS.values())]
        header += [*(f"{title} (here)" for title, _ in COLUMNS.values()), "run here"]
        lines = [[row.name, *_printed(row), *_measured(row), row.was_run] for row in rows]
        kind = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}[format]
        align = ("left", *["right"] * 6, "left")
        body = tabulate(lines, header, kind, disable_numparse=True, colalign=align)
        if format == "latex":
            return "\n".join([*(f"% {line}" for line in (self.title, *_notes(rows))), body])
        return "\n\n".join([self.title, body, *_notes(rows)])

    def _plain(self, rows: list[LufRow]) -> dict[str, Any]:
        plain = [
            {
                "row": row.name,
                "result": row.result,
                "published": dict(row.printed),
                "measured": None if row.measured is None else row.measured.to_dict(),
                "run": row.was_run,
            }
            for row in rows
        ]
        return {"table": self.key, "title": self.title, "rows": plain}


def _printed(row: LufRow) -> list[str]:
    return [f"{row.printed[name]:.{digits}f}" for name, (_, digits) in COLUMNS.items()]


def _measured(row: LufRow) -> list[str]:
    found = row.measured
    if found is None:
        return [""] * len(COLUMNS)
    return [with_interval(getattr(found, name), found.intervals[name], digits) for name, (_, digits) in COLUMNS.items()]


def _notes(rows: list[LufRow]) -> list[str]:
    notes = [_PAPERS_RUN]
    if any(row.measured is not None for row in rows):
        notes.append(NOTE)
        notes.append("LUF_t is out of the models left out, LUF_l out of the test images: other counts, other scales.")
    absent = [row.result for row in rows if row.measured is None]
    if absent:
        notes.append(f"Not measured yet: {', '.join(absent)}.")
    return notes


TABLE_3 = LufTable(
    "sooksatra2022-3",
    "sooksatra2022 (Sooksatra and Rivas, 2022), Table III: leave-one-out unfairness on CIFAR-10, lower is better",
    "sooksatra2022_table3.csv",
    {"standard": "standard_small_cnn_cifar10", "robust": "static_augmentation_small_cnn_cifar10"},
)
