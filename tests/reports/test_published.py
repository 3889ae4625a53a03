"""The tables of sun2023 beside results made by hand, and its observations on them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes, summarize
from fairbench.errors import OutcomesError
from fairbench.leaderboard.results import published_folder, write_result
from fairbench.reports import claims, published, sun2023
from fairbench.reports.published import METRICS, entries
from fairbench.reports.sun2023 import BAT, PAPER, PGD_AT, ROWS, TABLE_1, TABLE_2, TABLE_3, TRADES6

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


@pytest.mark.parametrize("table", [TABLE_1, TABLE_2, TABLE_3], ids=lambda table: table.key)
def test_every_printed_number_is_there_as_printed(table, kept):
    printed = pd.read_csv(published_folder() / table.file, dtype=str)
    rows = entries(table, folder=kept)
    assert len(rows) == len(printed)
    for entry, line in zip(rows, printed.to_dict("records"), strict=True):
        assert [f"{entry.printed[metric]:.2f}" for metric in METRICS] == [line[metric] for metric in METRICS]
        assert entry.title == ", ".join(line[label] for label in ("dataset", *table.labels) if label in line)


def test_the_measured_half_is_that_of_the_kept_result_and_empty_without_one(kept, results):
    rows = {entry.name: entry for entry in entries(TABLE_1, "CIFAR-10", kept)}
    assert list(rows) == [name for name in ROWS if name not in ("FAT", "GAIRAT")]
    assert rows["BAT"].measured.worst_rob == 72
    assert rows["BAT"].measured.worst_rob_class == "cat"
    assert rows["TRADES(1/λ=1)"].measured is None
    text = published.as_markdown(TABLE_1, list(rows.values()))
    found = summarize(results[f"{BAT}.standard"]).attacks["pgd20"]
    low, high = found.intervals["worst_rob"]
    (line,) = [line for line in text.splitlines() if line.startswith("| BAT")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:7] == ["12.91", "25.90", "31.57", "44.40", "44.48", "70.30"]
    assert cells[7] == "18.75 [15.2, 22.9]"
    assert cells[12] == f"72.00 [{low:.1f}, {high:.1f}]"
    (line,) = [line for line in text.splitlines() if line.startswith("| TRADES(1/λ=1)")]
    assert [cell.strip() for cell in line.strip("|").split("|")][7:] == [""] * 6
    assert "Not measured yet: trades1_resnet18, frl005_resnet18, frl007_resnet18." in text


def test_rows_whose_averages_do_not_add_up_have_a_footnote(kept):
    notes = [entry.footnote for table in (TABLE_1, TABLE_2, TABLE_3) for entry in entries(table, folder=kept)]
    assert [note for note in notes if note] == [
        "CIFAR-100, FRL(Reweight+Remargin, 0.05): as printed; Avg. Std. + Avg. Bndy. is 72.20, 1.48 off the printed "
        "Avg. Rob.",
        "CIFAR-100, BAT: as printed; Avg. Std. + Avg. Bndy. is 68.93, 2.00 off the printed Avg. Rob.",
        "1, boundary pair, none: as printed; Avg. Std. + Avg. Bndy. is 46.90, 1.00 off the printed Avg. Rob.",
    ]


def test_latex_has_two_halves_and_escapes_what_it_must(kept):
    text = published.as_latex(TABLE_1, entries(TABLE_1, folder=kept))
    assert r"\multicolumn{6}{c}{published} & \multicolumn{6}{c}{measured}" in text
    assert r"TRADES(1/$\lambda$=6) & 15.79 & 36.30 & 31.60 & 45.60 & 47.39 & 73.80 & 24.50 [20.5, 28.9]" in text
    assert all(line.count("&") == 12 for line in text.splitlines() if line.startswith("CIFAR"))


def test_ranks_are_among_the_methods_that_were_measured(kept):
    text = published.ranks(entries(TABLE_1, "CIFAR-10", kept))
    cells = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]] for line in text.splitlines()[2:]}
    assert list(cells) == ["PGD-AT", "TRADES(1/λ=6)", "BAT"]
    assert [row[0] for row in cells.values()] == ["2 / 2", "3 / 3", "1 / 1"]  # Avg. Std.
    assert [row[5] for row in cells.values()] == ["3 / 3", "2 / 2", "1 / 1"]  # Worst Rob.


def test_an_unknown_dataset_names_those_of_the_table(kept):
    with pytest.raises(OutcomesError, match="Did you mean 'imagenette'"):
        entries(TABLE_1, "imagenet", kept)
    assert [e.name for e in entries(TABLE_1, "cifar100", kept)] == [e.name for e in entries(TABLE_1, "CIFAR-10", kept)]


def test_observations_have_the_papers_numbers_and_a_paired_test(results):
    gains, frl, trades, balance = PAPER.measure(results)
    against = {group.title: group for group in gains.groups}["BAT against PGD-AT"]
    robust = {row.measure: row for row in against.rows}["Worst Rob."]
    assert robust.report == "81.20 to 70.30: -10.90"
    assert robust.readings["8/255"].text.startswith("90.0 (cat) to 72.0 (cat): -18.0 [")
    assert robust.readings["8/255"].verdict == claims.HOLDS
    boundary = {row.measure: row for row in against.rows}["Worst Bndy."]
    assert boundary.readings["8/255"].text.startswith("50.0 (cat) to 42.0 (cat): -8.0 [")
    assert all(
        row.readings["8/255"].verdict == claims.MISSING for row in (*frl.groups[0].rows, *balance.groups[0].rows)
    )
    assert claims.group_verdict(trades.groups[0], "8/255") == claims.MISSING


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


@pytest.mark.parametrize("table", [TABLE_1, TABLE_2, TABLE_3], ids=lambda table: table.key)
def test_the_page_is_what_printed_rows_and_kept_results_give(table):
    page = (Path(__file__).parents[2] / "docs" / "sun2023.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- table {table.key} -->\n(.*)<!-- /table {table.key} -->", page, flags=re.DOTALL)
    assert found[1].strip() == published.as_markdown(table, entries(table, "CIFAR-10")), (
        f"replace the block in docs/sun2023.md by what this prints: fairbench table {table.key} --format markdown"
    )


@pytest.mark.parametrize("table", ["sun2023-1", "sun2023-2", "sun2023-3"])
def test_the_command_prints_a_table_in_every_form(table, cli):
    for form in ("text", "markdown", "latex"):
        ran = cli("table", table, "--format", form)
        assert ran.code == 0
        assert "Worst Rob." in ran.out
    document = json.loads(cli("table", table, "--format", "json").out)
    assert {"published", "measured", "footnote"} <= document["rows"][0].keys()


def test_the_command_lists_the_tables_and_suggests_one(cli):
    keys = [line.split()[0] for line in cli("table").out.splitlines()]
    assert [key for key in keys if key.startswith("sun2023")] == ["sun2023-1", "sun2023-2", "sun2023-3"]
    assert keys == sorted(keys)
    assert "Did you mean 'sun2023-1'" in cli("table", "sun2023_1").err
