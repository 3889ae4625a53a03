"""A figure of a paper, defined once: its panels, the kept results they are drawn from, and who draws it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairbench.errors import OutcomesError
from fairbench.outcomes import Outcomes

Panels = Sequence[tuple[str, Outcomes]]
"""Titles, and what is shown under them."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper, redrawn from kept results.

    Parameters
    ----------
    key
        What users type, "sun2023-4".
    title
        What it shows, and where it is from.
    results
        By dataset (the first is the default) and a panel's title, the kept result that is drawn there.
    drawer
        From the panels and a path to the file.
    """

    key: str
    title: str
    results: Mapping[str, Mapping[str, str]]
    drawer: Callable[[Panels, Path], None]

    def needed(self, dataset: str | None = None) -> list[str]:
        """Return the results it is drawn from."""
        return list(self.results[dataset or next(iter(self.results))].values())

    def missing(self, results: Collection[str], dataset: str | None = None) -> list[str]:
        """Return those that are not there."""
        return [name for name in self.needed(dataset) if name not in results]

    def draw(self, results: Mapping[str, Outcomes], path: Path, dataset: str | None = None) -> None:
        """Draw it as PNG.

        Raises
        ------
        OutcomesError
            A result is missing, results are not of the same classes, or the file cannot be written.
        """
        dataset = dataset or next(iter(self.results))
        if missing := self.missing(results, dataset):
            others = [of for of in self.results if not self.missing(results, of)]
            there = f" All are there for --dataset {', '.join(others)}." if others else ""
            raise OutcomesError(f"figure {self.key} on {dataset}: results not kept yet: {', '.join(missing)}.{there}")
        panels = [(title, results[name]) for title, name in self.results[dataset].items()]
        if len({outcomes.classes for _, outcomes in panels}) > 1:
            raise OutcomesError(f"figure {self.key} on {dataset}: its results are not of the same classes.")
        self.drawer(panels, path)
