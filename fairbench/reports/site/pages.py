"""What the templates are given: a board's page, and a model's with a section for every board it is on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fairbench.leaderboard.entries import Entry
from fairbench.leaderboard.ranking import Board
from fairbench.leaderboard.zoo_card import zoo_card
from fairbench.outcomes import Outcomes
from fairbench.reports.board_text import file_stem, title
from fairbench.reports.site import cards, charts
from fairbench.reports.site.curves import Curve, curve
from fairbench.reports.site.places import Place
from fairbench.reports.site.sections import Section


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
        named = [] if card is None else [("paper", card.paper), ("code", card.code), ("weights", card.weights.url)]
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
