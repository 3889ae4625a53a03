"""Which files a class of one's own depends on: its source, and what that imports from beside it, and so on.

Read from the sources, not from what happens to be loaded: the same files whenever one looks.
"""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_INSTALLED = ("site-packages", "dist-packages")


def with_imports(source: Path) -> set[Path]:
    """Return a source file and all files of the same folder or package that it imports, directly or not.

    An installed file stands alone: packages have versions. Modules that are imported by a computed name are not seen.
    """
    home = source.parent
    while (home / "__init__.py").is_file() and home != home.parent:
        home = home.parent
    found, to_read = {source}, [] if _is_installed(source) else [source]
    while to_read:
        for file in _imports(to_read.pop(), home):
            if file not in found:
                found.add(file)
                to_read.append(file)
    return found


def _is_installed(source: Path) -> bool:
    libraries = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib"))
    ours = source.is_relative_to(_PACKAGE)
    return ours or any(part in _INSTALLED for part in source.parts) or any(map(source.is_relative_to, libraries))


def _imports(source: Path, home: Path) -> Iterator[Path]:
    """Yield the files below ``home`` that a file's import statements mean."""
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):  # it was loaded when it could be read
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(home, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
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
