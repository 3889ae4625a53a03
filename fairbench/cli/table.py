"""``fairbench table``: a paper's table beside what fairbench measured."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from fairbench.errors import FairbenchError
from fairbench.registry import Registry

if TYPE_CHECKING:
    from fairbench.reports.published import PublishedTable
    from fairbench.reports.sooksatra2022_luf import LufTable
    from fairbench.reports.sooksatra2022_tables import ReadingsTable

TABLES = Registry(
    "table",
    FairbenchError,
    {f"sun2023-{number}": f"fairbench.reports.sun2023:TABLE_{number}" for number in (1, 2, 3)}
    | {f"sooksatra2022-{number}": f"fairbench.reports.sooksatra2022_tables:TABLE_{number}" for number in (1, 2, 4, 5)}
    | {"sooksatra2022-3": "fairbench.reports.sooksatra2022_luf:TABLE_3"},
)


class Format(StrEnum):
    """How the table is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"
    JSON = "json"


def table(
    name: Annotated[str | None, typer.Argument(help="Key of a table. Default: list them.")] = None,
    format: Annotated[Format, typer.Option(help="How the table is printed.")] = Format.TEXT,
    dataset: Annotated[
        str | None, typer.Option(help="sun2023: whose rows, as the paper names it; all for all. Default: CIFAR-10.")
    ] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Instead: how the methods rank, printed and measured.")
    ] = False,
) -> None:
    """Print a paper's table beside the kept results, or list the tables."""
    if name is None:
        for key in TABLES:
            print(f"{key}  {TABLES[key].title}")
        return
    chosen: PublishedTable | ReadingsTable | LufTable = TABLES[name]
    from fairbench.reports import published

    if not isinstance(chosen, published.PublishedTable):
        _print_other(chosen, format, dataset, ranks)
        return
    rows = published.entries(chosen, None if dataset == "all" else dataset or "CIFAR-10")
    if ranks:
        print(published.ranks(rows))
        return
    if format is Format.JSON:
        print(json.dumps(published.to_dict(chosen, rows), indent=2, allow_nan=False))
        return
    how = {
        Format.TEXT: published.as_text,
        Format.MARKDOWN: published.as_markdown,
        Format.LATEX: published.as_latex,
    }
    print(how[format](chosen, rows))


def _print_other(chosen: "ReadingsTable | LufTable", format: Format, dataset: str | None, ranks: bool) -> None:
    if dataset is not None or ranks:
        raise FairbenchError(
            f"table {chosen.key} is of one dataset and ranks no methods: leave --dataset and --ranks out."
        )
    print(chosen.render(format.value))
