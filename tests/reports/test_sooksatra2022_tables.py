"""The tables of sooksatra2022: as printed, beside what is kept."""

from pathlib import Path

import pandas as pd
import pytest

from fairbench.leaderboard.luf import luf_folder, read_luf
from fairbench.leaderboard.results import published_folder, read_result
from fairbench.metrics import summarize
from fairbench.metrics.curves import success_curves
from fairbench.metrics.eou import eou, eou_difference
from fairbench.metrics.luf import difference
from fairbench.reports.sooksatra2022_tables import TABLE_1, TABLE_2, TABLE_4, TABLE_5, TRANSFER, WHITE_BOX
from fairbench.reports.table_formats import render, value_text
from fairbench.reports.values import measured, rate, signed

TABLES = [TABLE_1, TABLE_2, TABLE_4, TABLE_5]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.key)
def test_every_printed_number_is_there_once(table, tmp_path):
    number = table.key[-1]
    frame = pd.read_csv(published_folder() / f"sooksatra2022_table{number}.csv")
    column = frame.columns[-1]
    printed = [v for line in table.lines(tmp_path) if line.names[-1] != "EOU" for v in line.printed.values()]
    assert sorted(printed) == sorted(frame[column])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.key)
def test_without_results_nothing_is_measured_and_what_is_missing_is_named(table, tmp_path):
    lines = table.lines(tmp_path)
    assert all(not line.measured and line.missing for line in lines)
    assert "Not measured yet as this table needs it: standard_" in render(table, lines, "text")
    values = [v for row in table.to_dict(lines)["rows"] for of in row["measured"].values() for v in of.values()]
    assert set(values) == {None}


@pytest.mark.usefixtures("measured_once")
def test_success_rates_are_read_twice():
    robust = next(line for line in TABLE_2.lines() if line.names == ("robust", "15"))
    name = "static_augmentation_mlp_adult.sooksatra2022.epsilon-15"
    for reading, result in ((WHITE_BOX, name), (TRANSFER, f"{name}.transfer-standard_mlp_adult")):
        found = summarize(read_result(result)).attacks["pgd20"]
        assert robust.measured[reading]["cru_s"] == (found.cru_s, found.intervals["cru_s"])
    assert robust.printed == {"cru_s": 23.38}


@pytest.mark.usefixtures("measured_once")
def test_confidences_are_those_of_the_kept_table():
    lines = {line.names: line for line in TABLE_5.lines()}
    found = eou(read_result("standard_mlp_adult.sooksatra2022"), "race")
    asian = found.groups[(found.groups["label"] == "<=50K") & (found.groups["group"] == "Asian-Pac-Islander")].iloc[0]
    assert lines["standard", "D_0", "Asian"].measured["here"]["mean_confidence"].value == asian["mean"]
    assert lines["standard", "D_1", "EOU"].measured["here"]["mean_confidence"].value == found.labels["eou"].iloc[1]
    assert lines["standard", "D_1", "EOU"].printed["mean_confidence"] == pytest.approx(0.706 - 0.639)
    assert lines["standard", "D_1", "Indian american"].remark == "fewer than 20 examples"


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize("format", ["text", "markdown", "latex", "csv", "html", "json"])
def test_the_command_prints_every_format(cli, format):
    ran = cli("table", "sooksatra2022-4", "--format", format)
    assert (ran.code, ran.err) == (0, "")
    assert "0.717" in ran.out


def test_the_options_of_other_tables_are_refused(cli):
    for option, message in ((["--ranks"], "leave --ranks out"), (["--dataset", "adult"], "leave --dataset out")):
        ran = cli("table", "sooksatra2022-2", *option)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert message in ran.err


@pytest.mark.parametrize(
    ("dataset", "robust", "words"),
    [
        ("digits", "pgd_at", "All {flips} flips of `standard` are in {flipped} of the test"),
        ("cifar10", "static_augmentation", "{flipped:,} of the 10,000 test images"),
    ],
)
def test_the_docs_page_on_leave_one_out_quotes_what_is_kept(dataset, robust, words):
    page = (Path(__file__).parents[2] / "docs" / "luf.md").read_text()
    kept = [read_luf(luf_folder() / f"{method}_small_cnn_{dataset}.json") for method in ("standard", robust)]
    found, tables = [one for one, _, _ in kept], [table for _, table, _ in kept]
    left, n = found[0].left_out, found[0].n
    titles = {"luf_mean": "LUF_mean", "luf_t": f"LUF_t, of {left} models", "luf_l": f"LUF_l, of {n:,} test images"}
    for key, title in titles.items():
        digits = 4 if key == "luf_mean" else 2
        cells = [measured(getattr(one, key), one.intervals[key], digits) for one in found]
        cells.append(signed(difference(*tables, left)[key], digits))
        assert f"| {title} | {' | '.join(cells)} |" in page
    flips = tables[0]["flips"]
    assert words.format(flips=flips.sum(), flipped=(flips > 0).sum()) in page


@pytest.mark.usefixtures("measured_once")
def test_the_docs_page_quotes_what_is_kept():
    page = (Path(__file__).parents[2] / "docs" / "tabular.md").read_text(encoding="utf-8")

    def cell(table, line, reading):
        (column,) = table.columns
        found = line.cell(reading, column.key)
        return line.remark if found is None else value_text(found, column, line)

    for line in TABLE_2.lines():
        paper = line.printed.get("cru_s")
        if line.names[0] == "robust":
            cells = [cell(TABLE_2, line, reading) for reading in (WHITE_BOX, TRANSFER)]
            assert f"| robust | {line.names[1]} | {paper:.2f} | {' | '.join(cells)} |" in page
        elif line.names[0] == "standard":
            assert f"| standard | {line.names[1]} | {paper:.2f} | {cell(TABLE_2, line, WHITE_BOX)} | |" in page
    for table in (TABLE_4, TABLE_5):
        for line in table.lines():
            if line.names[2] == "EOU":
                assert cell(table, line, "here") in page
    accuracies = {
        "standard_mlp_adult.sooksatra2022": ("79.31", "12.54"),
        "static_augmentation_mlp_adult.sooksatra2022": ("81.07", "6.59"),
        "static_augmentation_mlp_adult.sooksatra2022.transfer-standard_mlp_adult": ("81.07", "94.14"),
        "pgd_at_mlp_adult.sooksatra2022": ("76.51", "73.19"),
    }
    for name, quoted in accuracies.items():
        found = summarize(read_result(name)).attacks["pgd20"]
        assert (f"{100 - found.avg_std:.2f}", f"{100 - found.avg_rob:.2f}") == quoted
        assert all(number in page for number in quoted)
    tables = [read_result(f"{name}_mlp_adult.sooksatra2022") for name in ("standard", "static_augmentation", "pgd_at")]
    for attribute in ("sex", "race"):
        found = [eou_difference(tables[0], other, attribute).set_index("label") for other in tables[1:]]
        for label in ("<=50K", ">50K"):
            cells = ["{difference:+.3f} [{low:+.3f}, {high:+.3f}]".format(**rows.loc[label]) for rows in found]
            assert f"| {attribute}, {label} | {' | '.join(cells)} |" in page
    name = "standard_mlp_adult.sooksatra2022.attacks-pgd20-autoattack.in_range-True.protect-categorical"
    narrow = summarize(read_result(name)).attacks
    pgd, auto = (rate(narrow[a].avg_rob, narrow[a].intervals["avg_rob"]) for a in ("pgd20", "autoattack"))
    value, _, interval = pgd.partition(" ")
    assert f"{value} % {interval} with `--protect categorical --in-range`" in page
    value, _, interval = auto.partition(" ")
    assert f"(AutoAttack: 100 % and {value} % {interval})" in page
    for name, label in (("standard", "standard"), ("static_augmentation",) * 2, ("pgd_at", "PGD-AT")):
        last = summarize(read_result(f"{name}_mlp_adult.sooksatra2022")).attacks["pgd20"]
        kept = read_result(f"{name}_mlp_adult.sooksatra2022.attacks-least-epsilon.max_epsilon-20.resolution-5")
        (broken,) = success_curves(kept, "least-epsilon", [10.0]).overall.to_dict("records")
        kept = read_result(f"{name}_mlp_adult.sooksatra2022.attacks-pgd20-autoattack")
        strong = summarize(kept).attacks["autoattack"]
        cells = (
            rate(last.avg_rob, last.intervals["avg_rob"]),
            rate(broken["average"], (broken["average_low"], broken["average_high"])),
            rate(strong.avg_rob, strong.intervals["avg_rob"]),
        )
        assert f"| {label} | {' | '.join(cells)} |" in page


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize(("label", "printed"), [("D_0", 0.094), ("D_1", 0.121)])
def test_the_printed_and_the_measured_eou_are_of_the_same_groups(label, printed):
    """Of "Indian american", 0.640 printed for D_1, there are fewer than 20 examples: without it, 0.763 less 0.642."""
    (line,) = (line for line in TABLE_5.lines() if line.names == ("robust", label, "EOU"))
    assert line.printed["mean_confidence"] == pytest.approx(printed, abs=5e-4)
    assert "of the groups that are measured here" in line.footnote
    assert sum("computed here" in note for note in TABLE_5.all_notes(TABLE_5.lines())) == 1
