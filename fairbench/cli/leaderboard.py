"""``fairbench leaderboard``: check, verify and add submissions; build and show the board."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairbench.cli.verify import verify

if TYPE_CHECKING:
    from fairbench.leaderboard.check import Checked

leaderboard_app = typer.Typer(
    help="Check, verify and add submissions; build and show the board.", rich_markup_mode=None, no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(help="Folder of a submission, as `fairbench submit` packs it.")]
Board = Annotated[Path, typer.Option(help="Folder of the board.")]
DataDir = Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA, then a cache.")]
BOARD = Path("leaderboard")

leaderboard_app.command()(verify)


@leaderboard_app.command()
def check(
    submission: Folder,
    board: Board = BOARD,
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Check a submission and list every problem; exit code 1 if there is one."""
    checked = _checked(submission, board, data_dir)
    if as_json:
        document = {
            "submission": str(submission),
            "accepted": checked.accepted,
            "problems": checked.problems,
            "not_checked": checked.not_made,
        }
        print(json.dumps(document, indent=2))
    else:
        _say(submission, checked)
    if not checked.accepted:
        raise typer.Exit(1)


def _checked(submission: Path, board: Path, data_dir: str | None) -> "Checked":
    from fairbench.cli.rules import rules
    from fairbench.files import user_path
    from fairbench.leaderboard.board import taken
    from fairbench.leaderboard.check import check_submission

    folder = user_path(submission)
    return check_submission(folder, rules(data_dir, taken(user_path(board), besides=folder)))


def _say(submission: Path, checked: "Checked") -> None:
    for problem in checked.problems:
        print(f"problem: {problem}")
    for check in checked.not_made:
        print(f"not checked: {check}")
    if checked.problems:
        print(f"{submission} is refused: {len(checked.problems)} problem(s)")
    else:
        print(f"{submission}: no problem found" + (" in what was checked" if checked.not_made else ""))
