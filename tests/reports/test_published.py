"""The tables of sun2023 beside results made by hand, and its observations on them."""

import json

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes, summarize
from fairbench.errors import OutcomesError
from fairbench.leaderboard.results import published_folder, write_result
from fairbench.reports import claims, published, sun2023
from fairbench.reports.published import METRICS
from fairbench.reports.sun2023 import BAT, PAPER, PGD_AT, ROWS, TABLE_1, TABLE_2, TABLE_3, TABLE_4, TRADES6
from fairbench.reports.sun2023_ranks import ranked
from fairbench.reports.table_formats import FORMATS, grid, render

CLASSES = ("airplane", "automobile", "bird", "cat")
ERRORS = {
    PGD_AT: ((10, 5, 30, 40), (50, 30, 70, 90)),
    TRADES6: ((12, 8, 34, 44), (44, 28, 66, 84)),
    BAT: ((11, 6, 28, 30), (46, 32, 62, 72)),
}
N = 100


def outcomes(model, errors):
    """100 images a class; the first ones of a class are those a model errs on."""
    label = np.repeat(range(4), N)
    place = np.tile(np.arange(N), 4)
    std, rob = (np.repeat(e, N) for e in errors)
    frame = pd.DataFrame({"index": range(4 * N), "label": label})
    frame["clean_pred"] = np.where(place < std, (label + 1) % 4, label)
    frame["pgd20_pred"] = np.where(place < rob, (label + 1) % 4, label)
    manifest = {
        "format": 1,
        "run": model,
        "model": {"name": model},
        "dataset": {"name": "cifar10", "classes": list(CLASSES)},
        "protocol": {"name": "standard", "modified": {}},
        "attacks": {"pgd20": {"epsilon": 8 / 255}},
        "seed": 0,
    }
    return Outcomes(frame, manifest)


@pytest.fixture(scope="module")
def results():
    return {f"{model}.standard": outcomes(model, errors) for model, errors in ERRORS.items()}


@pytest.fixture(scope="module")
def kept(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for found in results.values():
        write_result(found, folder)
    return folder


ALL = [TABLE_1, TABLE_2, TABLE_3, TABLE_4]


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.key)
def test_every_printed_number_is_there_as_printed(table, kept):
    printed = pd.read_csv(published_folder() / f"sun2023_table{table.key[-1]}.csv", dtype=str)
    lines = table.lines(kept)
    assert len(lines) == len(printed)
    for line, row in zip(lines, printed.to_dict("records"), strict=True):
        assert [f"{line.printed[metric]:.2f}" for metric in METRICS] == [row[metric] for metric in METRICS]
        assert line.names == tuple(row[label.replace(" ", "_")] for label in table.labels)


def test_table_1_has_all_18_rows_and_those_of_a_dataset_that_is_asked_for(kept):
    assert len(TABLE_1.lines(kept)) == 18
    assert [line.names[0] for line in TABLE_1.lines(kept, "cifar100")] == ["CIFAR-100"] * 6
    with pytest.raises(OutcomesError, match="Did you mean 'imagenette'"):
        TABLE_1.lines(kept, "imagenet")
    with pytest.raises(OutcomesError, match="leave --dataset out"):
        TABLE_2.lines(kept, "cifar10")


def test_a_dataset_that_the_paper_has_not_shows_the_measured_half_alone():
    lines = TABLE_1.lines(dataset="fashion_mnist")
    assert [line.names[1] for line in lines] == [line.names[1] for line in TABLE_1.lines(dataset="cifar10")]
    assert all(line.measured and not line.printed for line in lines)
    assert "The paper has no rows of Fashion-MNIST" in render(TABLE_1, lines, "text")


def cells(line, mark="|"):
    return [cell.strip() for cell in line.strip(mark).split(mark)]


def test_the_measured_half_is_that_of_the_kept_result_and_empty_without_one(kept, results):
    lines = TABLE_1.lines(kept, "CIFAR-10")
    rows = {line.names[1]: line for line in lines}
    assert list(rows) == [name for name in ROWS if name not in ("FAT", "GAIRAT")]
    found = summarize(results[f"{BAT}.standard"]).attacks["pgd20"]
    assert rows["BAT"].cell("here", "worst_rob") == (72, found.intervals["worst_rob"])
    text = render(TABLE_1, lines, "markdown").splitlines()
    (at,) = [i for i, line in enumerate(text) if "| BAT " in line]
    low, high = found.intervals["worst_rob"]
    assert cells(text[at])[2:] == ["paper", "12.91", "25.90", "31.57", "44.40", "44.48", "70.30"]
    assert cells(text[at + 1])[2:4] == ["here", "18.75 [15.2, 22.9]"]
    assert cells(text[at + 1])[8] == f"72.00 [{low:.1f}, {high:.1f}]"
    assert cells(text[at + 2])[2:] == ["difference", "+5.84", "+4.10", "+2.68", "-2.40", "+8.52", "+1.70"]
    (at,) = [i for i, line in enumerate(text) if "TRADES(1/λ=1)" in line]
    assert cells(text[at + 1])[2:] == ["here", *[""] * 6]
    assert "Not measured yet as this table needs it: trades1_resnet18, frl005_resnet18, frl007_resnet18." in text
    how = "1 pass over the training images from pgd2_resnet18"
    before = "3 passes over the training images from natural_resnet18 (pgd2_resnet18)"
    assert f"Trained here: {how} (pgd_at_resnet18, trades6_resnet18, bat_resnet18); {before}." in text


FOOTNOTES = {
    "sun2023-1": [
        "CIFAR-100, FRL(Reweight+Remargin, 0.05): as printed; Avg. Std. + Avg. Bndy. is 72.20, 1.48 off the printed "
        "Avg. Rob.",
        "CIFAR-100, BAT: as printed; Avg. Std. + Avg. Bndy. is 68.93, 2.00 off the printed Avg. Rob.",
    ],
    "sun2023-2": [
        "1, boundary pair, none: as printed; Avg. Std. + Avg. Bndy. is 46.90, 1.00 off the printed Avg. Rob."
    ],
    "sun2023-3": [],
    "sun2023-4": [],
}


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.key)
def test_rows_whose_averages_do_not_add_up_have_a_footnote_in_every_format(table, kept):
    lines = table.lines(kept)
    assert [line.footnote for line in lines if line.footnote] == FOOTNOTES[table.key]
    for format in FORMATS:
        text = render(table, lines, format)
        for note in FOOTNOTES[table.key]:
            assert note.rpartition(": ")[2] in text


def test_ranks_are_among_the_methods_that_were_measured(kept):
    lines = TABLE_1.lines(kept, "CIFAR-10")
    ranks = published.rank_rows(lines, lines)
    assert list(ranks) == ["PGD-AT", "TRADES(1/λ=6)", "BAT"]
    assert [row["avg_std"].paper for row in ranks.values()] == [2, 3, 1]
    assert [row["worst_rob"].paper for row in ranks.values()] == [3, 2, 1]
    assert [row["worst_rob"].here for row in ranks.values()] == [(2, 3), (1, 3), (1, 2)], "90 and 72 % lie apart"
    assert "3 / 2-3" in published.ranks_as_text(ranks, "simple")
    assert "nothing to rank" in published.ranks_as_text(published.rank_rows(lines, lines[1:2]), "simple")


def test_the_second_view_ranks_and_says_whether_observations_hold(kept):
    found = ranked(TABLE_1, "cifar10", kept)
    text = found.as_text()
    assert "   holds" in text
    assert "not measured: frl005_resnet18.standard" in text
    assert "Not measured yet: trades1_resnet18.standard" in text
    document = found.to_dict()
    assert document["ranks"]["BAT"]["worst_rob"] == {"paper": 1, "here": [1, 2]}
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_the_second_view_is_of_another_dataset_without_further_code():
    found = ranked(TABLE_1, "fashion_mnist")
    assert (found.missing, len(found.ranks)) == ((), 6)
    rows = [row for claim in found.claims for group in claim.groups for row in group.rows]
    assert all(row.readings["8/255"].verdict != claims.MISSING for row in rows)
    assert "The printed ranks and the claimed numbers are of CIFAR-10." in found.as_markdown()


def test_observations_have_the_papers_numbers_and_a_paired_test(results):
    gains, frl, averages, over_trades, balance, trades = PAPER.measure(results)
    against = {group.title: group for group in gains.groups}["BAT against PGD-AT"]
    robust = {row.measure: row for row in against.rows}["Worst Rob."]
    assert robust.report == "81.20 to 70.30: -10.90"
    assert robust.readings["8/255"].text.startswith("90.0 (cat) to 72.0 (cat): -18.0 [")
    assert robust.readings["8/255"].verdict == claims.HOLDS
    boundary = {row.measure: row for row in against.rows}["Worst Bndy."]
    assert boundary.readings["8/255"].text.startswith("50.0 (cat) to 42.0 (cat): -8.0 [")
    missing = (frl, balance)
    assert {row.readings["8/255"].verdict for claim in missing for row in claim.groups[0].rows} == {claims.MISSING}
    first = averages.groups[0]
    assert first.title == "BAT against PGD-AT"
    assert [row.measure for row in first.rows] == ["Avg. Std.", "Avg. Bndy.", "Avg. Rob."]
    assert first.rows[2].readings["8/255"].text.startswith("60.0 to 53.0: -7.0 [")
    assert [row.measure for row in over_trades.groups[0].rows][3:] == ["Worst Std.", "Worst Bndy.", "Worst Rob."]
    assert balance.groups[0].rows[0].measure == "Avg. Std., higher by less than 1"
    assert claims.group_verdict(trades.groups[0], "8/255") == claims.MISSING


@pytest.mark.parametrize(("points", "verdict"), [(5.0, claims.HOLDS), (-12.0, claims.FAILS), (-7.0, claims.OPEN)])
def test_nearly_the_same_is_a_rise_of_less_than_so_many_points(results, points, verdict):
    take = sun2023.point_change(sun2023.average, "rob", boundary=points)
    assert take(results[f"{PGD_AT}.standard"], results[f"{BAT}.standard"]).verdict == verdict


def test_an_average_carries_mcnemars_test(results):
    take = sun2023.point_change(sun2023.average, "rob")
    reading = take(results[f"{PGD_AT}.standard"], results[f"{BAT}.standard"])
    assert reading.text.startswith("60.0 to 53.0: -7.0 [")
    assert reading.remark == "McNemar p < 0.001"  # 26 + 8 only the first errs on, 2 only the second


def test_figure_4_needs_all_three_models(results, tmp_path):
    from PIL import Image

    assert PAPER.draw({k: v for k, v in results.items() if BAT not in k}, tmp_path) == []
    (path,) = PAPER.draw(results, tmp_path)
    with Image.open(path) as picture:
        assert picture.width > picture.height > 400


@pytest.mark.parametrize("table", ["sun2023-1", "sun2023-4"])
def test_the_command_prints_a_table_in_every_form(table, cli):
    for form in ("text", "markdown", "latex", "html"):
        ran = cli("table", table, "--format", form)
        assert ran.code == 0
        heading = ("Worst", "Rob.") if form in ("text", "latex") else ("Worst Rob.",)  # those two may break it
        assert all(part in ran.out for part in heading)
    document = json.loads(cli("table", table, "--format", "json").out)
    assert {"published", "measured", "footnote"} <= document["rows"][0].keys()


def test_the_command_lists_the_tables_and_suggests_one(cli):
    keys = [line.split()[0] for line in cli("table").out.splitlines()]
    assert [key for key in keys if key.startswith("sun2023")] == [f"sun2023-{n}" for n in (1, 2, 3, 4)]
    assert cli("table", "--list").out == cli("table").out
    assert keys == sorted(keys)
    assert "Did you mean 'sun2023-1'" in cli("table", "sun2023_1").err


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "html", "json"])
@pytest.mark.parametrize("table", ["sun2023-1", "sun2023-3"])
def test_rows_that_the_paper_has_not_are_not_called_its_table(table, form, cli):
    title = "Measured here, on Fashion-MNIST, which the paper has not: methods of sun2023"
    assert title in cli("table", table, "--dataset", "fashion_mnist", "--format", form).out
    assert title not in cli("table", table, "--format", form).out


@pytest.mark.parametrize("table", [TABLE_1, TABLE_3])
def test_rows_that_the_paper_has_not_have_no_line_of_the_papers(table):
    entries = grid(table, table.lines(dataset="fashion_mnist")).entries
    assert {tuple(row[2] for row in entry) for entry in entries} == {("here",)}
    assert all(entry[0][0] == "Fashion-MNIST" and entry[0][1] for entry in entries)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("table", "sun2023"),
            "Did you mean 'sun2023-1', 'sun2023-2', 'sun2023-3' or 'sun2023-4'? `fairbench",
        ),
        (("table", "sun2023-9"), "'sun2023-3' or 'sun2023-4'? `fairbench table` lists them."),
        (("table", "refrl2022-1"), "refrl2022-1 is a figure, not a table: fairbench figure refrl2022-1."),
        (("figure", "sun2023-1"), "sun2023-1 is a table, not a figure: fairbench table sun2023-1."),
        (("figure", "sun2023"), "Did you mean 'sun2023-2' or 'sun2023-4'? `fairbench figure` lists them."),
        (("paper", "sun2023-1"), "sun2023-1 is a table, not a paper: fairbench table sun2023-1."),
    ],
)
def test_a_key_of_another_kind_or_a_beginning_is_told_what_there_is(command, said, cli):
    ran = cli(*command)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_every_number_the_papers_print_is_carried_unaltered(shared):
    theirs = {path.name: path.read_bytes() for path in (shared / "published").glob("*.csv")}
    assert theirs == {path.name: path.read_bytes() for path in published_folder().glob("*.csv")}


def test_a_row_that_pgd_is_misled_on_has_a_footnote():
    lines = {line.names[-1]: line.footnote for line in TABLE_3.lines(None, "CIFAR-10")}
    assert lines["FAT"] == ""
    assert lines["GAIRAT"] == (
        "CIFAR-10, GAIRAT, here: CW-20 breaks 9.8 points more of 1,000 examples than PGD-20, whose figures mislead."
    )
    found = ranked(TABLE_3, "cifar10")
    assert lines["GAIRAT"] in found.as_text()
    assert found.to_dict()["footnotes"] == [lines["GAIRAT"]]
    assert found.ranks["GAIRAT"]["worst_rob"].here == found.ranks["FAT"]["worst_rob"].here == (1, 2)
    assert found.ranks["FAT"]["avg_std"].here == (1, 1)
