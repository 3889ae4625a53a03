"""What an attack of one's own depends on, so that a change of it is another run and no old table is served."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from fairbench.errors import ProtocolError
from fairbench.loaded_state import function_state, module_state
from fairbench.own_code import is_installed, packages_of, source_of, with_imports
from fairbench.provenance import sha256_file, sha256_json

_LOADED: "WeakKeyDictionary[Callable[..., Any], list[ModuleType]]" = WeakKeyDictionary()
"""The modules of each function that were loaded when it was named first: what it loads as it runs is not news."""


def identify_function(target: str, function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return a hash of a function's code and settings, and the versions of the packages it imports.

    Counted are the files of the module that ``target`` names, of the function and of what it wraps, with what they
    import from beside them; and of these modules what Python holds now, which need not be what the files say: code,
    plain data, arrays and networks. What it reads from a file while it runs is not seen.

    Raises
    ------
    ProtocolError
        It lies in no file.
    """
    module = sys.modules[target.partition(":")[0]]
    inner = inspect.unwrap(function)
    origins = {source_of(code): name for code, name in ((inner, inner.__module__), (module, module.__name__))}
    if source_of(module) is None:
        raise ProtocolError(
            f"attack {target}: it lies in no file, so a change of it would go unnoticed: save it in a module, such as "
            "my_attack.py."
        )
    files = set().union(*(with_imports(source, name or "") for source, name in origins.items() if source is not None))
    loaded = _LOADED.setdefault(function, _loaded_from(files))
    state = [[held.__name__, module_state(held)] for held in loaded]
    hashes = [sha256_file(file) for file in sorted(files)]
    return sha256_json([hashes, state, list(function_state(function))]), packages_of(files)


def _loaded_from(files: set[Path]) -> list[ModuleType]:
    """Return the modules of one's own that are loaded and whose files these are, by name."""
    own = {file.resolve() for file in files if not is_installed(file)}
    sources = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [sys.modules[name] for name, source in sorted(sources.items()) if source and Path(source).resolve() in own]
