"""A model on one board: errors by class, confusion under attack, and where the numbers come from."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairbench.leaderboard.entries import Evidence
from fairbench.metrics.classwise import PRINTED_ERRORS
from fairbench.provenance import sha256_file
from fairbench.reports.board_text import file_stem
from fairbench.reports.site import cards, charts
from fairbench.reports.site.links import file_name
from fairbench.reports.site.places import Place
from fairbench.reports.values import epsilon_text, rate

_MOST_CELLS = 20
"""Classes up to which a confusion matrix is shown whole; of more, the largest confusions."""
_MOST_CONFUSIONS = 20


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
