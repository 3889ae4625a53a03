"""``fairbench paper``: what a paper claims beside what fairbench measured."""

import json
import sys
import textwrap
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairbench.cli.paper_keys import entry
from fairbench.errors import FairbenchError, OutcomesError
from fairbench.registry import Registry

if TYPE_CHECKING:
    from fairbench.reports.claims import Paper

PAPERS = Registry(
    "paper",
    FairbenchError,
    {key: f"fairbench.reports.{key}:PAPER" for key in ("refrl2022", "sooksatra2022", "sun2023")},
    listing="fairbench paper",
)


class Format(StrEnum):
    """How the claims are printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def paper(
    name: Annotated[str | None, typer.Argument(help="Key of a paper. Default: list them.")] = None,
    format: Annotated[Format, typer.Option(help="How the claims are printed.")] = Format.TEXT,
    figures: Annotated[Path | None, typer.Option(help="Folder for the paper's figures, redrawn as PNG.")] = None,
) -> None:
    """Measure a paper's claims from the kept results, or list the papers."""
    if name is None and (figures is not None or format is not Format.TEXT):
        raise FairbenchError(f"--figures and --format are of one paper: name it, {' or '.join(PAPERS)}.")
    if name is None:
        width = max(map(len, PAPERS)) + 2
        for key in PAPERS:
            print(f"{key:{width}}{PAPERS[key].title}")
        return
    _report(entry(PAPERS, name), format, figures)


def _report(chosen: "Paper", format: Format, figures: Path | None) -> None:
    from fairbench.files import make_folder, user_path
    from fairbench.leaderboard.zoo_card import trained_note
    from fairbench.reports import claims

    results = claims.read_results(chosen)
    missing = [name for name in chosen.results if name not in results]
    if not results:
        raise OutcomesError(f"paper {chosen.key}: none of its results is kept; missing: {', '.join(missing)}.")
    if figures is not None:
        make_folder(user_path(figures))
    measured = chosen.measure(results)
    if format is Format.JSON:
        print(json.dumps(claims.to_dict(chosen, measured, missing), indent=2, allow_nan=False))
    else:
        print((claims.as_markdown if format is Format.MARKDOWN else claims.as_text)(chosen, measured))
    if format is Format.TEXT and (trained := trained_note(name.partition(".")[0] for name in results)):
        print(f"\n{textwrap.fill(trained, 100)}")
    if missing:
        print(f"note: results missing: {', '.join(missing)}", file=sys.stderr)
    if figures is not None:
        drawn = chosen.draw(results, user_path(figures))
        print(f"note: drawn: {', '.join(map(str, drawn)) or 'nothing, for want of results'}", file=sys.stderr)
