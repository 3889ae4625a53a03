"""The board under hands: two that add at once lose nothing, nothing is rewritten, a build is whole or not there."""

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from made_submissions import content, locked, submit, truth

from fairbench import files
from fairbench.errors import OutcomesError
from fairbench.leaderboard.board import add_submission, place_on, read_submission, taken, versions
from fairbench.leaderboard.check import check_submission
from fairbench.leaderboard.checked import Latest, Rules
from fairbench.leaderboard.entries import read_entries
from fairbench.leaderboard.ranking import SORT, boards
from fairbench.reports.board import TABLES, _write_tables, build


def add(folder: Path, board: Path) -> Path:
    return add_submission(folder, board, lambda f: check_submission(f, Rules(locked, truth, taken(board))))


def test_a_submission_lies_on_the_board_as_it_was(whole, tmp_path):
    folder = whole()
    place = add(folder, tmp_path / "board")
    assert place == tmp_path / "board" / "submissions" / "mine" / "1"
    assert content(place) == content(folder)
    card, outcomes = read_submission(place)
    assert (card.name, len(outcomes)) == ("mine", 60)
    assert taken(tmp_path / "board") == {"mine": Latest(1, "toy", "leaderboard")}
    assert taken(tmp_path / "board", besides=place_on(tmp_path / "board", place)) == {}, (
        "a check of the board's own folder"
    )


def test_a_name_is_taken_once_and_a_correction_leaves_the_old(whole, tmp_path):
    board = tmp_path / "board"
    first = add(whole(), board)
    before = content(first)
    with pytest.raises(OutcomesError, match="the name mine is taken"):
        add(whole(title="Another"), board)
    second = add(whole(title="Corrected", replaces="mine.1"), board)
    assert second.name == "2"
    assert content(first) == before
    with pytest.raises(OutcomesError, match=r"its latest version is mine\.2"):
        add(whole(replaces="mine.1"), board)
    assert {name: list(kept) for name, kept in versions(board).items()} == {"mine": [1, 2]}


def on_board(folder: Path, board: Path) -> list[str]:
    """Return the problems of what lies on the board, as a check of a pull request finds them."""
    place = place_on(board, folder)
    return check_submission(folder, Rules(locked, truth, taken(board, besides=place), place=place)).problems


def test_every_version_on_the_board_passes_the_check_where_it_lies(whole, tmp_path):
    board = tmp_path / "board"
    places = [add(whole(), board), add(whole(replaces="mine.1"), board), add(whole(replaces="mine.2"), board)]
    assert [place_on(board, place) for place in places] == [("mine", 1), ("mine", 2), ("mine", 3)]
    assert [on_board(place, board) for place in places] == [[], [], []]
    assert place_on(board, tmp_path / "mine_submission") is None


@pytest.mark.parametrize(
    ("place", "changes"),
    [("other/1", {"replaces": "mine.1"}), ("other/1", {}), ("mine/3", {"replaces": "mine.1"}), ("mine/2", {})],
)
def test_a_pull_request_cannot_put_an_entry_in_anothers_place(whole, tmp_path, place, changes):
    """Its folder says one name or version, its card another: it would take the place of ``mine`` in the tables."""
    board = tmp_path / "board"
    (board / "results").mkdir(parents=True)  # of its own, and none: not those of the package
    add(whole(), board)
    put = submit(board / "submissions" / place, "mine", **changes)
    assert [p for p in on_board(put, board) if "but lies on the board as" in p or "is taken" in p]
    if place == "other/1":
        with pytest.raises(OutcomesError, match="its card is that of mine"):
            build(board)


@pytest.mark.parametrize("version", ["0", "01", "1.0", "²", "x"])
def test_only_whole_numbers_are_versions(whole, tmp_path, version):
    board = tmp_path / "board"
    submit(board / "submissions" / "mine" / version, "mine")
    assert versions(board) == {}


def test_a_link_on_the_board_is_no_entry(whole, tmp_path):
    board = tmp_path / "board"
    (board / "submissions").mkdir(parents=True)
    submit(tmp_path / "elsewhere" / "1", "elsewhere")
    (board / "submissions" / "elsewhere").symlink_to(tmp_path / "elsewhere")
    assert versions(board) == {}


def test_a_refused_submission_leaves_nothing(whole, tmp_path):
    folder = whole()
    (folder / "weights.safetensors").write_bytes(b"other")
    with pytest.raises(OutcomesError, match="SHA-256 is not the one in"):
        add(folder, tmp_path / "board")
    assert not (tmp_path / "board").exists()
    add(whole(), tmp_path / "board")
    (folder / "card.yaml").write_text("name: other")
    with pytest.raises(OutcomesError, match="is refused"):
        add(folder, tmp_path / "board")
    assert len(versions(tmp_path / "board")) == 1


def test_labels_that_could_not_be_compared_keep_a_submission_out(whole, tmp_path):
    def half(name):
        known = truth(name)
        return replace(known, index=known.index[:30], labels=known.labels[:30], missing="half is here")

    with pytest.raises(OutcomesError, match="its labels were not compared"):
        add_submission(whole(), tmp_path / "board", lambda f: check_submission(f, Rules(locked, half)))


def test_what_a_killed_add_left_is_no_entry_and_goes_away(whole, tmp_path):
    left = tmp_path / "board" / "submissions" / ".adding-x"
    submit(left / "1")
    assert versions(tmp_path / "board") == {}
    add(whole(), tmp_path / "board")
    assert not left.exists()


ADD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from made_submissions import locked, truth
from fairbench.errors import OutcomesError
from fairbench.leaderboard.board import add_submission, taken
from fairbench.leaderboard.check import check_submission
from fairbench.leaderboard.checked import Rules
board = Path({board!r})
for folder in sys.argv[1:]:
    try:
        add_submission(Path(folder), board, lambda f: check_submission(f, Rules(locked, truth, taken(board))))
        print("added")
    except OutcomesError as error:
        print("refused", error)
"""


def test_two_processes_that_add_at_once_lose_nothing(tmp_path):
    """Each has three entries of its own and one that both want."""
    board = tmp_path / "board"
    code = ADD.format(tests=str(Path(__file__).parent), board=str(board))
    running = []
    for who in "ab":
        own = [submit(tmp_path / f"{who}{i}", f"{who}{i}", seed=i) for i in range(3)]
        both = submit(tmp_path / f"{who}_both", "both")
        arguments = [str(f) for f in (both, *own)]
        running.append(subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True))
    out = [p.communicate(timeout=120)[0] for p in running]
    assert sorted(versions(board)) == ["a0", "a1", "a2", "b0", "b1", "b2", "both"]
    assert sum(text.count("added") for text in out) == 7
    assert sum(text.count("the name both is taken") for text in out) == 1
    for kept in versions(board).values():
        read_submission(kept[1])


@pytest.fixture
def board(tmp_path):
    for number in range(3):
        submit(tmp_path / "board" / "submissions" / f"m{number}" / "1", f"m{number}", seed=number)
    (tmp_path / "board" / "results").mkdir()
    return tmp_path / "board"


def built(board: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Tables and pages."""
    return content(board / "tables"), content(board / "site")


def test_a_build_is_the_same_bytes_for_the_same_inputs(board):
    names = [path.name for path in build(board)]
    assert names == ["README.md", "toy_linf_8-255.csv", "toy_linf_8-255.md", "toy_linf_8-255.png", "index.html"]
    first = built(board)
    time.sleep(0.01)
    build(board)
    assert built(board) == first
    assert [p.name for p in board.iterdir() if p.name.startswith(".")] == [".build.lock"]


def test_a_build_that_fails_leaves_the_old_tables(board):
    build(board)
    before = built(board)
    (board / "submissions" / "m0" / "1" / "outcomes.parquet").write_bytes(b"")
    with pytest.raises(OutcomesError):
        build(board)
    assert built(board) == before


@pytest.mark.parametrize("what", ["tables", "site"])
def test_a_full_disk_is_one_line_that_names_the_folder_and_leaves_the_old(board, monkeypatch, what):
    build(board)
    before = built(board)
    write = Path.write_text

    def full(path, *arguments, **options):
        if path.parent.name == what:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutcomesError, match=f"cannot write {board / what}: No space left on device"):
        build(board)
    monkeypatch.undo()
    assert built(board) == before
    assert [p.name for p in board.iterdir() if p.name.startswith(".")] == [".build.lock"]


def test_pages_that_fail_leave_the_old_pages(board, monkeypatch):
    build(board)
    before = content(board / "site")
    monkeypatch.setattr("fairbench.reports.site.pages.model_pages", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build(board)
    assert content(board / "site") == before
    assert [p.name for p in board.iterdir() if p.name.startswith(".")] == [".build.lock"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_takes_anothers_place(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(files, "_exchange", lambda a, b: False)
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    files.replace_folder(tmp_path / "new", tmp_path / "old")
    assert content(tmp_path) == {"old/file": b"new"}
    assert [p.name for p in tmp_path.iterdir()] == ["old"]


BUILD = """
import sys, time
from pathlib import Path
from fairbench import files
from fairbench.reports import board
from fairbench.reports.site import pages

def wait(*_):
    print("waits", flush=True)
    time.sleep(600)

def exchange_and_wait(new, old, exchange=files._exchange):
    exchange(new, old)
    wait()

if sys.argv[2] == "writing pages":
    pages.model_pages = wait
else:
    files._exchange = exchange_and_wait
board.build(Path(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is a moment without tables")
def test_kill_9_during_a_build_leaves_tables_and_pages_that_are_whole(board):
    """Killed where most is half done: pages half written, and new pages in place beside tables that are not yet."""
    build(board)
    three = built(board)
    (board / "submissions" / "m2").rename(board / "submissions" / ".m2")
    for phase, left in (("writing pages", three), ("exchanging", None)):
        process = subprocess.Popen([sys.executable, "-c", BUILD, str(board), phase], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert (said, process.returncode) == ("waits\n", -signal.SIGKILL)
        assert list(board.glob(".building-*"))
        found = built(board)
        if left is not None:
            assert found == left
    build(board)
    two = built(board)
    assert two != three
    assert found == (three[0], two[1])
    assert not list(board.glob(".building-*")), "what the killed ones left is gone"


def test_the_committed_tables_are_what_the_results_give(tmp_path):
    kept = Path(__file__).parents[2] / "leaderboard"
    if not (kept / TABLES).is_dir():
        pytest.skip("the tables are in a clone only")
    _write_tables(boards(read_entries(kept), SORT), tmp_path)
    for made in (*tmp_path.glob("*.md"), *tmp_path.glob("*.csv")):
        assert made.read_bytes() == (kept / TABLES / made.name).read_bytes(), "run `fairbench leaderboard build`"
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in (kept / TABLES).iterdir()}


def test_pages_that_cannot_be_written_leave_the_tables_too(whole, tmp_path, monkeypatch):
    board = tmp_path / "board"
    (board / "results").mkdir(parents=True)
    build(board)
    before = content(board / TABLES)
    add(whole(), board)

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fairbench.reports.site.write_pages", full)
    with pytest.raises(OutcomesError, match="No space left"):
        build(board)
    assert content(board / TABLES) == before
