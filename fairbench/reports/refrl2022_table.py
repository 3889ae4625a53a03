"""The claims of ``refrl2022`` as a table: what the report says or prints, and the numbers measured at both radii."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fairbench.leaderboard.results import read_result, result_names
from fairbench.outcomes import Outcomes
from fairbench.reports.claims import MISSING, Claim, Group, Reading, Row
from fairbench.reports.paper_table import Cell, Column, Line, PaperTable
from fairbench.reports.refrl2022 import PAPER, RADII, measure, published_reductions, result_of

_COLUMN = Column("value", "value", 1, 1)
_READINGS = {radius: f"at {radius}" for radius in RADII}
_NAN = (float("nan"), float("nan"))
_PRINTED = {"worst standard error": "std", "worst robust error": "rob"}
"""The measures of claim 3 that the report gives a number for, by the rate."""


def _build(folder: Path | None, _: str | None) -> list[Line]:
    kept = set(result_names(folder))
    results = {name: read_result(name, folder) for name in PAPER.results if name in kept}
    return [
        _line(claim, group, row, results)
        for claim in measure(results)
        for group in claim.groups
        if len(group.models) == 2  # the third compares versions of the public code: no claim of the report
        for row in group.rows
        if any(reading.verdict is not None for reading in row.readings.values())
    ]


def _line(claim: Claim, group: Group, row: Row, results: Mapping[str, Outcomes]) -> Line:
    needed = {radius: [result_of(model, radius) for model in group.models] for radius in RADII}
    missing = tuple(name for names in needed.values() for name in names if name not in results)
    cells = {_READINGS[r]: {"value": c} for r, x in row.readings.items() if (c := _cell(x)) is not None}
    units = [reading.unit for reading in row.readings.values() if reading.verdict != MISSING]
    printed = {}
    if claim.number == 3 and row.measure in _PRINTED:
        printed["value"] = -published_reductions()[_PRINTED[row.measure]]
    return Line(
        (str(claim.number), group.title, row.measure, row.report, units[0] if units else ""),
        printed,
        cells,
        {_READINGS[radius]: " and ".join(names) for radius, names in needed.items()},
        missing,
        more=tuple(row.readings[radius].verdict or "" for radius in RADII),
        decimals=next((r.decimals for r in row.readings.values() if r.verdict != MISSING), None),
    )


def _cell(reading: Reading) -> Cell | None:
    return None if reading.value is None else Cell(reading.value, reading.interval or _NAN)


def _notes(_: Sequence[Line]) -> list[str]:
    return [
        "Values are changes from the first to the second model, relative ones where the unit is %, correlations and "
        "shares of draws as they are. The report gives a number in claim 3 alone, of the worst class's errors. "
        "fairbench paper refrl2022 says more of each."
    ]


TABLE = PaperTable(
    "refrl2022",
    "refrl2022 (reproduction of FRL, ML Reproducibility Challenge)",
    "its four claims, LeNet-5 on Fashion-MNIST, PGD-20",
    ("claim", "models", "measure", "the report", "unit"),
    (_COLUMN,),
    tuple(_READINGS.values()),
    _build,
    more=tuple(f"verdict {reading}" for reading in _READINGS.values()),
    more_by_reading=True,
    notes=_notes,
)
