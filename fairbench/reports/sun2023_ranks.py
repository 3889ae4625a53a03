"""The second view of Tables 1 and 3 of ``sun2023``: how methods rank, and whether the observations hold here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairbench.reports import claims
from fairbench.reports.claims import Claim, Paper
from fairbench.reports.paper_table import PaperTable
from fairbench.reports.published import Ranks, rank_rows, ranks_as_text, same_dataset
from fairbench.reports.sun2023 import CIFAR10, FASHION, paper_on


@dataclass(frozen=True)
class Ranked:
    """The second view of a table: how methods rank, printed and measured, and whether the paper's observations hold."""

    table: PaperTable
    dataset: str
    ranks: Mapping[str, Mapping[str, Ranks]]
    paper: Paper
    claims: tuple[Claim, ...]
    missing: tuple[str, ...]
    footnotes: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Return it for a terminal."""
        ranks = ranks_as_text(self.ranks, "simple")
        return "\n\n".join([*self._head(), ranks, claims.as_text(self.paper, self.claims), *self._tail()])

    def as_markdown(self) -> str:
        """Return it as Markdown."""
        first, *rest = self._head()
        found = claims.as_markdown(self.paper, self.claims).removeprefix(claims.BEGIN).removesuffix(claims.END).strip()
        ranks = ranks_as_text(self.ranks, "github")
        return "\n\n".join([f"# {first}", *rest, ranks, "## The observations", found, *self._tail()])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        ranks = {
            name: {metric: {"paper": one.paper, "here": [*one.here]} for metric, one in of.items()}
            for name, of in self.ranks.items()
        }
        observations = claims.to_dict(self.paper, self.claims, self.missing)
        return {
            "table": self.table.key,
            "dataset": self.dataset,
            "ranks": ranks,
            "footnotes": [*self.footnotes],
            "observations": observations,
        }

    def _head(self) -> list[str]:
        beside = f" The printed ranks and the claimed numbers are of {CIFAR10}." if self.dataset == FASHION else ""
        return [
            f"{self.table.source}: ranks and observations, measured on {self.dataset}",
            "Ranks are among the methods measured, 1 is the least error: of the printed values, and here all that "
            f"the 95 % intervals leave open, as on the boards.{beside} Two models are compared on the same images; an "
            "observation holds if the 95 % interval of the paired difference is on its side of 0.",
        ]

    def _tail(self) -> list[str]:
        missing = [f"Not measured yet: {', '.join(self.missing)}."] if self.missing else []
        return [*self.footnotes, *missing]


def ranked(table: PaperTable, dataset: str, folder: Path | None = None) -> Ranked:
    """Rank the methods of Table 1 or 3 on a dataset, and measure the observations there.

    Raises
    ------
    OutcomesError
        The table has no rows of the dataset, or a result is damaged.
    """
    of = same_dataset(dataset, table.datasets, table.key)
    measured = table.lines(folder, of)
    printed = measured if any(line.printed for line in measured) else table.lines(folder, CIFAR10)
    paper = paper_on(of)
    results = claims.read_results(paper, folder)
    missing = tuple(name for name in paper.results if name not in results)
    footnotes = tuple(line.footnote for line in measured if line.footnote)
    return Ranked(table, of, rank_rows(printed, measured), paper, paper.measure(results), missing, footnotes)
