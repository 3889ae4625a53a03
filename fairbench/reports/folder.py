"""The folder a report is kept in (``--out``): checked before anything is computed, never another run's."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from fairbench.errors import OutcomesError
from fairbench.files import cache_folder, make_folder, write_json
from fairbench.metrics import Summary
from fairbench.outcomes import Outcomes
from fairbench.outcomes.table import MANIFEST, TABLE, read_manifest
from fairbench.provenance import sha256_bytes
from fairbench.reports.figures import class_bars

SUMMARY, FIGURE = "summary.json", "classes.png"
FILES = (TABLE, MANIFEST, SUMMARY, FIGURE)


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Make the folder and hold it for a while; one that was made for nothing, because what follows failed, goes again.

    Raises
    ------
    OutcomesError
        It cannot be written, or another process of this machine writes it.
    """
    if folder is None:
        yield
        return
    new = [p for p in (folder, *folder.parents) if not p.exists()]
    make_folder(folder)
    try:
        with _held(folder):
            yield
    except BaseException:
        for made in new:
            if made.is_dir() and not any(made.iterdir()):
                made.rmdir()
        raise


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Keep other processes of this machine out, where the cache can be written and its file system has locks.

    The lock lies there, so that the folder has nothing but the report.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _lock(folder: Path) -> BaseFileLock | None:
    name = f"{platform.node()}\0{folder.resolve()}"  # another machine's folder of this name may be another
    try:
        lock = FileLock(make_folder(cache_folder("locks")) / f"{sha256_bytes(name.encode())}.lock")
        lock.acquire(timeout=0)
    except Timeout as held:
        message = f"{folder} is being written by another process (lock {held.lock_file}); choose another --out."
        raise OutcomesError(message) from None
    except (OSError, OutcomesError):
        return None
    return lock


def refuse_another_run(folder: Path, run: str) -> None:
    """Raise unless the folder is free for this run.

    Raises
    ------
    OutcomesError
        It holds another run, or files of these names that no run wrote.
    """
    present = [name for name in FILES if (folder / name).exists()]
    if not present:
        return
    if MANIFEST not in present:
        raise OutcomesError(
            f"{folder} already has {', '.join(present)}; nothing was overwritten. Choose another --out."
        )
    held = read_manifest(folder).get("run")
    if held != run:
        raise OutcomesError(f"{folder} holds another run ({held}); nothing was overwritten. Choose another --out.")


def keep(outcomes: Outcomes, summary: Summary, folder: Path) -> None:
    """Write the four files, each whole or not at all.

    Raises
    ------
    OutcomesError
        The folder holds another run, or cannot be written.
    """
    refuse_another_run(folder, outcomes.manifest["run"])
    outcomes.write(folder)
    write_json(summary.to_dict(), folder / SUMMARY)
    class_bars(summary, folder / FIGURE)
