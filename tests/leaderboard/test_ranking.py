"""The board: rows recomputed and in order, ranks as ranges, the front, samples apart, tables that say what they are."""

import csv
import io
import json
import math

import pandas as pd
import pytest
from made_submissions import submit

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.leaderboard.entries import _extra_data_of_zoo, read_entries
from fairbench.leaderboard.ranking import COLUMNS, boards, errs_less, front_line, pareto_front, rank_ranges
from fairbench.leaderboard.results import write_result
from fairbench.reports import board as report


def outcomes(
    name, wrong, *, protocol="standard", modified=None, attacks=("pgd20",), epsilon=8 / 255, n=100, classes="ab"
):
    """Class a has n examples, of which the attack breaks ``wrong``; class b is robust."""
    label = [0] * n + [1] * n
    frame = pd.DataFrame({"index": range(2 * n), "label": label, "clean_pred": label})
    for attack in attacks:
        frame[f"{attack}_pred"] = [1] * wrong + label[wrong:]
    manifest = {
        "format": 1,
        "model": {"name": name},
        "dataset": {"name": "toy", "classes": list(classes)},
        "protocol": {"name": protocol, "modified": modified or {}, "seed": 0},
        "attacks": {attack: {"epsilon": epsilon} for attack in attacks},
        "run": f"{name}{wrong}{protocol}",
    }
    return Outcomes(frame, manifest)


@pytest.fixture
def board(tmp_path):
    """Kept results: three on the same board, one at another radius, samples, and what is not ranked."""
    kept = [
        outcomes("good", 10),
        outcomes("bad", 90),
        outcomes("middle", 15),
        outcomes("middle", 20, protocol="leaderboard", attacks=("pgd20", "autoattack")),
        outcomes("good", 30, modified={"epsilon": 16 / 255}, epsilon=16 / 255),
        outcomes("good", 5, protocol="quick"),
        outcomes("good", 8, protocol="quick", modified={"attacks": ["pgd20", "autoattack"]}, attacks=("autoattack",)),
        outcomes("good", 1, modified={"restarts": 5}),
    ]
    for result in kept:
        write_result(result, tmp_path / "results")
    return tmp_path


def test_a_row_is_judged_by_autoattack_and_by_pgd20_where_there_is_none(board):
    small, large = boards(read_entries(board))
    assert [(r.entry.name, r.entry.attack.attack, r.value("worst_rob")) for r in small.ranked] == [
        ("good", "pgd20", 10.0),
        ("middle", "autoattack", 20.0),
        ("bad", "pgd20", 90.0),
    ]
    assert [r.ranks for r in small.ranked] == [(1, 2), (1, 2), (3, 3)]
    assert [r.entry.name for r in large.ranked] == ["good"]
    assert large.epsilon == pytest.approx(16 / 255)


def test_a_sample_is_never_ranked_as_full(board):
    small, _ = boards(read_entries(board))
    assert [(r.entry.attack.attack, r.ranks, r.on_front) for r in small.sample] == [("autoattack", None, False)]
    text = report.as_markdown(small)
    assert "Not ranked: measured on a sample" in text
    assert text.index("`bad`") < text.index("Not ranked")


def test_the_order_is_that_of_any_column(board):
    for column in COLUMNS:
        ranked = boards(read_entries(board), column)[0].ranked
        values = [row.value(column) for row in ranked]
        assert values == sorted(values)
    with pytest.raises(OutcomesError, match="Did you mean 'worst_rob'"):
        boards(read_entries(board), "worst_robe")


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([(1, 3), (2, 4), (5, 6)], [(1, 2), (1, 2), (3, 3)]),
        ([(1, 2), (2, 3), (3, 4)], [(1, 2), (1, 3), (2, 3)]),  # a shared end is an overlap
        ([(1, 9), (2, 3), (4, 5)], [(1, 3), (1, 2), (2, 3)]),
        ([(1, 2), (math.nan, math.nan)], [(1, 1), (2, 2)]),
        ([], []),
    ],
)
def test_ranks_are_ranges_where_intervals_overlap(intervals, expected):
    assert rank_ranges(intervals) == expected


def test_the_front_by_hand():
    points = [(10, 50), (12, 40), (11, 60), (12, 40), (15, 40), (9, math.nan)]
    assert pareto_front(points) == [True, True, False, True, False, False]


def test_a_model_of_fewer_classes_is_on_no_board(board):
    """``sun2023``, Table 4: trained and measured without the hard classes, and no rival of those that have them."""
    write_result(outcomes("all", 1, classes="abc"), board / "results")
    write_result(outcomes("without_c", 1), board / "results")
    (found,) = boards(read_entries(board))
    assert [row.entry.name for row in (*found.ranked, *found.sample)] == ["all"]


@pytest.fixture
def mixed(tmp_path):
    """Class errors far apart; the best and the third under PGD-20 alone."""
    for name, wrong, attack in (("a", 100, "pgd20"), ("b", 300, "autoattack"), ("c", 500, "pgd20")):
        write_result(outcomes(name, wrong, attacks=(attack,), n=1000), tmp_path / "results")
    write_result(outcomes("d", 700, attacks=("autoattack",), n=1000), tmp_path / "results")
    return tmp_path


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("worst_rob", [(1, 3), (1, 2), (3, 4), (2, 4)]),  # d errs more than b; whether less than a and c is not known
        ("avg_bndy", [(1, 3), (1, 2), (3, 4), (2, 4)]),
        ("cru_s", [(1, 3), (1, 3), (2, 4), (2, 4)]),  # a difference: no bound
        ("worst_std", [(1, 4)] * 4),
    ],
)
def test_a_lower_bound_is_ahead_of_nothing_that_autoattack_was_run_on(mixed, column, expected):
    (found,) = boards(read_entries(mixed), column)
    assert [row.entry.name for row in found.ranked] == ["a", "b", "c", "d"]
    assert [row.ranks for row in found.ranked] == expected


def test_a_lower_bound_pushes_nothing_off_the_front_that_autoattack_was_run_on(mixed):
    (found,) = boards(read_entries(mixed))
    assert [row.on_front for row in found.ranked] == [True, True, False, False]
    assert [row.entry.name for row in front_line(found.ranked)] == ["a"], "b stands to the upper right of it"
    assert "those of PGD-20 push off none of AutoAttack" in report.as_markdown(found)


def test_a_worst_class_names_how_many_are_as_bad(tmp_path):
    whole = outcomes("broken", 100)
    whole.frame["pgd20_pred"] = 1 - whole.frame["label"]
    write_result(whole, tmp_path / "results")
    (found,) = boards(read_entries(tmp_path))
    assert "100.00 [100.0, 100.0] a (and 1 more)" in report.as_markdown(found)
    (row,) = csv.DictReader(io.StringIO(report.as_csv(found)))
    assert row["worst_rob_class"] == "a", "numbers' files have the name alone"


def test_attacks_are_told_apart_only_where_they_matter(mixed):
    a, b = (row.entry for row in boards(read_entries(mixed))[0].ranked[:2])
    assert errs_less(a, b, "cau")
    assert not errs_less(a, b, "avg_rob")
    assert errs_less(b, a, "avg_rob")
    assert not errs_less(b, a, "cru_s")


def test_submissions_stand_beside_kept_results_and_a_correction_replaces_its_entry(tmp_path):
    place = tmp_path / "submissions" / "mine"
    submit(place / "1", seed=1)
    said = {"title": "My | `method` <b>", "paper": "https://example.org/(a)![x](https://example.com/x.png"}
    submit(place / "2", seed=2, replaces="mine.1", extra_data="10 million images", **said)
    write_result(outcomes("good", 10, classes="abc"), tmp_path / "results")
    (found,) = boards(read_entries(tmp_path))
    assert sorted((r.entry.name, r.entry.version, r.entry.source) for r in found.ranked) == [
        ("good", 0, "public"),
        ("mine", 2, "submission"),
    ]
    text = report.as_markdown(found)
    assert "10 million images" in text
    assert r"[My \| \`method\` \<b\>](https://example.org/%28a%29!%5Bx%5D%28https://example.com/x.png) (mine.2)" in text
    assert "not stated" in text


def test_the_csv_has_every_figure_and_nothing_that_a_spreadsheet_would_run(tmp_path):
    submit(tmp_path / "submissions" / "mine" / "1", title="=SUM(A1)")
    (tmp_path / "results").mkdir()
    (found,) = boards(read_entries(tmp_path))
    (row,) = csv.DictReader(io.StringIO(report.as_csv(found)))
    assert row["title"].startswith("'=")
    for column in COLUMNS:
        low, high = found.ranked[0].interval(column)
        assert float(row[column]) == pytest.approx(found.ranked[0].value(column), abs=1e-4)
        assert float(row[f"{column}_low"]) == pytest.approx(low, abs=1e-4)
        assert float(row[f"{column}_high"]) == pytest.approx(high, abs=1e-4)


def test_what_was_not_measured_is_neither_zero_nor_ranked_ahead(tmp_path):
    """One class has no example: CAU and CRU_s are unknown, and so are the places by them."""
    for name, wrong in (("a", 3), ("b", 9)):
        both = outcomes(name, wrong)
        write_result(Outcomes(both.frame[both.frame["label"] == 0], both.manifest), tmp_path / "results")
    (found,) = boards(read_entries(tmp_path), "cru_s")
    assert [row.ranks for row in found.ranked] == [(1, 2), (1, 2)]
    assert "n/a" in report.as_text(found)
    assert "nan" not in report.as_text(found) + report.as_csv(found) + report.as_markdown(found)
    assert report.to_dict(found)["ranked"][0]["cau"]["value"] is None


def test_a_board_of_samples_alone_has_a_table_and_no_empty_figure(tmp_path):
    write_result(outcomes("good", 5, protocol="quick"), tmp_path / "results")
    written = {path.name for path in report.build(tmp_path)}
    assert "toy_linf_8-255.md" in written
    assert "toy_linf_8-255.png" not in written
    assert ".png" not in (tmp_path / "tables" / "toy_linf_8-255.md").read_text()
    write_result(outcomes("good", 10), tmp_path / "results")
    assert "toy_linf_8-255.png" in {path.name for path in report.build(tmp_path)}


def test_show(cli, board):
    ran = cli("leaderboard", "show", "--board", board, "--dataset", "toy")
    assert ran.code == 0
    assert "toy, L-inf 8/255, by worst rob" in ran.out
    assert json.loads(cli("leaderboard", "show", "--board", board, "--json").out)[0]["ranked"][0]["ranks"] == [1, 2]
    assert "| rank" in cli("leaderboard", "show", "--board", board, "--markdown").out
    assert cli("leaderboard", "show", "--board", board, "--dataset", "nothing").code == 2
    assert "Did you mean 'toy'?" in cli("leaderboard", "show", "--board", board, "--dataset", "to").err
    assert "Did you mean 'cau'" in cli("leaderboard", "show", "--board", board, "--sort", "cua").err


@pytest.mark.parametrize("pattern", ["middle", "mid*"])
def test_show_one_entry_with_its_rank_among_all(cli, board, pattern):
    whole = json.loads(cli("leaderboard", "show", "--board", board, "--json").out)
    rows = {
        name: [row for each in whole for row in each[name] if row["name"] == "middle"] for name in ("ranked", "sample")
    }
    found = json.loads(cli("leaderboard", "show", "--board", board, "--json", "--model", pattern).out)
    assert {name: [row for each in found for row in each[name]] for name in rows} == rows
    assert rows["ranked"]
    text = cli("leaderboard", "show", "--board", board, "--model", pattern).out
    assert text.count("middle") == len(rows["ranked"]) + len(rows["sample"])
    missing = cli("leaderboard", "show", "--board", board, "--model", "midle")
    assert missing.code == 2
    assert "--model midle: no such entry. Did you mean 'middle'?" in missing.err


@pytest.mark.parametrize(
    ("title", "label"),
    [("My method", "My method"), ("$x$", "$x$"), ("我的方法", "mine"), ("שלום", "mine"), ("m" * 50, "m" * 39 + "…")],
)
def test_a_figure_names_an_entry_as_its_font_can(tmp_path, title, label, monkeypatch):
    """A character that the font lacks would be a warning, which is an error here, and a box."""
    submit(tmp_path / "submissions" / "mine" / "1", title=title)
    (tmp_path / "results").mkdir()
    (found,) = boards(read_entries(tmp_path))
    named = []
    monkeypatch.setattr("matplotlib.axes.Axes.annotate", lambda self, text, *_, **__: named.append(text))
    report.draw_front(found, tmp_path / "front.png")
    monkeypatch.undo()
    report.draw_front(found, tmp_path / "front.png")
    assert named == [label]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("standard_lenet5_fashion_mnist", ""),
        ("frl007_lenet5_fashion_mnist", ""),  # from pgd_at, which is ours too
        ("natural_resnet18", None),  # a public checkpoint
        ("bat_resnet18", None),  # two steps from it
        ("no_such_model", None),
    ],
)
def test_extra_data_is_stated_where_all_weights_are_our_own(name, known):
    assert _extra_data_of_zoo(name) == known


def test_autoattack_that_was_added_to_a_protocol_counts(tmp_path):
    """What PGD-20 alone seemed to leave standing is not ranked by that once AutoAttack was run."""
    added = {"attacks": ["pgd20", "autoattack"]}
    write_result(outcomes("a", 10), tmp_path / "results")
    write_result(outcomes("a", 100, modified=added, attacks=("pgd20", "autoattack")), tmp_path / "results")
    (found,) = boards(read_entries(tmp_path))
    assert [(row.entry.attack.attack, row.value("worst_rob")) for row in found.ranked] == [("autoattack", 100.0)]
