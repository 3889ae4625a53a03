"""``fairbench table``: a paper's table beside what fairbench measured."""

import json
import re
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairbench.cli.paper_keys import entry
from fairbench.errors import FairbenchError
from fairbench.registry import Registry

if TYPE_CHECKING:
    from fairbench.reports.paper_table import PaperTable

TABLES = Registry(
    "table",
    FairbenchError,
    {f"sun2023-{number}": f"fairbench.reports.sun2023:TABLE_{number}" for number in (1, 2, 3, 4)}
    | {f"sooksatra2022-{number}": f"fairbench.reports.sooksatra2022_tables:TABLE_{number}" for number in (1, 2, 4, 5)}
    | {
        "sooksatra2022-3": "fairbench.reports.sooksatra2022_luf:TABLE_3",
        "refrl2022": "fairbench.reports.refrl2022_table:TABLE",
    },
    listing="fairbench table",
)
RANKED = ("sun2023-1", "sun2023-3")
FOLDER = Path("leaderboard/papers")


class Format(StrEnum):
    """How the table is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    HTML = "html"
    JSON = "json"


def table(
    name: Annotated[
        str | None,
        typer.Argument(help="Key of a table; with --write or --check a folder, by default leaderboard/papers."),
    ] = None,
    format: Annotated[Format, typer.Option(help="How the table is printed.")] = Format.TEXT,
    dataset: Annotated[
        str | None, typer.Option(help="sun2023: whose rows, such as cifar10 or fashion_mnist. Default: all printed.")
    ] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="Instead: how methods rank, and whether the paper's observations hold here.")
    ] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the tables.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write every table in every format into a folder.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 if a folder's tables are not what results and definitions give.")
    ] = False,
) -> None:
    """Print a paper's table beside the kept results, or list, write or check the tables."""
    if sum((list_all, write, check, ranks)) > 1:
        raise FairbenchError("--list, --write, --check and --ranks: give one of them.")
    if (write or check or list_all) and (dataset is not None or format is not Format.TEXT):
        raise FairbenchError("--list, --write and --check are of all tables: leave --dataset and --format out.")
    if list_all and name is not None:
        raise FairbenchError(f"--list is of all tables: leave {name} out.")
    if (write or check) and name in TABLES:
        raise FairbenchError(f"--write and --check are of all tables, and take a folder: leave {name} out.")
    if write or check:
        _folder(FOLDER if name is None else Path(name), write)
    elif name is None and ranks:
        raise FairbenchError(f"--ranks needs a table: {' or '.join(RANKED)}.")
    elif name is None and (dataset is not None or format is not Format.TEXT):
        raise FairbenchError("--dataset and --format are of one table: name it; `fairbench table` lists them.")
    elif list_all or name is None:
        width = max(map(len, TABLES)) + 2
        for key in TABLES:
            print(f"{key:{width}}{_short(TABLES[key].title)}")
    elif ranks:
        print(_ranks(name, dataset, format))
    else:
        from fairbench.reports.table_formats import render

        chosen: PaperTable = entry(TABLES, name)
        of = None if dataset == "all" else dataset
        print(render(chosen, chosen.lines(dataset=of), format.value))


def _short(title: str) -> str:
    """Return a title without its paper, which the key names, and without how to read the numbers.

    Examples
    --------
    >>> _short("sun2023 (Balance Adversarial Training, AAAI 2023), Table 2: ablation of BAT; errors in percent")
    'Table 2: ablation of BAT'
    """
    return re.sub(r"^\w+ \([^)]*\)[,:] ", "", title).partition(";")[0]


def _ranks(name: str, dataset: str | None, format: Format) -> str:
    chosen: PaperTable = entry(TABLES, name)
    if name not in RANKED:
        raise FairbenchError(f"table {name} ranks no methods: leave --ranks out, or ask for {' or '.join(RANKED)}.")
    from fairbench.reports.sun2023 import CIFAR10
    from fairbench.reports.sun2023_ranks import ranked

    if format not in (Format.TEXT, Format.MARKDOWN, Format.JSON):
        raise FairbenchError(f"--ranks --format {format.value}: ranks are printed as text, markdown or json.")
    found = ranked(chosen, dataset or CIFAR10)
    if format is Format.JSON:
        return json.dumps(found.to_dict(), indent=2, allow_nan=False)
    return found.as_markdown() if format is Format.MARKDOWN else found.as_text()


def _folder(folder: Path, write: bool) -> None:
    from fairbench.files import user_path
    from fairbench.reports import paper_folder
    from fairbench.reports.sun2023 import CIFAR10, FASHION
    from fairbench.reports.sun2023_ranks import ranked

    paper_folder.refuse(user_path(folder), writing=write)
    views = {
        f"sun2023-1.ranks.{of.lower()}": ranked(TABLES["sun2023-1"], of).as_markdown() for of in (CIFAR10, FASHION)
    }
    files = paper_folder.contents({key: TABLES[key] for key in TABLES}, views)
    if write:
        paper_folder.write(files, user_path(folder))
        print(f"{folder}: {len(files)} files")
        return
    problems = paper_folder.check(files, user_path(folder))
    for problem in problems:
        print(problem)
    if problems:
        again = "" if folder == FOLDER else f" {shlex.quote(str(folder))}"
        print(
            f"{folder}: {len(problems)} of {len(files)} files differ; fairbench table --write{again} makes them anew."
        )
        raise typer.Exit(1)
    print(f"{folder}: {len(files)} files, all as results and definitions give them")
