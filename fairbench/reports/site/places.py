"""A row of a board as the tables show it, and what rows can be filtered by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairbench.leaderboard.entries import Entry
from fairbench.leaderboard.ranking import Board, Row
from fairbench.leaderboard.zoo_card import zoo_card
from fairbench.reports.board_text import ATTACK_NAMES, BF16, extra_data_text, figure_text, rank_text, worst_class
from fairbench.reports.site.links import file_name
from fairbench.reports.values import epsilon_text

ORDER = ("worst_rob", "avg_rob", "worst_std", "avg_std", "worst_bndy", "avg_bndy", "cau", "cru_s")
"""Columns as the pages have them: what is ranked by comes first, because a telephone shows the first ones."""


def page_name(entry: Entry) -> str:
    """Return where a model's page lies: ``models/NAME.html``, or ``submissions/NAME.html``."""
    if entry.source == "submission":
        return f"submissions/{entry.name}.html"
    return f"models/{file_name(entry.name)}.html"


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
    def misled(self) -> str:
        """What a stronger attack finds, where that is so much that the robust error misleads."""
        return str(self.entry.found_more) if self.entry.misled else ""

    @property
    def misled_line(self) -> str:
        """That, with the title of the entry."""
        return f"{self.entry.title}: {self.misled}"

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
