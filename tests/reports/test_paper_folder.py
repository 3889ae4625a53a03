"""The committed folder of tables: what results and definitions give, and what is refused."""

import errno
import os
from pathlib import Path

import pytest

from fairbench.errors import OutcomesError
from fairbench.reports import paper_folder

INDEX = "Made by `fairbench table --write`: [a](a-1.md), [csv](a-1.csv)\n"
FILES = {"README.md": INDEX, "a-1.md": "a\n", "a-1.csv": "λ\n"}


@pytest.mark.usefixtures("measured_once")
def test_the_committed_tables_are_what_results_and_definitions_give(cli):
    ran = cli("table", "--check", Path(__file__).parents[2] / "leaderboard" / "papers")
    assert (ran.code, ran.err) == (0, ""), ran.out + "make them anew: fairbench table --write"


def test_what_differs_is_named(tmp_path):
    folder = tmp_path / "new" / "papers"
    paper_folder.write(FILES, folder)
    assert paper_folder.check(FILES, folder) == []
    (folder / "a-1.md").write_text("b\n")
    (folder / "a-1.csv").unlink()
    (folder / "b.md").touch()
    assert paper_folder.check(FILES, folder) == [
        "a-1.md: not what results and definitions give",
        "a-1.csv: not there",
        "b.md: of no table",
    ]
    (folder / "b.md").unlink()
    paper_folder.write(FILES, folder)
    assert paper_folder.check(FILES, folder) == []
    assert sorted(path.name for path in folder.parent.iterdir()) == [".papers.lock", "papers"]


@pytest.mark.parametrize("name", ["mine.txt", "mine.md", "README.md"])
def test_a_folder_of_something_else_is_not_overwritten(name, tmp_path):
    (tmp_path / name).touch()
    with pytest.raises(OutcomesError, match="nothing was overwritten"):
        paper_folder.write(FILES, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_page_of_ones_own_among_the_tables_is_not_lost(tmp_path):
    folder = tmp_path / "papers"
    paper_folder.write(FILES, folder)
    (folder / "mine.md").touch()
    with pytest.raises(OutcomesError, match="nothing was overwritten"):
        paper_folder.write(FILES, folder)
    assert (folder / "mine.md").exists()
    (folder / "mine.md").unlink()
    paper_folder.write({name: text for name, text in FILES.items() if name != "a-1.csv"}, folder)
    assert not (folder / "a-1.csv").exists(), "a table that is no longer defined"


def test_a_full_disk_is_one_line_that_names_the_folder_and_leaves_the_old(tmp_path, monkeypatch):
    folder = tmp_path / "papers"
    paper_folder.write(FILES, folder)

    def full(path, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutcomesError, match=f"cannot write {folder}: No space left on device"):
        paper_folder.write({**FILES, "README.md": "new"}, folder)
    assert paper_folder.check(FILES, folder) == []


def test_a_folder_that_is_not_there_or_a_file_is_one_line(tmp_path):
    with pytest.raises(OutcomesError, match="fairbench table --write"):
        paper_folder.check(FILES, tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(OutcomesError, match="is a file"):
        paper_folder.write(FILES, tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--write", "--check"], "give one of them"),
        (["--check", "--format", "csv"], "leave --dataset and --format out"),
        (["sun2023-1", "--write"], "take a folder: leave sun2023-1 out"),
        (["--ranks"], "--ranks needs a table"),
        (["sun2023-1", "--ranks", "--format", "csv"], "text, markdown or json"),
        (["sun2023-4", "--ranks"], "ranks no methods"),
        (["sun2023-9", "--ranks"], "unknown table"),
    ],
)
def test_options_that_make_no_sense_are_one_line(arguments, message, cli):
    ran = cli("table", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err
