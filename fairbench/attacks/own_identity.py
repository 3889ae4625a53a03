"""What an attack of one's own depends on, so that a change of it is another run and no old table is served."""

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from fairbench.errors import ProtocolError
from fairbench.own_code import packages_of, source_of, spelt, with_imports
from fairbench.provenance import sha256_file, sha256_json

_RAN: "WeakKeyDictionary[Callable[..., Any], dict[Path, str]]" = WeakKeyDictionary()
"""The hashes of the files of each function, as they were when it was named first: what Python runs."""


def identify_function(target: str, function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a hash of a function's code and settings, and the versions of the packages it imports.

    Counted are the file of the module that ``target`` names, those of the function and of what it wraps, and what they
    import from beside them; of that module all plain data and arrays as they are now; the function's defaults and the
    values it closes over. What it reads from a file while it runs is not seen.

    Raises
    ------
    ProtocolError
        It lies in no file, or a file was edited since the function was named first: Python runs the old code.
    """
    module = sys.modules[target.partition(":")[0]]
    inner = inspect.unwrap(function)
    origins = {source_of(module): module.__name__, source_of(inner): inner.__module__}
    origins |= {source_of(function): getattr(function, "__module__", "")}
    if source_of(module) is None:
        raise ProtocolError(
            f"attack {target}: it lies in no file, so a change of it would go unnoticed: save it in a module, such as "
            "my_attack.py."
        )
    files = set().union(*(with_imports(source, name or "") for source, name in origins.items() if source is not None))
    hashes = {file: sha256_file(file) for file in sorted(files)}
    _check_unchanged(target, function, hashes)
    state = [*_state(vars(module)), *(text for one in {function, inner} for text in _held(one))]
    return sha256_json([list(hashes.values()), sorted(state)]), packages_of(files)


def _check_unchanged(target: str, function: Callable[..., Any], hashes: dict[Path, str]) -> None:
    ran = _RAN.setdefault(function, hashes)
    for file in ran.keys() & hashes.keys():
        if ran[file] != hashes[file]:
            raise ProtocolError(
                f"attack {target}: {file.name} was edited, and this Python still runs what it was: start it again, or "
                "reload the module."
            )


def _state(values: dict[str, Any]) -> Iterator[str]:
    """Yield the plain data among named values, as text."""
    for name, value in values.items():
        if not name.startswith("__") and (text := spelt(value)) is not None:
            yield f"{name}:{text}"


def _held(function: Any) -> Iterator[str]:
    """Yield what a function keeps: defaults, and the values it closes over."""
    yield f"defaults:{spelt(function.__defaults__)}, {spelt(function.__kwdefaults__)}"
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            yield f"closure {name}:{spelt(cell.cell_contents)}"
        except ValueError:  # not filled yet
            continue
