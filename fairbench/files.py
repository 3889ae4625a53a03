"""Files: whole or not at all, and where each kind lives."""

import json
import os
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
        raise _cannot_write(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes it private; a result is an ordinary file
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


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
        raise _cannot_write(path, error) from error
    return path


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


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _cannot_write(path: Path, error: OSError) -> OutcomesError:
    return OutcomesError(f"cannot write {path}: {error.strerror or error}. Choose another folder or free some space.")
