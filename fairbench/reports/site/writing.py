"""Writing the pages into a folder."""

import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2

import fairbench
from fairbench.errors import OutcomesError
from fairbench.leaderboard.ranking import Board
from fairbench.outcomes import Outcomes
from fairbench.reports.board_text import NAMES, file_stem, title
from fairbench.reports.site import charts, links, pages, places

SITE, INDEX = "site", "index.html"
_HERE = Path(__file__).parent
_GENERATOR = '<meta name="generator" content="fairbench'
_PAGES, _FOLDERS = (INDEX, "all.html"), ("assets", "boards", "models", "submissions")
_ENDINGS = (".html", ".css", ".js", ".csv", ".parquet", ".json")
"""What a site has at its top, and what ends the files in its folders."""
_MEANINGS = {
    "worst_rob": "largest class error under attack",
    "avg_rob": "error under attack, all examples",
    "worst_std": "largest class error without attack",
    "avg_std": "error without attack, all examples",
    "worst_bndy": "largest class difference of robust and standard error",
    "avg_bndy": "robust minus standard error",
    "cau": "largest difference of two classes' accuracies, a fraction",
    "cru_s": "largest difference of two classes' robust errors, points",
}


def refuse_foreign(folder: Path) -> None:
    """Raise unless a folder may be replaced: it is not there, is empty, or holds what was written here and no more.

    Raises
    ------
    OutcomesError
        It holds something else.
    """
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return
        with (folder / INDEX).open(encoding="utf-8", errors="replace") as stream:
            ours = _GENERATOR in stream.read(1000)
        others = sorted(path.name for path in folder.iterdir() if not _written_here(path))
    except OSError:
        ours, others = False, []
    if not ours or folder.is_symlink():
        raise OutcomesError(f"{folder} is no site that fairbench built, and would be replaced; choose another --site.")
    if others:
        raise OutcomesError(
            f"{folder} holds {others[0]} beside the site, and would be replaced; move it, or choose another --site."
        )


def _written_here(path: Path) -> bool:
    """Say whether something at the top of a site is of the kinds that :func:`write_pages` writes."""
    if path.name in _FOLDERS and path.is_dir():
        return all(inner.is_file() and inner.suffix in _ENDINGS for inner in path.iterdir())
    return path.name in _PAGES and path.is_file()


def write_pages(
    boards: Sequence[Board], searches: Mapping[str, Outcomes], tables: Mapping[str, str], folder: Path
) -> None:
    """Write all pages and what they share into an empty folder.

    Parameters
    ----------
    boards
        Their entries with evidence.
    searches
        Searches for least epsilon by model, of :func:`fairbench.leaderboard.searches.read_searches`.
    tables
        CSV text of each board, by the name of its files.
    """
    environment = _environment()
    found = [pages.BoardPage(board) for board in boards]
    _assets(environment, folder / "assets")
    everything = [place for board in found for place in board.places]
    shared: dict[str, Any] = {"boards": found, "places": everything}
    _write(environment, "index.html", shared, folder, INDEX)
    _write(environment, "all.html", shared, folder, "all.html")
    for board in found:
        _write(environment, "board.html", shared | {"board": board}, folder, f"boards/{board.stem}.html")
        (folder / "boards" / f"{board.stem}.csv").write_text(tables[board.stem], encoding="utf-8", newline="")
    for model in pages.model_pages(found, searches):
        _write(environment, "model.html", shared | {"model": model}, folder, model.page)
        for section in model.sections:
            beside = folder / Path(model.page).parent / section.download
            shutil.copyfile(section.evidence.table, beside)
            beside.with_suffix(".json").write_text(section.manifest, encoding="utf-8")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,  # everything on a page but the templates is other people's text
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"breakable": _breakable, "address": links.safe_address, "path": links.path_address}
    environment.globals |= {
        "version": fairbench.__version__,
        "names": NAMES,
        "meanings": _MEANINGS,
        "order": places.ORDER,
        "filters": places.filters,
        "examples_kind": places.examples_kind,
        "page_name": places.page_name,
        "file_stem": file_stem,
        "board_title": title,
        "zip": zip,
        "heat": {scheme: charts.heat(scheme) for scheme in ("light", "dark")},
    }
    return environment


def _breakable(text: str) -> str:
    """Let a long name break after an underscore or a plus sign."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[_+])", text))


def _write(environment: jinja2.Environment, template: str, said: Mapping[str, Any], folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    text = environment.get_template(template).render(**said, root="../" * name.count("/"), here=name)
    path.write_text(text, encoding="utf-8", newline="")


def _assets(environment: jinja2.Environment, folder: Path) -> None:
    """Write what all pages share: the style, the behaviour of tables, and the component that sorts them."""
    folder.mkdir()
    style = environment.get_template("style.css").render()
    (folder / "style.css").write_text(style, encoding="utf-8", newline="")
    shutil.copyfile(_HERE / "assets" / "tables.js", folder / "tables.js")
    (folder / "datatables.js").write_text(_datatables(), encoding="utf-8", newline="")


def _datatables() -> str:
    """Return DataTables, as itables bundles it, in a script that a page may load from ``file://``.

    A browser loads no module from there, so the module's text is handed over as a string and imported from memory.
    """
    import json

    package = find_spec("itables")
    if package is None or not package.submodule_search_locations:
        raise OutcomesError("the pages need itables: pip install itables.")
    bundle = Path(package.submodule_search_locations[0]) / "html" / "dt_bundle.js"
    try:
        module = bundle.read_text(encoding="utf-8")
    except OSError as error:
        raise OutcomesError(f"{bundle}: {error.strerror or error}; install itables again.") from error
    quoted = json.dumps(module, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f"window.fairbenchDataTables = {quoted};\n"
