"""What a paper claims beside what was measured, with a verdict by the interval: as text, Markdown or plain data."""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairbench.leaderboard.results import read_result, result_names
from fairbench.metrics.intervals import BOOTSTRAP_SEED, DRAWS, LEVEL, Interval
from fairbench.outcomes import Outcomes
from fairbench.reports.text_tables import markdown_table

HOLDS, FAILS, OPEN, MISSING = "holds", "does not hold", "not decided", "not measured"
"""The verdicts; "not decided" where the interval contains the boundary."""

MEASURED = "measured"
"""In place of a radius, the one column of a paper whose measures name their radii themselves."""

BEGIN, END = "<!-- claims -->", "<!-- /claims -->"
"""Markers around the Markdown, as a page in ``docs`` holds it."""

_NOTHING = "-"


@dataclass(frozen=True)
class Reading:
    """One measure at one radius: as people read it, as numbers, and what it says of the claim (None: nothing).

    ``unit`` and ``decimals`` are of the number, "%" of a relative change.
    """

    text: str
    verdict: str | None = None
    remark: str = ""
    value: float | None = None
    interval: Interval | None = None
    unit: str = ""
    decimals: int = 1


@dataclass(frozen=True)
class Row:
    """One measure: what the report says of it, and a reading per radius."""

    measure: str
    report: str
    readings: Mapping[str, Reading]


@dataclass(frozen=True)
class Group:
    """The measures of one claim on one set of models."""

    title: str
    models: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Claim:
    """A claim in a sentence, what the report says and where, and how it was measured."""

    number: int
    title: str
    report: str
    groups: tuple[Group, ...]
    note: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper whose claims can be measured from kept results.

    ``measure`` makes the claims of the results it is given, whichever there are; ``draw`` writes the figures into a
    folder and returns their paths; ``page`` is the page in ``docs`` that holds the claims, by default KEY.md.
    """

    key: str
    title: str
    results: tuple[str, ...]
    radii: tuple[str, ...]
    measure: Callable[[Mapping[str, Outcomes]], tuple[Claim, ...]]
    draw: Callable[[Mapping[str, Outcomes], Path], list[Path]]
    page: str = ""


def read_results(paper: Paper, folder: Path | None = None) -> dict[str, Outcomes]:
    """Read those of a paper's results that are kept.

    Raises
    ------
    OutcomesError
        A result is damaged.
    """
    kept = set(result_names(folder))
    return {name: read_result(name, folder) for name in paper.results if name in kept}


def verdict(interval: Interval, *, above: bool, boundary: float = 0.0) -> str:
    """Say whether a value lies above (or below) a boundary, as claimed, by its interval.

    Examples
    --------
    >>> verdict((1.0, 3.0), above=True), verdict((1.0, 3.0), above=False), verdict((-1.0, 3.0), above=True)
    ('holds', 'does not hold', 'not decided')
    """
    low, high = interval
    if low > boundary:
        return HOLDS if above else FAILS
    if high < boundary:
        return FAILS if above else HOLDS
    return OPEN  # so does an interval that is not known: NaN is on no side


def not_measured(absent: Sequence[str]) -> Reading:
    """Return the reading in place of one whose results are absent."""
    return Reading(f"{MISSING}: {', '.join(absent)}", MISSING)


def group_verdict(group: Group, radius: str) -> str:
    """Return one verdict for all measures of a group at a radius: theirs if they agree, else how many hold.

    Examples
    --------
    >>> rows = [Row(m, "", {"8/255": Reading("", v)}) for m, v in (("a", "holds"), ("b", "holds"), ("c", None))]
    >>> group_verdict(Group("", (), tuple(rows)), "8/255")
    'holds'
    >>> rows.append(Row("d", "", {"8/255": Reading("", "not decided")}))
    >>> group_verdict(Group("", (), tuple(rows)), "8/255")
    'in part: 2 hold, 1 not decided'
    """
    verdicts = [v for row in group.rows if (v := row.readings[radius].verdict) is not None]
    if len(set(verdicts)) <= 1:
        return verdicts[0] if verdicts else _NOTHING
    hold, fail = verdicts.count(HOLDS), verdicts.count(FAILS)
    words = {HOLDS: "hold" if hold != 1 else HOLDS, FAILS: "do not hold" if fail != 1 else FAILS}
    counts = [f"{verdicts.count(v)} {words.get(v, v)}" for v in (HOLDS, FAILS, OPEN, MISSING) if v in verdicts]
    return ("in part: " if hold else "") + ", ".join(counts)


def as_markdown(paper: Paper, claims: Sequence[Claim]) -> str:
    """Return the claims as tables, between the markers of a page."""
    return "\n\n".join([BEGIN, *_overview(paper, claims), *(_section(paper, claim) for claim in claims), END])


def _overview(paper: Paper, claims: Sequence[Claim]) -> list[str]:
    rows = [
        [f"{claim.number}. {claim.title}", group.title, *(group_verdict(group, radius) for radius in paper.radii)]
        for claim in claims
        for group in claim.groups
    ]
    radii = ("verdict" if r == MEASURED else _at(r) for r in paper.radii)
    return [markdown_table(rows, ["claim", "measured on", *radii])]


def _at(radius: str) -> str:
    """Return the heading of a column."""
    return radius if radius == MEASURED else f"at {radius}"


def _where(radius: str) -> str:
    return "" if radius == MEASURED else f"{_at(radius)} "


def _section(paper: Paper, claim: Claim) -> str:
    parts = [f"### {claim.number}. {claim.title}", claim.report]
    header = ["measure", "the paper"] + [cell for radius in paper.radii for cell in (_at(radius), "verdict")]
    for group in claim.groups:
        rows = []
        for row in group.rows:
            readings = [row.readings[radius] for radius in paper.radii]
            rows.append([row.measure, row.report or _NOTHING, *(c for r in readings for c in (r.text, _judged(r)))])
        parts += [
            f"{_capital(group.title)}: {', '.join(f'`{m}`' for m in group.models)}.",
            markdown_table(rows, header),
        ]
    return "\n\n".join([*parts, claim.note] if claim.note else parts)


def as_text(paper: Paper, claims: Sequence[Claim]) -> str:
    """Return the claims for a terminal."""
    radius_width = max(map(len, paper.radii))
    lines = [f"{paper.key}: {paper.title}", ""]
    for claim in claims:
        lines.append(f"{claim.number}. {claim.title}")
        lines += [f"     {group.title}: {_verdicts(paper, group)}" for group in claim.groups]
    for claim, following in zip_longest(claims, claims[1:]):
        lines += ["", f"{claim.number}. {claim.title}", *_wrapped(claim.report)]
        for group in claim.groups:
            lines += ["", f"   {group.title}: {', '.join(group.models)}"]
            if _is_absent(group):
                lines += [f"     {text}" for text in dict.fromkeys(r.text for r in _readings(group))]
                continue
            for row in group.rows:
                lines.append(f"     {row.measure}" + (f" (the paper: {row.report})" if row.report else ""))
                for radius in paper.radii:
                    reading = row.readings[radius]
                    judged = _judged(reading)
                    after = "" if judged == _NOTHING else f"   {judged}"
                    lines.append(f"       {radius:>{radius_width}}  {reading.text}{after}")
            lines.append(f"     verdict: {_verdicts(paper, group)}")
        if claim.note and (following is None or following.note != claim.note):
            lines += ["", *_wrapped(claim.note)]
    return "\n".join(lines)


def _verdicts(paper: Paper, group: Group) -> str:
    return "; ".join(_where(radius) + group_verdict(group, radius) for radius in paper.radii)


def _is_absent(group: Group) -> bool:
    """Whether nothing of it was measured."""
    return all(reading.verdict == MISSING for reading in _readings(group))


def _readings(group: Group) -> Iterator[Reading]:
    return (reading for row in group.rows for reading in row.readings.values())


def to_dict(paper: Paper, claims: Sequence[Claim], missing: Sequence[str]) -> dict[str, Any]:
    """Return the claims as plain data; a number that is not known is None."""
    return {
        "paper": paper.key,
        "title": paper.title,
        "level": LEVEL,
        "draws": DRAWS,
        "seed": BOOTSTRAP_SEED,
        "missing": list(missing),
        "claims": [
            {
                "number": claim.number,
                "title": claim.title,
                "report": claim.report,
                "note": claim.note,
                "groups": [_plain_group(paper, group) for group in claim.groups],
            }
            for claim in claims
        ],
    }


def _plain_group(paper: Paper, group: Group) -> dict[str, Any]:
    return {
        "title": group.title,
        "models": list(group.models),
        "verdict": {radius: group_verdict(group, radius) for radius in paper.radii},
        "rows": [
            {
                "measure": row.measure,
                "report": row.report,
                "readings": {
                    radius: {
                        "text": reading.text,
                        "value": _plain_number(reading.value),
                        "interval": None if reading.interval is None else [_plain_number(v) for v in reading.interval],
                        "verdict": reading.verdict,
                        "remark": reading.remark,
                    }
                    for radius, reading in row.readings.items()
                },
            }
            for row in group.rows
        ],
    }


def _plain_number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _judged(reading: Reading) -> str:
    if reading.verdict == MISSING:  # its text says so
        return _NOTHING
    return "; ".join(part for part in (reading.verdict, reading.remark) if part) or _NOTHING


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="   ", subsequent_indent="   ")
