"""Files: whole or not at all, and where each kind lives."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from fairbench.errors import OutcomesError

_PACKAGE = Path(__file__).parent


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path``; on success it replaces ``path`` in one step, on failure it goes.

    The bytes are on the disk before the name is, so a crash at any moment leaves the old file or the new one, whole.

    Raises
    ------
    OutcomesError
        The folder cannot be written, or the disk is full.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=f".tmp{path.suffix}")
    except OSError as error:
        raise cannot_write(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes it private; a result is an ordinary file
        temporary.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def temporary_names(name: str) -> str:
    """Return a pattern of the temporary names that :func:`replacing` gives for a file of this name."""
    return f".{name}.*.tmp{Path(name).suffix}"


def write_json(value: Any, path: Path) -> None:
    """Write plain data as JSON, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def make_folder(path: Path) -> Path:
    """Create ``path`` and its parents, and make sure files can be written in it.

    Raises
    ------
    OutcomesError
        It is a file, or cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error
    return path


def remove_empty_folders(path: Path) -> None:
    """Remove a folder, and what folders are in it, as far as there is no file in them."""
    for folder in [*sorted(path.rglob("*"), reverse=True), path]:
        with contextlib.suppress(OSError):
            folder.rmdir()


def replace_folder(new: Path, target: Path) -> None:
    """Put a finished folder in the place of another, in one step where the system can; the old one is removed.

    Elsewhere there is a moment without any, and a crash in it leaves the old folder beside as ``.old-*``.

    Raises
    ------
    OSError
        It cannot be done; the old folder is where it was.
    """
    for path in sorted(new.rglob("*")):
        if path.is_file():
            with path.open("rb+") as stream:
                os.fsync(stream.fileno())
    if target.is_dir() and _exchange(new, target):
        shutil.rmtree(new, ignore_errors=True)
        return
    old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".old-{target.name}-"))
    if target.exists():
        target.rename(old / target.name)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replacing_folder(target: Path, prefix: str) -> Iterator[Path]:
    """Give an empty folder that takes the place of ``target`` once it is filled.

    It lies beside ``target`` under a name that begins with ``prefix``. What an earlier one left under such a name is
    removed, so call it under a lock of those who use the prefix.

    Raises
    ------
    OutcomesError
        It cannot be written.
    """
    target = Path(os.path.abspath(target))  # "." has no name
    try:
        remove_leftovers(target.parent, prefix)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix, ignore_cleanup_errors=True) as temporary:
            new = Path(temporary) / target.name
            new.mkdir()
            yield new
            replace_folder(new, target)
    except OSError as error:
        raise cannot_write(target, error) from error


def named_in(folder: Path, index: str, mark: str) -> bool:
    """Say whether a folder has an index that bears the mark, and no file but those that the index names as links.

    A figure goes with the page of its name. What holds more is not for a program to replace.
    """
    try:
        text = (folder / index).read_text(encoding="utf-8")
        names = [path.name for path in folder.iterdir() if path.name != index]
    except (OSError, ValueError):
        return False
    pages = [f"{name.removesuffix('.png')}.md" if name.endswith(".png") else name for name in names]
    return mark in text and all(f"({page})" in text for page in pages)


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what processes that were killed left in a folder; call it where no other process can be at work."""
    for path in folder.glob(f"{prefix}*"):
        shutil.rmtree(path, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two folders in one step: renameat2 with RENAME_EXCHANGE (Linux), renamex_np with RENAME_SWAP (macOS)."""
    import ctypes

    if os.name != "posix":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(a), os.fsencode(b)
    if hasattr(library, "renameat2"):
        return bool(library.renameat2(-100, names[0], -100, names[1], 2) == 0)  # -100: the current folder
    return bool(hasattr(library, "renamex_np") and library.renamex_np(*names, 2) == 0)


def user_path(text: str | Path) -> Path:
    """Return a path with ``~`` expanded; where there is no such user it stays as it is."""
    return Path(os.path.expanduser(text))


def data_folder(name: str) -> Path:
    """Return a folder of data shipped with the package (``model_zoo``), installed or in a source tree."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def cache_folder(kind: str) -> Path:
    """Return the user's cache folder for ``kind`` ("runs", "data"); ``$FAIRBENCH_CACHE`` moves it. Not created."""
    root = os.environ.get("FAIRBENCH_CACHE")
    return user_path(root or platformdirs.user_cache_dir("fairbench")) / kind


def cannot_write(path: Path, error: OSError) -> OutcomesError:
    """Return the error of a place that could not be written; the system's own names no place where a disk is full."""
    return OutcomesError(f"cannot write {path}: {error.strerror or error}. Choose another folder or free some space.")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
