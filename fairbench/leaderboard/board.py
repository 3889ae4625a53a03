"""The board's folder: submissions by name and version, never rewritten. Two that add at once lose nothing.

``submissions/NAME/VERSION/`` is a submission as it was accepted. A correction is the next version; the board shows the
latest, and the older ones stay.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from fairbench.errors import OutcomesError
from fairbench.files import make_folder, remove_leftovers
from fairbench.leaderboard.card import SubmissionCard, next_version, read_submission_card
from fairbench.leaderboard.checked import Checked, Latest, require_accepted
from fairbench.leaderboard.submission import CARD, submission_files
from fairbench.outcomes import Outcomes

SUBMISSIONS = "submissions"
_LOCK, _STAGING = ".lock", ".adding-"
_VERSION = re.compile("[1-9][0-9]{0,8}")
_WAIT = 600.0
"""Seconds one `add` waits for another."""


def versions(board: Path) -> dict[str, dict[int, Path]]:
    """Return the folders of all submissions by name and version; names sorted, versions rising."""
    found: dict[str, dict[int, Path]] = {}
    for path in sorted((board / SUBMISSIONS).glob("*/*")):
        links = path.is_symlink() or path.parent.is_symlink()
        if path.is_dir() and not links and _VERSION.fullmatch(path.name) and path.parent.name[0] != ".":
            found.setdefault(path.parent.name, {})[int(path.name)] = path
    return {name: dict(sorted(kept.items())) for name, kept in sorted(found.items())}


def place_on(board: Path, folder: Path) -> tuple[str, int] | None:
    """Return name and version by which a folder lies on the board; None for one that lies elsewhere."""
    version = folder.resolve()
    if version.parent.parent != (board / SUBMISSIONS).resolve() or not _VERSION.fullmatch(version.name):
        return None
    return version.parent.name, int(version.name)


def taken(board: Path, besides: tuple[str, int] | None = None) -> dict[str, Latest]:
    """Return the names on the board and their latest versions; those before the entry ``besides`` if it is given."""
    name, version = besides or ("", 0)
    found = {n: {v: p for v, p in kept.items() if n != name or v < version} for n, kept in versions(board).items()}
    return {n: _latest(kept) for n, kept in found.items() if kept}


def _latest(kept: dict[int, Path]) -> Latest:
    version = max(kept)
    card, _ = read_submission_card(kept[version] / CARD)
    return Latest(version) if card is None else Latest(version, card.dataset, card.protocol)


def add_submission(folder: Path, board: Path, check: Callable[[Path], Checked]) -> Path:
    """Copy a submission into the board's folder and return where it lies; what is checked is the copy.

    Parameters
    ----------
    check
        Checks the copy against the names taken at that moment.

    Raises
    ------
    OutcomesError
        It is refused, its labels could not be compared, or the board's folder cannot be written.
    """
    submission_files(folder)  # before a folder is made for what is none
    if not board.exists():
        _require(check(folder), folder)  # before a board is made for what does not come on it
    place = make_folder(board / SUBMISSIONS)
    try:
        with FileLock(board / _LOCK, timeout=_WAIT):
            return _add(folder, place, check)
    except Timeout as error:
        raise OutcomesError(
            f"{board / _LOCK} has been held for {_WAIT:.0f} s by another process; try again."
        ) from error


def _add(folder: Path, place: Path, check: Callable[[Path], Checked]) -> Path:
    remove_leftovers(place, _STAGING)
    staging = Path(tempfile.mkdtemp(dir=place, prefix=_STAGING))
    try:
        _copy(folder, staging)
        card = _require(check(staging), folder)
        target = make_folder(place / card.name) / str(next_version(card))
        staging.chmod(0o755)
        staging.rename(target)  # in one step; fails if it is there
        _sync(target.parent)
        return target
    except OSError as error:
        raise OutcomesError(f"cannot add {folder} to {place}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _require(checked: Checked, folder: Path) -> SubmissionCard:
    card, _ = require_accepted(checked, folder)
    if not checked.labels_compared:
        raise OutcomesError(
            f"{folder}: its labels were not compared with the dataset's ({card.dataset} is not on this machine); "
            "give --data-dir."
        )
    return card


def _copy(folder: Path, target: Path) -> None:
    """Copy the files a submission may hold; a link in place of one is refused even if it came a moment ago."""
    files, problems = submission_files(folder)
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise OutcomesError(f"{folder} is refused: {problems[0]}{more}. `fairbench leaderboard check` lists all.")
    for name, path in files.items():
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(handle, "rb") as source, (target / name).open("wb") as copy:
            shutil.copyfileobj(source, copy)
            copy.flush()
            os.fsync(copy.fileno())


def _sync(folder: Path) -> None:
    """Make a rename last; not every system lets a folder be synced."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def read_submission(folder: Path) -> tuple[SubmissionCard, Outcomes]:
    """Read an accepted submission.

    Raises
    ------
    OutcomesError
        It is damaged, or lies under another name.
    """
    card, faults = read_submission_card(folder / CARD)
    if card is None:
        raise OutcomesError(f"{folder}: {faults[0]}.")
    if card.name != folder.parent.name:
        raise OutcomesError(f"{folder}: its card is that of {card.name}; `fairbench leaderboard add` puts it in place.")
    return card, Outcomes.read(folder)
