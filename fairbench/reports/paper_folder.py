"""A folder of the papers' tables in every format: written whole by one command, and checked against the results."""

from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from fairbench.errors import OutcomesError
from fairbench.files import cannot_write, make_folder, named_in, replacing_folder
from fairbench.reports.paper_table import PaperTable
from fairbench.reports.table_formats import render

ENDINGS = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "html": ".html"}
"""The formats that are kept, and how their files end."""

_INDEX, _MADE = "README.md", "Made by `fairbench table --write`"


def contents(tables: Mapping[str, PaperTable], views: Mapping[str, str]) -> dict[str, str]:
    """Return what the folder holds, by file name: each table in each format, the views as Markdown, and an index.

    Parameters
    ----------
    tables
        By key.
    views
        By stem, further pages of Markdown; a stem begins with the key of the table that it is a view of.

    Raises
    ------
    OutcomesError
        A kept result is damaged.
    """
    files = {}
    index = ["# The tables of the papers, beside what was measured", ""]
    index += [f"{_MADE} from `published` and `results`; not written by hand.", ""]
    for key, table in tables.items():
        lines = table.lines()
        for format, ending in ENDINGS.items():
            files[key + ending] = render(table, lines, format) + "\n"
        links = ", ".join(f"[{ending[1:]}]({key}{ending})" for ending in list(ENDINGS.values())[1:])
        index.append(f"- [{key}]({key}.md): {table.title} ({links})")
    for stem, text in views.items():
        files[f"{stem}.md"] = text + "\n"
        index.append(f"- [{stem}]({stem}.md)")
    return {**files, _INDEX: "\n".join(index) + "\n"}


def refuse(folder: Path, *, writing: bool) -> None:
    """Refuse a folder before the tables are made, which takes a while.

    Raises
    ------
    OutcomesError
        To write: it is a file, or a folder of something else. To check: there is no such folder.
    """
    if not writing and not folder.is_dir():
        raise OutcomesError(f"no folder {folder} to check; fairbench table --write makes one.")
    if folder.exists() and not folder.is_dir():
        raise OutcomesError(f"{folder} is a file; give a folder.")
    if writing and folder.is_dir() and any(folder.iterdir()) and not named_in(folder, _INDEX, _MADE):
        raise OutcomesError(f"{folder} holds something other than tables; nothing was overwritten. Choose another.")


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files as a folder, all or none; a folder of tables that is there is replaced.

    Raises
    ------
    OutcomesError
        It cannot be written, or :func:`refuse` does.
    """
    refuse(folder, writing=True)
    parent = make_folder(folder.absolute().parent)
    try:
        lock = FileLock(parent / f".{folder.name}.lock")
        with lock, replacing_folder(folder, f".writing-{folder.name}-") as new:
            for name, text in files.items():
                (new / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise cannot_write(folder, error) from error


def check(files: Mapping[str, str], folder: Path) -> list[str]:
    """Return, a line each, what in a folder is not what results and definitions give.

    Raises
    ------
    OutcomesError
        There is no such folder.
    """
    refuse(folder, writing=False)
    problems = []
    for name, text in files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name}: not there")
        elif path.read_bytes() != text.encode():
            problems.append(f"{name}: not what results and definitions give")
    unknown = sorted(path.name for path in folder.iterdir() if path.name not in files)
    return problems + [f"{name}: of no table" for name in unknown]
