"""The folder of a submission: which files it may hold, and how big they may be. Nothing here trusts what it reads."""

import stat
from pathlib import Path

from fairbench.download import LARGEST
from fairbench.errors import OutcomesError
from fairbench.files import replacing
from fairbench.leaderboard.card import WEIGHTS, SubmissionCard, read_submission_card
from fairbench.outcomes import Outcomes
from fairbench.outcomes.table import MANIFEST, TABLE
from fairbench.plain_yaml import dump_yaml

CARD, SUMMARY = "card.yaml", "summary.json"
_KIB, _MIB = 2**10, 2**20
LIMITS = {CARD: 64 * _KIB, MANIFEST: _MIB, SUMMARY: 4 * _MIB, TABLE: 64 * _MIB, WEIGHTS: LARGEST}
"""The files of a submission and the most bytes of each. A summary may be among them; it is only compared."""
NEEDED = (CARD, MANIFEST, TABLE)


def submission_files(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files that may be opened, by name, and a line for each thing in the folder that may not be there.

    Raises
    ------
    OutcomesError
        It is no folder, or cannot be listed.
    """
    try:
        if folder.is_symlink():
            raise OutcomesError(f"{folder} is a symbolic link; name the folder itself.")
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise OutcomesError(f"{folder} is no folder that can be read ({error.strerror or error}).") from error
    found, problems = {}, []
    for path in paths:
        try:
            status = path.lstat()
        except OSError as error:
            problems.append(f"{_shown(path)}: cannot be read ({error.strerror or error})")
            continue
        wrong = _why_not(path, status.st_mode, status.st_size)
        if wrong:
            problems.append(f"{_shown(path)}: {wrong}")
        else:
            found[path.name] = path
    problems += [f"{name}: missing" for name in NEEDED if not (folder / name).is_symlink() and not _there(folder, name)]
    return found, problems


def _there(folder: Path, name: str) -> bool:
    try:
        (folder / name).lstat()
    except OSError:
        return False
    return True


def _why_not(path: Path, mode: int, size: int) -> str | None:
    if stat.S_ISLNK(mode):
        return "a symbolic link, which may leave the folder; put the file itself here"
    if path.name not in LIMITS:
        return f"not a file of a submission; those are {', '.join(LIMITS)}"
    if not stat.S_ISREG(mode):
        return "not a plain file"
    if size > LIMITS[path.name]:
        return f"{size:,} bytes, over the limit of {LIMITS[path.name]:,}"
    return None


def _shown(path: Path) -> str:
    """Return a file's name as one printable line, whoever named it."""
    return path.name.encode("unicode_escape").decode("ascii")[:100]


def refuse_another_entry(folder: Path, name: str) -> None:
    """Raise unless the folder is free for the entry of this name.

    Raises
    ------
    OutcomesError
        It holds another entry's submission, or a card that cannot be read.
    """
    if not (folder / CARD).exists():
        return
    held, _ = read_submission_card(folder / CARD)
    if held is None or held.name != name:
        what = "a card that is no submission's" if held is None else f"the submission of {held.name}"
        raise OutcomesError(f"{folder} holds {what}; nothing was overwritten. Choose another --out.")


def pack(folder: Path, card: SubmissionCard, outcomes: Outcomes, weights: bytes | None) -> None:
    """Write a submission's files, each whole or not at all.

    Raises
    ------
    OutcomesError
        The folder holds another entry's, or cannot be written.
    """
    refuse_another_entry(folder, card.name)
    if weights is not None:
        with replacing(folder / WEIGHTS) as temporary:
            temporary.write_bytes(weights)
    else:
        (folder / WEIGHTS).unlink(missing_ok=True)
    with replacing(folder / CARD) as temporary:
        temporary.write_text(dump_yaml(card.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    outcomes.write(folder)
