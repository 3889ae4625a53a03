"""Table III of ``sooksatra2022``: leave-one-out unfairness as printed, and as measured here, with what was run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench.leaderboard.luf import luf_folder, read_luf
from fairbench.leaderboard.results import published_folder
from fairbench.reports.luf import NOTE
from fairbench.reports.paper_table import HERE, Cell, Column, Line, PaperTable

_COLUMNS = (Column("luf_mean", "LUF_mean", 4, 4), Column("luf_t", "LUF_t", 2, 2), Column("luf_l", "LUF_l", 2, 2))
_FILE = "sooksatra2022_table3.csv"
_MODELS = {"standard": "standard_small_cnn_cifar10", "robust": "static_augmentation_small_cnn_cifar10"}
"""By the row as printed, the kept result (``leaderboard/luf``) that stands for it."""

_LEFT_OUT = 100
"""Samples that the paper leaves out."""
_PAPERS_RUN = (
    f"The paper: {_LEFT_OUT} samples left out of CIFAR-10, 20 epochs, batch 250, Adam; intervals are not given."
)


def _build(folder: Path | None, _: str | None) -> list[Line]:
    folder = folder or luf_folder()
    return [_line(row, folder) for row in pd.read_csv(published_folder() / _FILE).to_dict("records")]


def _line(row: Mapping[Any, Any], folder: Path) -> Line:
    names, result = (str(row["dataset"]), str(row["model"])), _MODELS[str(row["model"])]
    printed = {column.key: float(row[column.key]) for column in _COLUMNS}
    path = folder / f"{result}.json"
    if not path.is_file():
        return Line(names, printed, results={HERE: result}, missing=(result,), more=("not measured",))
    found, _, manifest = read_luf(path)
    cells = {column.key: Cell(getattr(found, column.key), found.intervals[column.key]) for column in _COLUMNS}
    unlike = () if len(manifest["left_out"]) == _LEFT_OUT else ("luf_mean", "luf_t")
    return Line(names, printed, {HERE: cells}, {HERE: result}, more=(_was_run(manifest),), unlike=unlike)


def _was_run(manifest: Mapping[str, Any]) -> str:
    """Return epochs, left-out samples and seed."""
    epochs, left_out = manifest["epochs"], len(manifest["left_out"])
    return f"{epochs} epoch{'s' if epochs != 1 else ''}, {left_out} left out, seed {manifest['seed']}"


def _notes(lines: Sequence[Line]) -> list[str]:
    if not any(line.measured for line in lines):
        return [_PAPERS_RUN]
    scales = "LUF_t is out of the models left out, LUF_l out of the test images: other counts, other scales."
    grow = ["LUF_mean and LUF_t grow with the samples left out: of other counts they have no difference."]
    return [_PAPERS_RUN, NOTE, scales, *(grow if any(line.unlike for line in lines) else [])]


TABLE_3 = PaperTable(
    "sooksatra2022-3",
    "sooksatra2022 (Sooksatra and Rivas, 2022), Table III",
    "leave-one-out unfairness on CIFAR-10, lower is better",
    ("dataset", "model"),
    _COLUMNS,
    (HERE,),
    _build,
    more=("run here",),
    notes=_notes,
)
