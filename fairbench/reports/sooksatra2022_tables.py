"""``sooksatra2022`` (Adversarial Training Negatively Affects Fairness): its Tables I, II, IV and V beside kept results.

Its robust models are trained on a fixed adversarial set (``static_augmentation``); PGD-AT stands below them, as what is
meant by adversarial training elsewhere. The paper does not say whom its adversarial examples are made for, so success
rates are read twice: white-box, made for the model itself, and transfer, made for the standard model.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fairbench.leaderboard.results import published_folder, read_result, result_names
from fairbench.metrics import summarize
from fairbench.metrics.eou import eou
from fairbench.metrics.intervals import Interval

_ATTACK = "pgd20"
WHITE_BOX, TRANSFER, HERE = "white-box", "transfer", "here"
_METHODS = {"standard": "standard", "robust": "static_augmentation", "PGD-AT (not in the paper)": "pgd_at"}
"""A row's model as the paper names it, and the method that stands for it."""

_GROUPS = {"Asian": "Asian-Pac-Islander", "Indian american": "Amer-Indian-Eskimo"}
"""Groups that the paper names otherwise than the data do."""


class Cell(NamedTuple):
    """A measured value and its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Line:
    """A row: what it is of, what is printed (None: the paper has no such row), and what was measured, by reading.

    ``missing`` names the results that it needs and that are not kept; ``remark`` says why there is no value otherwise.
    """

    names: tuple[str, ...]
    printed: float | None
    measured: dict[str, Cell] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class ReadingsTable:
    """A published table in lines, each read in one or several ways.

    Parameters
    ----------
    key, title
        What users type, and what the table shows.
    labels
        Headings of a line's names.
    readings
        Headings of the measured columns.
    decimals
        Of its values.
    build
        From the folder of kept results (None: the package's) to the lines.
    """

    key: str
    title: str
    labels: tuple[str, ...]
    readings: tuple[str, ...]
    decimals: int
    build: Callable[[Path | None], list[Line]]

    def lines(self, folder: Path | None = None) -> list[Line]:
        """Return the lines, measured where results are kept."""
        return self.build(folder)

    def text(self, lines: Sequence[Line], tablefmt: str) -> str:
        """Return the table in a format of tabulate, with what is missing."""
        from tabulate import tabulate

        rows = [
            [*line.names, self._number(line.printed), *(self._cell(line, name) for name in self.readings)]
            for line in lines
        ]
        header = [*self.labels, "paper", *self.readings]
        align = ["left"] * len(self.labels) + ["right"] * (1 + len(self.readings))
        body = tabulate(rows, header, tablefmt, disable_numparse=True, colalign=align)
        notes = _notes(lines)
        if tablefmt.startswith("latex"):
            return "\n".join([*(f"% {line}" for line in (self.title, *notes)), body])
        return "\n\n".join([self.title, body, *notes])

    def render(self, format: str) -> str:
        """Return the table as "text", "markdown", "latex" or "json"."""
        lines = self.lines()
        if format == "json":
            return json.dumps(self.to_dict(lines), indent=2, allow_nan=False)
        return self.text(lines, {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}[format])

    def to_dict(self, lines: Sequence[Line]) -> dict[str, Any]:
        """Return plain data; what was not measured is None."""
        rows = []
        for line in lines:
            found = {n: line.measured.get(n) for n in self.readings}
            rows.append(
                {
                    **dict(zip(self.labels, line.names, strict=True)),
                    "published": line.printed,
                    "measured": {n: None if c is None else c.value for n, c in found.items()},
                    "intervals": {n: None if c is None else list(c.interval) for n, c in found.items()},
                    "remark": line.remark,
                }
            )
        return {"table": self.key, "title": self.title, "rows": rows}

    def _number(self, value: float | None) -> str:
        return "" if value is None else f"{value:.{self.decimals}f}"

    def _cell(self, line: Line, reading: str) -> str:
        cell = line.measured.get(reading)
        if cell is None:
            return line.remark
        low, high = (self._number(end) for end in cell.interval)
        return f"{self._number(cell.value)} [{low}, {high}]"


def _notes(lines: Sequence[Line]) -> list[str]:
    missing = dict.fromkeys(name for line in lines for name in line.missing)
    return [f"Not measured yet: {', '.join(missing)}."] if missing else []


def _cru_s(file: str, suffix: str, protocol: str, own_epsilon: float | None) -> Callable[[Path | None], list[Line]]:
    """Build a table of CRU_s: models ``METHOD_suffix`` under a protocol whose own epsilon its results do not name."""

    def build(folder: Path | None) -> list[Line]:
        printed = pd.read_csv(published_folder() / file)
        kept, lines = set(result_names(folder)), []
        for name, method in _METHODS.items():
            for epsilon in printed["epsilon"].unique():
                row = printed[(printed["model"] == name) & (printed["epsilon"] == epsilon)]
                value = float(row["cru_s"].iloc[0]) if len(row) else None
                changed = "" if epsilon == own_epsilon else f".epsilon-{epsilon:g}"
                white_box = f"{method}_{suffix}.{protocol}{changed}"
                transfer = white_box if method == "standard" else f"{white_box}.transfer-standard_{suffix}"
                results = {WHITE_BOX: white_box, TRANSFER: transfer}
                measured = {r: _cru_cell(result, folder) for r, result in results.items() if result in kept}
                missing = tuple(result for result in results.values() if result not in kept)
                lines.append(Line((name, f"{epsilon:g}"), value, measured, missing))
        return lines

    return build


def _cru_cell(result: str, folder: Path | None) -> Cell:
    found = summarize(read_result(result, folder)).attacks[_ATTACK]
    return Cell(found.cru_s, found.intervals["cru_s"])


def _confidences(file: str, attribute: str) -> Callable[[Path | None], list[Line]]:
    """Build a table of mean confidences of income above 50,000 by group, and the EOU they make."""

    def build(folder: Path | None) -> list[Line]:
        printed = pd.read_csv(published_folder() / file)
        kept, lines = set(result_names(folder)), []
        for name, method in _METHODS.items():
            result = f"{method}_mlp_adult.sooksatra2022"
            cells = _eou_cells(result, attribute, folder) if result in kept else {}
            missing = () if result in kept else (result,)
            rows = printed[printed["model"] == ("standard" if name not in set(printed["model"]) else name)]
            for label in (0, 1):
                of_label = rows[rows["true_label"] == label]
                values = of_label["mean_confidence_class1"]
                known = name in set(printed["model"])
                entries = [*zip(of_label["group"], values, strict=True), ("EOU", values.max() - values.min())]
                for group, value in entries:
                    cell = cells.get((label, _GROUPS.get(group, group)))
                    lines.append(
                        Line(
                            (name, f"D_{label}", group),
                            float(value) if known else None,
                            {} if cell is None else {HERE: cell},
                            missing,
                            "" if missing or cell is not None else "fewer than 20 examples",
                        )
                    )
        return lines

    return build


def _eou_cells(result: str, attribute: str, folder: Path | None) -> dict[tuple[int, str], Cell]:
    outcomes = read_result(result, folder)
    found = eou(outcomes, attribute)
    number = {name: label for label, name in enumerate(outcomes.classes)}
    cells = {}
    for row in found.groups.to_dict("records"):
        cells[number[row["label"]], row["group"]] = Cell(row["mean"], (row["low"], row["high"]))
    for row in found.labels.to_dict("records"):
        cells[number[row["label"]], "EOU"] = Cell(row["eou"], (row["low"], row["high"]))
    return cells


_FROM = "sooksatra2022 (Adversarial Training Negatively Affects Fairness)"
_READ = "percentage points, PGD-20, lower is better; white-box: made for the model, transfer: made for the standard one"
_MEAN = "mean confidence of an income above 50,000 dollars, test examples by true label, no attack"

TABLE_1 = ReadingsTable(
    "sooksatra2022-1",
    f"{_FROM}, Table I: CRU_s, small CNN on CIFAR-10; {_READ}",
    ("model", "epsilon"),
    (WHITE_BOX, TRANSFER),
    2,
    _cru_s("sooksatra2022_table1.csv", "small_cnn_cifar10", "standard", None),
)
TABLE_2 = ReadingsTable(
    "sooksatra2022-2",
    f"{_FROM}, Table II: CRU_s, MLP on Adult, epsilon on raw features; {_READ}",
    ("model", "epsilon"),
    (WHITE_BOX, TRANSFER),
    2,
    _cru_s("sooksatra2022_table2.csv", "mlp_adult", "sooksatra2022", 10.0),
)
TABLE_4 = ReadingsTable(
    "sooksatra2022-4",
    f"{_FROM}, Table IV: {_MEAN}; by sex",
    ("model", "label", "group"),
    (HERE,),
    3,
    _confidences("sooksatra2022_table4.csv", "sex"),
)
TABLE_5 = ReadingsTable(
    "sooksatra2022-5",
    f"{_FROM}, Table V: {_MEAN}; by race",
    ("model", "label", "group"),
    (HERE,),
    3,
    _confidences("sooksatra2022_table5.csv", "race"),
)
