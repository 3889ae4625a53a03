"""What the templates are given: a board's rows, and a model's page with a section for every board it is on."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairbench.leaderboard.ranking import COLUMNS, Board, Entry, Evidence, Row
from fairbench.leaderboard.searches import SEARCH
from fairbench.leaderboard.zoo_card import zoo_card
from fairbench.metrics.classwise import PRINTED_ERRORS
from fairbench.metrics.curves import Curves, success_curves
from fairbench.outcomes import Outcomes
from fairbench.provenance import sha256_file, sha256_plain
from fairbench.reports.board_text import (
    ATTACK_NAMES,
    BF16,
    extra_data_text,
    figure_text,
    file_stem,
    rank_text,
    title,
    worst_class,
)
from fairbench.reports.site import cards, charts
from fairbench.reports.values import epsilon_text, rate

ORDER = ("worst_rob", "avg_rob", "worst_std", "avg_std", "worst_bndy", "avg_bndy", "cau", "cru_s")
"""Columns as the pages have them: what is ranked by comes first, because a telephone shows the first ones."""
_MOST_CELLS = 20
"""Classes up to which a confusion matrix is shown whole; of more, the largest confusions."""
_MOST_CONFUSIONS = 20
_RADII, _TABLE_RADII = 32, 8


def page_name(entry: Entry) -> str:
    """Return where a model's page lies: ``models/NAME.html``, or ``submissions/NAME.html``."""
    if entry.source == "submission":
        return f"submissions/{entry.name}.html"
    return f"models/{file_name(entry.name)}.html"


def file_name(text: str) -> str:
    """Return a name that is one file's in every system; another text gives another name."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip(".")[:100]
    return plain if plain == text else f"{plain}-{sha256_plain(text.encode())[:8]}"


def figure(row: Row, column: str) -> dict[str, Any]:
    """Return a figure as the pages show it: number, interval, class, and a key to sort by; not measured is last."""
    number, _, interval = figure_text(row, column).partition(" ")
    value, (low, high) = row.value(column), row.interval(column)
    known = all(map(math.isfinite, (value, low, high)))
    return {
        "number": number,
        "interval": interval,
        "class": worst_class(row, column),
        "order": f"{value:.6f}" if math.isfinite(value) else "1000000",
        "span": (round(low, 2), round(value, 2), round(high, 2)) if known and column != "cau" else None,
    }


@dataclass(frozen=True)
class Place:
    """An entry on a board, with what a row of a table needs."""

    board: Board
    row: Row

    @property
    def entry(self) -> Entry:
        """The entry."""
        return self.row.entry

    @property
    def page(self) -> str:
        """Where its model's page lies."""
        return page_name(self.entry)

    @property
    def rank(self) -> str:
        """The range of its places, nothing where it is not ranked."""
        return rank_text(self.row).replace("-", "–")

    @property
    def attack(self) -> str:
        """The attack's name, without the mark."""
        return ATTACK_NAMES[self.entry.attack.attack].removesuffix(" *")

    @property
    def lower_bound(self) -> bool:
        """Whether AutoAttack was not run."""
        return self.entry.attack.attack != "autoattack"

    @property
    def mark(self) -> str:
        """How gradients were computed where it was not in float32."""
        return "" if self.entry.precision == "float32" else BF16

    @property
    def threat(self) -> str:
        """The threat model."""
        return f"L-inf {epsilon_text(self.board.epsilon)}"

    @property
    def extra_data(self) -> str:
        """The extra training data, "none" where there was none."""
        return extra_data_text(self.entry) or "none"

    @property
    def extra_kind(self) -> str:
        """What the filter of extra data knows: "none", "some", "not stated"."""
        return {"": "none", None: "not stated"}.get(self.entry.extra_data, "some")

    @property
    def subtitle(self) -> str | None:
        """A second line under the name: the zoo card's title, or the entry and version of a submission."""
        if self.entry.source == "submission":
            return f"{self.entry.name}.{self.entry.version}"
        if self.entry.source == "public":
            return "public checkpoint"
        card = zoo_card(self.entry.name)
        return None if card is None else str(card["title"])

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """All figures by column."""
        return {column: figure(self.row, column) for column in ORDER}


@dataclass(frozen=True)
class BoardPage:
    """A board as its page shows it."""

    board: Board

    @property
    def stem(self) -> str:
        """Name of its files."""
        return file_stem(self.board)

    @property
    def title(self) -> str:
        """Its name."""
        return title(self.board)

    @cached_property
    def ranked(self) -> list[Place]:
        """Its ranked rows."""
        return [Place(self.board, row) for row in self.board.ranked]

    @cached_property
    def sample(self) -> list[Place]:
        """Rows measured on the sample."""
        return [Place(self.board, row) for row in self.board.sample]

    @cached_property
    def front(self) -> charts.Front | None:
        """Its figure."""
        return charts.front(self.board)

    @property
    def places(self) -> list[Place]:
        """All rows."""
        return [*self.ranked, *self.sample]

    @property
    def any_lower_bound(self) -> bool:
        """Whether a row was judged by PGD-20 alone."""
        return any(place.lower_bound for place in self.places)


@dataclass(frozen=True)
class Section(Place):
    """An entry as its model's page shows it: errors by class, confusion, where the numbers come from."""

    @property
    def evidence(self) -> Evidence:
        """What it is made of."""
        if self.entry.evidence is None:
            raise ValueError(f"the entry {self.entry.name} has no evidence")
        return self.entry.evidence

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return f"{file_stem(self.board)}_{'sample' if self.entry.sample else 'test'}"

    @property
    def examples(self) -> str:
        """How many examples it was measured on."""
        n = f"{self.entry.attack.n:,}"
        return f"{n} images of the sample" if self.entry.sample else f"{n} test examples"

    @property
    def download(self) -> str:
        """Name of the outcome table that lies beside the page."""
        if self.entry.source == "submission":
            return f"{self.entry.name}.{self.entry.version}.parquet"
        return f"{file_name(self.evidence.table.stem)}.parquet"

    @property
    def manifest(self) -> str:
        """The manifest as text."""
        return json.dumps(self.evidence.manifest, indent=2) + "\n"

    @cached_property
    def classes(self) -> list[dict[str, Any]]:
        """A row per class: errors with their intervals, and whether it is the worst."""
        attack = self.entry.attack
        rows: list[dict[str, Any]] = []
        for record in attack.classes.to_dict("records"):
            intervals = attack.class_intervals[record["class"]]
            errors = {e: _error(float(record[e]), intervals[e]) for e in PRINTED_ERRORS}
            rows.append({"name": str(record["class"]), "n": int(record["n"]), **errors})
        for error in ("std", "rob"):
            worst = max((row[error]["value"] for row in rows if row[error]["known"]), default=math.nan)
            for row in rows:
                row[error]["worst"] = row[error]["value"] == worst
        return rows

    @property
    def confusion(self) -> list[dict[str, Any]] | None:
        """Rows of the confusion matrix: the class, and the share of it predicted as each; None for many classes."""
        names = [row["name"] for row in self.classes]
        if len(names) > _MOST_CELLS:
            return None
        return [
            {"name": name, "n": int(counts.sum()), "cells": [_cell(c, int(counts.sum())) for c in counts]}
            for name, counts in zip(names, self.evidence.confusion, strict=True)
        ]

    @property
    def confusions(self) -> list[tuple[str, str, str]]:
        """The largest confusions: the class, what it is taken for, and the share of it that is, in percent."""
        counts, names = self.evidence.confusion, [row["name"] for row in self.classes]
        sizes = counts.sum(axis=1)
        found = [
            (100 * float(counts[a, b]) / float(sizes[a]), a, b)
            for a in range(len(names))
            for b in range(len(names))
            if a != b and counts[a, b]
        ]
        found.sort(key=lambda pair: (-pair[0], pair[1], pair[2]))
        return [(names[a], names[b], f"{share:.1f}") for share, a, b in found[:_MOST_CONFUSIONS]]

    @property
    def provenance(self) -> cards.Facts:
        """Where the numbers come from."""
        held = _part(self.evidence.manifest)
        model, dataset, protocol = (_part(held.get(key)) for key in ("model", "dataset", "protocol"))
        facts = [
            ("protocol", protocol.get("name")),
            ("changed in it", _pairs(protocol.get("modified"))),
            ("seed", protocol.get("seed")),
            *((f"attack {name}", _pairs(parameters)) for name, parameters in _part(held.get("attacks")).items()),
            ("run", held.get("run")),
            ("outcome table, SHA-256", sha256_file(self.evidence.table)),
            ("weights as loaded, SHA-256", model.get("sha256")),
            ("code of the model, SHA-256", model.get("code_sha256")),
            ("test data, SHA-256", dataset.get("sha256")),
            ("versions", _pairs(held.get("versions"))),
            ("hardware", ", ".join(str(v) for k, v in _part(held.get("hardware")).items() if k != "threads")),
            ("seconds", _pairs(held.get("seconds"))),
            ("notes", _plain(held.get("notes") or "")),
            ("warnings", _plain(held.get("warnings") or "")),
        ]
        return [(name, str(value)) for name, value in facts if value not in (None, "")]


def _error(value: float, interval: tuple[float, float]) -> dict[str, Any]:
    number, _, text = rate(value, interval).partition(" ")
    known = all(map(math.isfinite, (value, *interval)))
    ends = tuple(round(v, 2) for v in interval) if known else (0.0, 0.0)
    return {"value": value, "number": number, "interval": text, "low": ends[0], "high": ends[1], "known": known}


def _cell(count: int, n: int) -> dict[str, Any]:
    share = 100 * count / n if n else 0.0
    text = "" if not n else "0" if not count else f"{share:.0f}" if share >= 0.5 else "<1"
    return {"text": text, "step": round(share / 100 * charts.STEPS), "title": f"{count:,} of {n:,}"}


def _part(value: Any) -> Mapping[str, Any]:
    """Return a part of a manifest, which may be anything where somebody else wrote it."""
    return value if isinstance(value, Mapping) else {}


def _pairs(held: Any) -> str:
    return ", ".join(f"{key} {_plain(value)}" for key, value in _part(held).items())


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return epsilon_text(value)
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True)
class Curve:
    """A model's success rates over epsilon, as a figure and as rows of a table."""

    search: Outcomes
    found: Curves

    @property
    def lines(self) -> charts.Lines:
        """The figure."""
        return charts.lines(self.found)

    @property
    def examples(self) -> int:
        """How many examples were searched."""
        return len(self.search)

    @property
    def radius(self) -> str:
        """The largest radius."""
        return epsilon_text(self.search.manifest["attacks"][SEARCH]["epsilon"])

    @property
    def rows(self) -> list[dict[str, str]]:
        """Some of the radii: epsilon, average, worst class, CRU_s."""
        records = self.found.overall.to_dict("records")
        step = max(1, math.ceil((len(records) - 1) / _TABLE_RADII))
        return [
            {
                "epsilon": epsilon_text(row["epsilon"]),
                "average": rate(row["average"], (row["average_low"], row["average_high"])),
                "worst": f"{row['worst']:.2f} {row['worst_class']}",
                "cru_s": rate(row["cru_s"], (row["cru_s_low"], row["cru_s_high"])),
            }
            for row in records[::step]
        ]


def curve(search: Outcomes) -> Curve:
    """Return the curve of a search, at 33 of its radii at most."""
    held = search.manifest["attacks"][SEARCH]
    levels = round(held["epsilon"] / held["resolution"])
    step = max(1, math.ceil(levels / _RADII))
    return Curve(search, success_curves(search, SEARCH, [n * held["resolution"] for n in range(0, levels + 1, step)]))


@dataclass(frozen=True)
class ModelPage:
    """A model with a section for every board that it is on; whole test splits before the sample."""

    page: str
    sections: list[Section] = field(default_factory=list)
    search: Outcomes | None = None
    older: tuple[str, ...] = ()

    @property
    def entry(self) -> Entry:
        """The entry of its first section."""
        return self.sections[0].entry

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.entry.title

    @property
    def submission(self) -> bool:
        """Whether somebody submitted it."""
        return self.entry.source == "submission"

    @cached_property
    def curve(self) -> Curve | None:
        """Its curve, where it was measured."""
        return None if self.search is None else curve(self.search)

    @cached_property
    def zoo(self) -> dict[str, Any] | None:
        """Its card in the zoo."""
        return zoo_card(self.entry.name) if self.entry.source == "zoo" else None

    @property
    def facts(self) -> tuple[cards.Facts, cards.Facts]:
        """What its card says of it and of its training."""
        card = self.sections[0].evidence.card
        if card is not None:
            return cards.submission_facts(card, self.entry.version), []
        return ([], []) if self.zoo is None else cards.zoo_facts(self.zoo)

    @property
    def card_text(self) -> str | None:
        """Its whole card as YAML."""
        card = self.sections[0].evidence.card or self.zoo
        return None if card is None else cards.as_yaml(card)

    @property
    def addresses(self) -> list[tuple[str, str]]:
        """Links that a submission's card gives."""
        card = self.sections[0].evidence.card
        named = [] if card is None else [("paper", card.paper), ("weights", card.weights.url)]
        return [(name, address) for name, address in named if address is not None]


def model_pages(found: Sequence[BoardPage], searches: Mapping[str, Outcomes]) -> list[ModelPage]:
    """Return the page of every model that is on a board, in the order of their names.

    Of several submissions only what the card of the first section says is shown; they are one submission.
    """
    sections: dict[str, list[Section]] = {}
    for board in found:
        for place in board.places:
            sections.setdefault(place.page, []).append(Section(place.board, place.row))
    pages = []
    for page, held in sorted(sections.items()):
        first = held[0].entry
        search = searches.get(first.name) if first.source != "submission" else None
        pages.append(ModelPage(page, sorted(held, key=lambda s: s.entry.sample), search))
    return pages


def filters(places: Sequence[Place]) -> dict[str, list[str]]:
    """Return what the rows of a table can be filtered by: the values of each key, where there is more than one."""
    values = {
        "dataset": [p.entry.dataset for p in places],
        "threat model": [p.threat for p in places],
        "attack": [p.attack for p in places],
        "examples": [examples_kind(p) for p in places],
        "extra data": [p.extra_kind for p in places],
    }
    return {key: kinds for key, held in values.items() if len(kinds := list(dict.fromkeys(held))) > 1}


def examples_kind(place: Place) -> str:
    """Return whether a row is of the whole test split or of the sample."""
    return "sample of 1,000" if place.entry.sample else "whole test split"


def safe_address(address: str) -> str | None:
    """Return an address that may become a link: http or https and nothing else."""
    return address if re.match(r"https?://[^\s<>\"'`\\]+$", address) else None


def path_address(path: str | Path) -> str:
    """Return a relative path as it stands in a link."""
    return quote(str(path))


__all__ = [
    "COLUMNS",
    "ORDER",
    "BoardPage",
    "ModelPage",
    "Place",
    "Section",
    "examples_kind",
    "filters",
    "model_pages",
    "path_address",
    "safe_address",
]
