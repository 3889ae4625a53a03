"""The board as Markdown and CSV, and all that a build writes. The same entries give the same bytes."""

import csv
import io
import math
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock

from fairbench.errors import OutcomesError
from fairbench.files import cannot_write, make_folder, named_in, replacing_folder
from fairbench.leaderboard.board import SUBMISSIONS
from fairbench.leaderboard.entries import kept_folder, read_entries
from fairbench.leaderboard.ranking import COLUMNS, SORT, Board, Row, boards
from fairbench.leaderboard.searches import read_searches
from fairbench.provenance import sha256_plain
from fairbench.reports import site
from fairbench.reports.board_figure import draw_front
from fairbench.reports.board_text import (
    BF16,
    MISLED,
    NAMES,
    attack_text,
    extra_data_text,
    figure_text,
    file_stem,
    in_bf16,
    misled_text,
    rank_text,
    title,
    worst_class,
)
from fairbench.reports.text_tables import stacked, tabulated

TABLES, INDEX = "tables", "README.md"
_MADE = "Made by `fairbench leaderboard build`"
_IN_LINK = {ord(character): f"%{ord(character):02X}" for character in "()[]"}
"""What would end a link's address in Markdown."""
_NOTE_BF16 = f" `{BF16}`: gradients in bf16; every verdict is the float32 model's."
_NOTE = (
    "Errors in percent, CRU_s in percentage points, CAU a fraction, with 95 % intervals; lower is better. The rank is "
    "the range of places that the intervals of {sort} allow. `*`: no AutoAttack was run, and PGD-20 gives a lower "
    "bound of the robust error, by which no entry is told to be ahead of one of AutoAttack. `front`: no other entry's "
    "values, intervals aside, are as good in average and worst-class robust error and better in one; those of PGD-20 "
    "push off none of AutoAttack."
)


def build(board: Path, pages: Path | None = None) -> list[Path]:
    """Write the tables, figures and pages of every board and return the tables' files and the first page.

    Tables and pages are replaced once both are written; a build that is killed leaves either whole.

    Parameters
    ----------
    pages
        Folder of the pages; default: ``site`` in the board's folder.

    Raises
    ------
    OutcomesError
        An entry is damaged, a folder cannot be written, or that for the pages holds something else; what was there
        stays.
    """
    make_folder(board)
    pages = board / site.SITE if pages is None else pages
    _refuse_foreign(board, pages)
    make_folder(pages.parent)
    with FileLock(board / ".build.lock"):
        found = boards(read_entries(board), SORT)
        with _replacing(board / TABLES, board) as new_tables, _replacing(pages, board) as new_pages:
            try:
                _write_tables(found, new_tables)
            except OSError as error:  # the pages' own would be named
                raise cannot_write(board / TABLES, error) from error
            tables = {file_stem(one): as_csv(one) for one in found}
            site.write_pages(found, read_searches(kept_folder(board)), tables, new_pages)
    return [*sorted((board / TABLES).iterdir()), pages / site.INDEX]


def _refuse_foreign(board: Path, pages: Path) -> None:
    """Raise unless what a build replaces is what builds have written."""
    tables = board / TABLES
    if pages.resolve() in [place.resolve() for place in (board, tables, board / SUBMISSIONS, kept_folder(board))]:
        raise OutcomesError(f"{pages} is a folder of the board itself; choose another --site.")
    if tables.exists() and not (tables.is_dir() and (not any(tables.iterdir()) or named_in(tables, INDEX, _MADE))):
        raise OutcomesError(f"{tables} holds something other than tables of a board, and would be replaced; move it.")
    site.refuse_foreign(pages)


def _replacing(target: Path, board: Path) -> AbstractContextManager[Path]:
    """Replace a folder under a name of this board's builds alone, which its lock keeps apart."""
    return replacing_folder(target, f".building-{target.name}-{sha256_plain(os.fsencode(board.resolve()))[:8]}-")


def _write_tables(found: Sequence[Board], folder: Path) -> None:
    for one in found:
        stem = file_stem(one)
        (folder / f"{stem}.md").write_text(as_markdown(one, figure=f"{stem}.png"), encoding="utf-8")
        (folder / f"{stem}.csv").write_text(as_csv(one), encoding="utf-8")
        if one.ranked:
            draw_front(one, folder / f"{stem}.png")
    (folder / INDEX).write_text(_index(found), encoding="utf-8")


def as_markdown(board: Board, figure: str | None = None) -> str:
    """Return the board as a page of Markdown."""
    note = _NOTE.format(sort=NAMES[board.sort]) + (_NOTE_BF16 if in_bf16(board) else "")
    note += f" `{MISLED}`: {misled}." if (misled := misled_text(board)) else ""
    parts = [f"# {title(board)}", note]
    header = ["rank", "model", "attack", *NAMES.values(), "extra data", "front"]
    if board.ranked:
        rows = [[*_cells(row), "yes" if row.on_front else ""] for row in board.ranked]
        parts.append(tabulated(rows, header, "github", "left"))
        if figure is not None:
            parts.append(f"![average against worst-class robust error]({figure})")
    if board.sample:
        parts.append("Not ranked: measured on a sample of 1,000 images, the first ones of each class.")
        parts.append(tabulated([_cells(row)[1:] for row in board.sample], header[1:-1], "github", "left"))
    return "\n\n".join(parts) + "\n"


def as_csv(board: Board) -> str:
    """Return the board as CSV: plain numbers, and the ends of intervals as columns of their own."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    ends = [f"{c}{end}" for c in COLUMNS for end in ("", "_low", "_high")]
    worst = ["worst_std_class", "worst_bndy_class", "worst_rob_class"]
    first = ["rank_first", "rank_last", "name", "title", "version", "source", "attack", "precision"]
    first += ["epsilon", "n", "sample"]
    writer.writerow([*first, *ends, *worst, "extra_data", "pareto_front", "paper", "stronger_attack", "stronger_more"])
    for row in (*board.ranked, *board.sample):
        entry, ranks, more = row.entry, row.ranks or ("", ""), row.entry.found_more
        numbers = [v for c in COLUMNS for v in (row.value(c), *row.interval(c))]
        writer.writerow(
            [
                *(
                    *ranks,
                    entry.name,
                    _cell(entry.title),
                    entry.version,
                    entry.source,
                    entry.attack.attack,
                    entry.precision,
                ),
                *(f"{entry.epsilon:.6g}", entry.attack.n, int(entry.sample)),
                *(f"{v:.4f}" if math.isfinite(v) else "" for v in numbers),
                *(getattr(entry.attack, c) for c in worst),
                *(_cell(extra_data_text(entry)), int(row.on_front)),
                entry.paper or "",
                *(("", "") if more is None else (more.attack, f"{more.points:.4f}")),
            ]
        )
    return stream.getvalue()


def as_text(board: Board) -> str:
    """Return the board for a terminal: without intervals, which the ranks stand for."""
    header = ["rank", "model", "attack", *NAMES.values(), "worst class", "extra data", "front"]
    rows = []
    for row in (*board.ranked, *board.sample):
        entry = row.entry
        figures = [_figure(row, c).partition(" ")[0] for c in COLUMNS]
        name = entry.name if entry.source != "submission" else f"{entry.name}.{entry.version}"
        rank = rank_text(row) or "sample"
        rest = [entry.attack.worst_rob_class or "", extra_data_text(entry), "yes" if row.on_front else ""]
        rows.append([rank, name, attack_text(entry), *figures, *rest])
    notes = "*: PGD-20 alone; the true error may be higher, so it is never ahead of a model measured by AutoAttack; "
    notes += "sample: 1,000 images, not ranked; intervals: --markdown or --json"
    notes += f"; {MISLED}: {misled}" if (misled := misled_text(board)) else ""
    notes += f"; {BF16}: gradients in bf16, verdicts in float32" if in_bf16(board) else ""
    table = tabulated(rows, stacked(header, rows, "simple"), "simple", "left")
    return f"{title(board)}, by {NAMES[board.sort]}\n{table}\n{notes}"


def to_dict(board: Board) -> dict[str, object]:
    """Return plain data; what was not measured is None."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    def plain(row: Row) -> dict[str, object]:
        entry = row.entry
        names = ("name", "title", "version", "source", "extra_data", "paper")
        return {
            **{name: getattr(entry, name) for name in names},
            "attack": entry.attack.attack,
            "precision": entry.precision,
            "n": entry.attack.n,
            "ranks": row.ranks,
            "pareto_front": row.on_front,
            "misled": entry.misled,
            "stronger_attack": None if entry.found_more is None else asdict(entry.found_more),
            "worst_rob_class": entry.attack.worst_rob_class,
            **{c: {"value": number(row.value(c)), "interval": [*map(number, row.interval(c))]} for c in COLUMNS},
        }

    return {
        "dataset": board.dataset,
        "epsilon": board.epsilon,
        "sort": board.sort,
        "ranked": [plain(row) for row in board.ranked],
        "sample": [plain(row) for row in board.sample],
    }


def _index(found: Sequence[Board]) -> str:
    lines = ["# Leaderboard", "", f"{_MADE} from outcome tables; not written by hand.", ""]
    for board in found:
        count = f"{len(board.ranked)} ranked" + (f", {len(board.sample)} on the sample" if board.sample else "")
        lines.append(f"- [{title(board)}]({file_stem(board)}.md): {count} ([CSV]({file_stem(board)}.csv))")
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> list[str]:
    entry = row.entry
    name = _plain(entry.title) if entry.source == "submission" else f"`{entry.name}`"
    if entry.source == "submission":
        name = f"[{name}]({entry.paper.translate(_IN_LINK)})" if entry.paper else name
        name += f" ({entry.name}.{entry.version})"
    figures = [_figure(row, c) for c in COLUMNS]
    return [rank_text(row), name, attack_text(entry), *figures, _plain(extra_data_text(entry))]


def _figure(row: Row, column: str) -> str:
    text, worst = figure_text(row, column), worst_class(row, column)
    return text if worst is None else f"{text} {_plain(str(worst))}"


def _plain(text: str) -> str:
    """Return other people's text so that Markdown and HTML take it for text; of bars the table takes care."""
    return re.sub(r"([\\`*_\[\]<>#&!$~])", r"\\\1", text)


def _cell(text: str) -> str:
    """Return other people's text so that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
