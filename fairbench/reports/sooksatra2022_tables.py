"""``sooksatra2022`` (Adversarial Training Negatively Affects Fairness): its Tables I, II, IV and V beside kept results.

Its robust models are trained on a fixed adversarial set (``static_augmentation``); PGD-AT stands below them, as what is
meant by adversarial training elsewhere. The paper does not say whom its adversarial examples are made for, so success
rates are read twice: white-box, made for the model itself, and transfer, made for the standard model.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from fairbench.leaderboard.results import published_folder, read_result, result_names
from fairbench.metrics import summarize
from fairbench.metrics.eou import eou
from fairbench.reports.paper_table import HERE, Cell, Column, Line, PaperTable
from fairbench.reports.sooksatra2022_pairs import TRANSFER, WHITE_BOX

_ATTACK = "pgd20"
_CRU_S = Column("cru_s", "CRU_s", 2, 2)
_CONFIDENCE = Column("mean_confidence", "mean confidence", 3, 3)
Build = Callable[[Path | None, str | None], list[Line]]
"""Of :class:`~fairbench.reports.paper_table.PaperTable`."""
_METHODS = {"standard": "standard", "robust": "static_augmentation", "PGD-AT (not in the paper)": "pgd_at"}
"""A row's model as the paper names it, and the method that stands for it."""

_GROUPS = {"Asian": "Asian-Pac-Islander", "Indian american": "Amer-Indian-Eskimo"}
"""Groups that the paper names otherwise than the data do."""


def _cru_s(file: str, suffix: str, protocol: str, own_epsilon: float | None) -> Build:
    """Build a table of CRU_s: models ``METHOD_suffix`` under a protocol whose own epsilon its results do not name."""

    def build(folder: Path | None, _: str | None) -> list[Line]:
        printed = pd.read_csv(published_folder() / file)
        kept, lines = set(result_names(folder)), []
        for name, method in _METHODS.items():
            for epsilon in printed["epsilon"].unique():
                row = printed[(printed["model"] == name) & (printed["epsilon"] == epsilon)]
                value = {"cru_s": float(row["cru_s"].iloc[0])} if len(row) else {}
                changed = "" if epsilon == own_epsilon else f".epsilon-{epsilon:g}"
                white_box = f"{method}_{suffix}.{protocol}{changed}"
                transfer = white_box if method == "standard" else f"{white_box}.transfer-standard_{suffix}"
                results = {WHITE_BOX: white_box, TRANSFER: transfer}
                measured = {r: {"cru_s": _cru_cell(x, folder)} for r, x in results.items() if x in kept}
                missing = tuple(result for result in results.values() if result not in kept)
                lines.append(Line((name, f"{epsilon:g}"), value, measured, results, missing))
        return lines

    return build


def _cru_cell(result: str, folder: Path | None) -> Cell:
    found = summarize(read_result(result, folder)).attacks[_ATTACK]
    return Cell(found.cru_s, found.intervals["cru_s"])


_EOU_PRINTED = (
    "computed here from the printed confidences, of the groups that are measured here; the paper only draws it"
)


def _confidences(file: str, attribute: str) -> Build:
    """Build a table of mean confidences of income above 50,000 by group, and the EOU they make."""

    def build(folder: Path | None, _: str | None) -> list[Line]:
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
                entries = [*zip(of_label["group"], values, strict=True), ("EOU", _spread(of_label, cells, label))]
                for group, value in entries:
                    cell = cells.get((label, _GROUPS.get(group, group)))
                    lines.append(
                        Line(
                            (name, f"D_{label}", group),
                            {"mean_confidence": float(value)} if known else {},
                            {} if cell is None else {HERE: {"mean_confidence": cell}},
                            {HERE: result},
                            missing,
                            remark="" if missing or cell is not None else "fewer than 20 examples",
                            footnote=_EOU_PRINTED if known and group == "EOU" else "",
                        )
                    )
        return lines

    return build


def _spread(printed: pd.DataFrame, cells: dict[tuple[int, str], Cell], label: int) -> float:
    """Return the EOU of the printed confidences, over the groups measured here, so that the two are of one thing."""
    measured = [not cells or (label, _GROUPS.get(group, group)) in cells for group in printed["group"]]
    values = printed["mean_confidence_class1"][measured]
    return float(values.max() - values.min())


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


def _says(*notes: str) -> Callable[[Sequence[Line]], list[str]]:
    """Say below the rows whatever is measured which model of the zoo "robust" is, and more."""
    robust = '"robust" is static_augmentation here, trained on adversarial examples made beforehand, as in the paper.'
    return lambda _: [robust, *notes]


_TO_ITSELF = "A transfer from the standard model to itself is its white-box value."
_LABELS = "D_0: true label <=50K, D_1: >50K."
_FROM = "sooksatra2022 (Adversarial Training Negatively Affects Fairness)"
_READ = "percentage points, PGD-20, lower is better; white-box: made for the model, transfer: made for the standard one"
_MEAN = "mean confidence of an income above 50,000 dollars"
_OF = "test examples by true label, no attack"

TABLE_1 = PaperTable(
    "sooksatra2022-1",
    f"{_FROM}, Table I",
    f"CRU_s, small CNN on CIFAR-10; {_READ}",
    ("model", "epsilon"),
    (_CRU_S,),
    (WHITE_BOX, TRANSFER),
    _cru_s("sooksatra2022_table1.csv", "small_cnn_cifar10", "standard", None),
    notes=_says(_TO_ITSELF),
)
TABLE_2 = PaperTable(
    "sooksatra2022-2",
    f"{_FROM}, Table II",
    f"CRU_s, MLP on Adult, epsilon on raw features; {_READ}",
    ("model", "epsilon"),
    (_CRU_S,),
    (WHITE_BOX, TRANSFER),
    _cru_s("sooksatra2022_table2.csv", "mlp_adult", "sooksatra2022", 10.0),
    notes=_says(_TO_ITSELF),
)
TABLE_4 = PaperTable(
    "sooksatra2022-4",
    f"{_FROM}, Table IV",
    f"{_MEAN} by sex; {_OF}",
    ("model", "label", "group"),
    (_CONFIDENCE,),
    (HERE,),
    _confidences("sooksatra2022_table4.csv", "sex"),
    notes=_says(_LABELS),
)
TABLE_5 = PaperTable(
    "sooksatra2022-5",
    f"{_FROM}, Table V",
    f"{_MEAN} by race; {_OF}",
    ("model", "label", "group"),
    (_CONFIDENCE,),
    (HERE,),
    _confidences("sooksatra2022_table5.csv", "race"),
    notes=_says(_LABELS),
)
