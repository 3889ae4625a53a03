"""``fairbench leaderboard``: check, verify and add submissions; build and show the board."""

import contextlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairbench.cli import shared_options
from fairbench.cli.verify import verify

if TYPE_CHECKING:
    from fairbench.leaderboard.checked import Checked

leaderboard_app = typer.Typer(
    help="Check, verify and add submissions; build and show the board.", rich_markup_mode=None, no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(help="Folder of a submission, as `fairbench submit` packs it.")]
Board = Annotated[Path, typer.Option(help="Folder of the board.")]
Site = Annotated[Path | None, typer.Option(help="Folder of the pages. Default: site in the board's folder.")]
BOARD = Path("leaderboard")

leaderboard_app.command()(verify)


@leaderboard_app.command()
def check(
    submission: Folder,
    board: Board = BOARD,
    data_dir: shared_options.DataDirOrCache = None,
    as_json: shared_options.AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse where labels could not be compared, as add does.")
    ] = False,
) -> None:
    """Check a submission and list every problem; exit code 1 if there is one."""
    checked = _checked(submission, board, data_dir)
    if strict and not checked.problems and not checked.labels_compared:
        checked.problems.append("not all labels could be compared: give --data-dir, with the full test split in it")
    if as_json:
        document = {
            "submission": str(submission),
            "accepted": checked.accepted,
            "problems": checked.problems,
            "not_checked": checked.not_made,
            "notes": checked.notes,
        }
        print(json.dumps(document, indent=2))
    else:
        _say(submission, checked)
    if not checked.accepted:
        raise typer.Exit(1)


@leaderboard_app.command()
def add(submission: Folder, board: Board = BOARD, data_dir: shared_options.DataDirOrCache = None) -> None:
    """Check a submission and copy it into the board's folder."""
    from fairbench.cli.rules import rules
    from fairbench.files import user_path
    from fairbench.leaderboard.board import add_submission, taken
    from fairbench.leaderboard.check import check_submission

    place = user_path(board)
    notes: list[str] = []

    def check_copy(folder: Path) -> "Checked":
        checked = check_submission(folder, rules(data_dir, taken(place)))
        notes[:] = checked.notes
        return checked

    is_new = not place.exists()
    added = add_submission(user_path(submission), place, check_copy)
    if is_new:
        notes.append(f"there was no board at {board}, and one was made; --board names another")
    for note in notes:
        print(f"note: {note}")
    print(
        f"{added} is on the board: fairbench leaderboard build"
        + ("" if board == BOARD else f" --board {shlex.quote(str(board))}")
    )


@leaderboard_app.command()
def build(board: Board = BOARD, site: Site = None) -> None:
    """Write the tables, figures and pages of the board from its outcome tables."""
    from fairbench.files import user_path
    from fairbench.reports.board import build as write

    for path in write(user_path(board), None if site is None else user_path(site)):
        print(path)


@leaderboard_app.command()
def serve(
    board: Board = BOARD,
    site: Site = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any that is free.")] = 8000,
) -> None:
    """Show the pages of the board in a browser on this machine; they are built first where there are none."""
    from fairbench.files import user_path
    from fairbench.reports.board import build as write
    from fairbench.reports.site import INDEX, SITE
    from fairbench.reports.site.serving import server

    folder = user_path(board) / SITE if site is None else user_path(site)
    with server(folder, port) as serving:
        if not (folder / INDEX).is_file():
            print(f"no pages in {folder} yet; building them", flush=True)
            write(user_path(board), folder)
        print(f"http://localhost:{serving.server_port}/ shows {folder}; Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serving.serve_forever()


@leaderboard_app.command()
def show(
    board: Board = BOARD,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Only entries of this name, or of a pattern: 'bat_*'; ranks are those among all.")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="avg_std, worst_std, avg_bndy, worst_bndy, avg_rob, worst_rob, cau or cru_s.")
    ] = "worst_rob",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: shared_options.AsJson = False,
) -> None:
    """Print the board."""
    from fairbench.errors import OutcomesError
    from fairbench.files import user_path
    from fairbench.leaderboard.entries import read_entries
    from fairbench.leaderboard.ranking import boards, with_names
    from fairbench.registry import suggest
    from fairbench.reports import board as report

    if board != BOARD and not user_path(board).is_dir():
        raise OutcomesError(f"no board at {board}; without --board the results that came with the package are shown.")
    every = boards(read_entries(user_path(board)), sort)
    found = [b for b in every if dataset in (None, b.dataset)]
    if not found:
        near = "" if dataset is None else suggest(dataset, [b.dataset for b in every])
        raise OutcomesError(f"no entry{'' if dataset is None else f' for {dataset}'} on the board {board}.{near}")
    if model is not None:
        names = [row.entry.name for b in found for row in (*b.ranked, *b.sample)]
        found = [b for b in (with_names(b, model) for b in found) if b.ranked or b.sample]
        if not found:
            raise OutcomesError(f"--model {model}: no such entry.{suggest(model, names, 'fairbench leaderboard show')}")
    if as_json:
        print(json.dumps([report.to_dict(b) for b in found], indent=2, allow_nan=False))
    elif markdown:
        print("\n".join(map(report.as_markdown, found)), end="")
    else:
        print("\n\n".join(map(report.as_text, found)))


def _checked(submission: Path, board: Path, data_dir: str | None) -> "Checked":
    from fairbench.cli.rules import rules
    from fairbench.files import user_path
    from fairbench.leaderboard.board import place_on, taken
    from fairbench.leaderboard.check import check_submission

    folder, place = user_path(submission), user_path(board)
    own = place_on(place, folder)
    checked = check_submission(folder, rules(data_dir, taken(place, besides=own), own))
    if not place.is_dir():
        checked.not_made.append(f"name: no board at {board} to look for it in")
    return checked


def _say(submission: Path, checked: "Checked") -> None:
    for problem in checked.problems:
        print(f"problem: {problem}")
    for check in checked.not_made:
        print(f"not checked: {check}")
    for note in checked.notes:
        print(f"note: {note}")
    if checked.problems:
        print(f"{submission} is refused: {len(checked.problems)} problem(s)")
    else:
        print(f"{submission}: no problem found" + (" in what was checked" if checked.not_made else ""))
