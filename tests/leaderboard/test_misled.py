"""An entry by PGD-20 that a stronger attack is known to break much more of: marked, last, ahead of none."""

import csv
import io

import pandas as pd
import pytest

from fairbench import Outcomes
from fairbench.leaderboard.entries import read_entries
from fairbench.leaderboard.misled import misled_line
from fairbench.leaderboard.ranking import boards, errs_less
from fairbench.leaderboard.results import write_result
from fairbench.metrics.misled import found_more
from fairbench.reports import board as report


def outcomes(name, attack, broken, *, protocol="standard", modified=None, rows=range(2000), sha=None, epsilon=8 / 255):
    """Of the examples, half of each class, the attack breaks the first of every hundred."""
    frame = pd.DataFrame({"index": rows})
    frame["label"] = frame["clean_pred"] = frame["index"] % 2
    frame[f"{attack}_pred"] = (frame["label"] + (frame["index"] % 100 < broken)) % 2
    manifest = {
        "format": 1,
        "model": {"name": name, "sha256": sha or name},
        "dataset": {"name": "toy", "classes": ["a", "b"]},
        "protocol": {"name": protocol, "modified": modified or {}, "seed": 0},
        "attacks": {attack: {"epsilon": epsilon}},
        "run": f"{name}-{attack}-{protocol}",
    }
    return Outcomes(frame, manifest)


def on_sample(name, attack, broken, modified=None, **facts):
    modified = {"attacks": [attack]} | (modified or {})
    return outcomes(name, attack, broken, protocol="quick", modified=modified, rows=range(1000), **facts)


def board_of(folder, *results):
    for result in results:
        write_result(result, folder / "results")
    (found,) = [one for one in boards(read_entries(folder)) if one.epsilon == pytest.approx(8 / 255)]
    return found


@pytest.mark.parametrize("attack", ["cw20", "autoattack"])
@pytest.mark.parametrize(("broken", "misled"), [(26, False), (27, True)])
def test_an_entry_comes_last_if_a_stronger_attack_breaks_over_6_points_more(tmp_path, attack, broken, misled):
    found = board_of(
        tmp_path,
        outcomes("flattered", "pgd20", 20),
        on_sample("flattered", attack, broken),
        outcomes("other", "pgd20", 60),
    )
    assert [row.entry.name for row in found.ranked] == (["other", "flattered"] if misled else ["flattered", "other"])
    ranks, front = ({row.entry.name: getattr(row, key) for row in found.ranked} for key in ("ranks", "on_front"))
    assert ranks == ({"flattered": (1, 2), "other": (1, 2)} if misled else {"flattered": (1, 1), "other": (2, 2)})
    assert front == {"flattered": not misled, "other": misled}


@pytest.mark.parametrize(
    "other",
    [
        on_sample("flattered", "cw20", 90, sha="other"),
        on_sample("flattered", "cw20", 90, epsilon=16 / 255),
        on_sample("flattered", "cw20", 90, {"restarts": 5}),
    ],
    ids=["other weights", "other radius", "other protocol"],
)
def test_what_was_found_of_something_else_says_nothing(tmp_path, other):
    found = board_of(tmp_path, outcomes("flattered", "pgd20", 20), other)
    assert found.ranked[0].entry.found_more is None


def test_only_the_same_examples_are_compared():
    rows = [row for row in range(2000) if row % 100 >= 50]  # pgd20 breaks none of these, and 20 of 100 on the whole
    weak, strong = outcomes("m", "pgd20", 20), outcomes("m", "cw20", 52, rows=rows)
    found = found_more(weak, [strong])
    assert (found.points, found.examples, found.misled) == (pytest.approx(4.0), 1000, False)
    assert found_more(outcomes("m", "pgd20", 20, rows=[row for row in range(2000) if row % 100 < 50]), [strong]) is None
    assert found_more(strong, [weak]) is None


def test_other_labels_and_few_rows_say_nothing():
    weak, strong = outcomes("m", "pgd20", 20), outcomes("m", "cw20", 90)
    assert found_more(weak, [outcomes("m", "cw20", 90, rows=range(499))]) is None
    renumbered = Outcomes(strong.frame.assign(label=1 - strong.frame["label"]), strong.manifest)
    assert found_more(weak, [renumbered]) is None


@pytest.mark.parametrize(("broken", "misled"), [(broken, False) for broken in range(6, 100, 7)])
def test_the_limit_is_not_crossed_by_rounding(broken, misled):
    assert found_more(outcomes("m", "pgd20", broken - 6), [outcomes("m", "cw20", broken)]).misled == misled


def test_what_is_not_the_protocols_is_not_compared(tmp_path):
    kept = on_sample("flattered", "cw20", 90)
    write_result(kept, tmp_path)
    weak = outcomes("flattered", "pgd20", 20)
    assert "CW-20 breaks 70.0 points more" in misled_line("flattered", weak, tmp_path)
    for change in ({"protocol": {"name": "standard", "modified": {"restarts": 5}}}, {"transfer_from": {"name": "m"}}):
        assert misled_line("flattered", Outcomes(weak.frame, weak.manifest | change), tmp_path) == ""
    nameless = Outcomes(weak.frame, weak.manifest | {"model": {"name": "flattered", "sha256": None}})
    assert misled_line("flattered", nameless, tmp_path) == ""


def test_a_table_with_both_attacks_speaks_for_itself(tmp_path):
    both = outcomes("mine", "pgd20", 20)
    both.frame["cw20_pred"] = outcomes("mine", "cw20", 40).frame["cw20_pred"]
    assert misled_line("mine", both, tmp_path) == (
        "mine: CW-20 breaks 20.0 points more of 2,000 examples than PGD-20, whose figures mislead."
    )


def test_without_attack_it_is_compared_as_ever(tmp_path):
    results = outcomes("flattered", "pgd20", 20), on_sample("flattered", "cw20", 90), outcomes("other", "pgd20", 60)
    other, flattered = (row.entry for row in board_of(tmp_path, *results).ranked)
    assert not errs_less(flattered, other, "worst_rob")
    assert errs_less(other, flattered, "worst_rob")
    assert errs_less(flattered, other, "worst_std")
    assert not errs_less(other, flattered, "cru_s")
    (by_clean,) = boards(read_entries(tmp_path), "avg_std")
    assert [row.entry.name for row in by_clean.ranked] == ["flattered", "other"]


def test_every_form_of_the_board_says_what_is_known(tmp_path):
    results = outcomes("flattered", "pgd20", 20), on_sample("flattered", "cw20", 90), outcomes("other", "pgd20", 60)
    found = board_of(tmp_path, *results)
    for page in (report.as_markdown(found), report.as_text(found)):
        marked = [line for line in page.splitlines() if "PGD-20 * †" in line]
        assert len(marked) == 1
        assert "flattered" in marked[0]
        assert "flattered: CW-20 breaks 70.0 points more of 1,000" in page
    other, flattered = csv.DictReader(io.StringIO(report.as_csv(found)))
    assert (flattered["stronger_attack"], flattered["stronger_more"]) == ("cw20", "70.0000")
    assert (other["stronger_attack"], other["stronger_more"]) == ("", "")
    rows = {row["name"]: row for row in report.to_dict(found)["ranked"]}
    assert rows["flattered"]["misled"]
    assert not rows["other"]["misled"]
    assert rows["flattered"]["stronger_attack"] == {"attack": "cw20", "points": pytest.approx(70.0), "examples": 1000}
    report.build(tmp_path)
    assert "†, misled" in (tmp_path / "site" / "boards" / "toy_linf_8-255.html").read_text(encoding="utf-8")
    for page in ("boards/toy_linf_8-255.html", "all.html", "models/flattered.html"):
        html = (tmp_path / "site" / page).read_text(encoding="utf-8")
        assert "CW-20 breaks 70.0 points more of 1,000" in html, page
    assert "†" not in (tmp_path / "site" / "models" / "other.html").read_text(encoding="utf-8")


def test_a_board_of_nothing_else_is_built(tmp_path):
    board_of(tmp_path, outcomes("flattered", "pgd20", 20), on_sample("flattered", "cw20", 90))
    report.build(tmp_path)
    page = (tmp_path / "site" / "boards" / "toy_linf_8-255.html").read_text(encoding="utf-8")
    assert "CW-20 breaks 70.0 points more of 1,000" in page
    assert (tmp_path / "tables" / "toy_linf_8-255.png").is_file()
