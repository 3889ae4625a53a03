"""Code of one's own: how it is imported by name, and which files it depends on.

The files are its source, and what that imports from beside it, and so on; read from the sources, not from what happens
to be loaded: the same files whenever one looks.
"""

import ast
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Literal

from fairbench.errors import ModelError
from fairbench.provenance import sha256_file
from fairbench.registry import own_code_spelling, suggest

_PACKAGE = Path(__file__).parent
_INSTALLED = ("site-packages", "dist-packages")


def own_attribute(
    target: str, option: str, wanted: Literal["function", "class", "function or class"] = "function or class"
) -> Callable[..., Any]:
    """Import "package.module:name" of the user's own code; the folder the command is run in counts as installed.

    Parameters
    ----------
    option
        Where the user named it.
    wanted
        What it should be; a class may stand for a function: it can be called.

    Raises
    ------
    ModelError
        It is a path, there is no such module, its import raises, or it has no such function or class; ``option`` is
        named.
    """
    home, _, name = target.partition(":")
    if not (all(map(str.isidentifier, home.split("."))) or "/" in home or "-" in home) or not name.isidentifier():
        raise ModelError(f"{option} {target}: write package.module:name, such as mypkg.code:mine.")
    if ("/" in home or home.endswith(".py")) and (spelled := own_code_spelling(target, "NAME")):
        raise ModelError(f"{option} {target}: a module is named with dots: write {spelled}.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(home)
    except (Exception, SystemExit) as error:  # a script that calls exit() when imported
        if isinstance(error, ModuleNotFoundError) and f"{home}.".startswith(f"{error.name}."):
            raise ModelError(
                f"{option} {target}: there is no module '{error.name}' in the current folder {Path.cwd()} or among the "
                "installed packages; run from the folder that holds it, or install it."
            ) from error
        raise ModelError(f"{option} {target}: importing '{home}' raised {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found) or (wanted == "class" and not inspect.isclass(found)):
        of_module = {k: v for k, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__}
        own = [k for k, v in of_module.items() if ("class" if inspect.isclass(v) else "function") in wanted]
        raise ModelError(f"{option} {target}: '{home}' has no {wanted} '{name}'.{suggest(name, own)}")
    return found


def source_of(code: Any) -> Path | None:
    """Return the file that a class or function is written in; None for one made at run time or typed in."""
    try:
        source = inspect.getsourcefile(code)
    except (TypeError, OSError):
        return None
    return Path(source) if source is not None and Path(source).is_file() else None


def sha256_source(code: Any) -> str | None:
    """Hash the file that a class or function is written in; None where it has none."""
    source = source_of(code)
    return None if source is None else sha256_file(source)


def with_imports(source: Path, module: str = "") -> set[Path]:
    """Return a source file and all files of the same folder or package that it imports, directly or not.

    An installed file stands alone: packages have versions. Modules that are imported by a computed name are not seen.

    Parameters
    ----------
    module
        Dotted name that the file was imported by, which says where its packages begin; by default the folder above all
        that have an ``__init__.py``.
    """
    home = _root(source, module)
    found, to_read = {source}, [] if is_installed(source) else [source]
    while to_read:
        for file in _imports(to_read.pop(), home):
            if file not in found:
                found.add(file)
                to_read.append(file)
    return found


def packages_of(files: Iterable[Path]) -> dict[str, str]:
    """Return the versions of the installed packages that files of one's own import, by name."""
    distributions = packages_distributions()
    imported = {name for file in files if not is_installed(file) for name in _top_level(file)}
    names = sorted({package for name in imported for package in distributions.get(name, ())})
    return {package: version(package) for package in names}


def _root(source: Path, module: str) -> Path:
    """Return the folder that imports begin in, of a file that was imported by a dotted name."""
    named = source.parent if source.name == "__init__.py" else source.with_suffix("")
    parts = module.split(".")
    if named.parts[-len(parts) :] == tuple(parts):
        return named.parents[len(parts) - 1]
    home = source.parent
    while (home / "__init__.py").is_file() and home != home.parent:
        home = home.parent
    return home


def _top_level(source: Path) -> Iterator[str]:
    """Yield the first part of each absolute name that a file imports."""
    for node in _import_statements(source):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def is_installed(source: Path) -> bool:
    """Whether a file is of Python, of an installed package or of this one: code that has a version."""
    libraries = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib"))
    ours = source.is_relative_to(_PACKAGE)
    return ours or any(part in _INSTALLED for part in source.parts) or any(map(source.is_relative_to, libraries))


def _import_statements(source: Path) -> "Iterator[ast.Import | ast.ImportFrom]":
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):  # it was loaded when it could be read
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _imports(source: Path, home: Path) -> Iterator[Path]:
    """Yield the files below ``home`` that a file's import statements mean."""
    for node in _import_statements(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(home, alias.name.split("."))
            continue
        base = home if node.level == 0 else source.parents[node.level - 1]
        parts = node.module.split(".") if node.module else []
        for alias in node.names:
            yield from _files(base, [*parts, alias.name])


def _files(base: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files of packages and modules on the way to a name; the last part may be no module."""
    if not parts and (base / "__init__.py").is_file():
        yield base / "__init__.py"
    for part in parts:
        if (base / f"{part}.py").is_file():
            yield base / f"{part}.py"
        base = base / part
        if (base / "__init__.py").is_file():
            yield base / "__init__.py"
