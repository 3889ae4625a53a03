"""The claims of refrl2022 on tables computed by hand, their verdicts, and what is said where a result is missing."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.leaderboard.results import write_result
from fairbench.metrics.ranks import spearman
from fairbench.reports import claims, refrl2022
from fairbench.reports.claims import FAILS, HOLDS, MISSING, OPEN, Group, Reading, Row, group_verdict, verdict
from fairbench.reports.readings import average, class_worst_before
from fairbench.reports.refrl2022 import (
    AS_PUBLISHED,
    AT,
    PAPER,
    PUBLIC_AT,
    PUBLIC_STANDARD,
    REMARGIN,
    REWEIGHT,
    STANDARD,
    explains,
    measure,
    result_of,
)
from fairbench.reports.values import signed

CLASSES = ("bag", "coat", "shirt", "shoe")
ERRORS = {
    STANDARD: ((2, 10, 30, 4), (90, 96, 100, 92)),
    AT: ((3, 16, 48, 5), (20, 50, 80, 30)),
    REWEIGHT: ((6, 20, 36, 8), (24, 54, 72, 34)),
    REMARGIN: ((3, 16, 44, 5), (22, 48, 70, 28)),
    AS_PUBLISHED: ((4, 17, 45, 6), (40, 60, 80, 50)),
    PUBLIC_STANDARD: ((2, 10, 30, 4), (90, 96, 100, 92)),
    PUBLIC_AT: ((3, 16, 48, 5), (20, 50, 80, 30)),
}
"""Standard and robust error of each class in percent, by model."""

N = 200


def outcomes(model, radius="16/255", errors=None):
    """200 images a class; a model that errs on s % of a class errs on its first ones."""
    label = np.repeat(range(4), N)
    place = np.tile(np.arange(N), 4)
    std, rob = (np.repeat(np.array(e) * N // 100, N) for e in errors or ERRORS[model])
    frame = pd.DataFrame({"index": range(4 * N), "label": label})
    frame["clean_pred"] = np.where(place < std, (label + 1) % 4, label)
    frame["pgd20_pred"] = np.where(place < rob, (label + 1) % 4, label)
    epsilon = 16 / 255 if radius == "16/255" else 8 / 255
    manifest = {
        "format": 1,
        "run": f"{model} {radius}",
        "model": {"name": model},
        "dataset": {"name": "fashion_mnist", "classes": list(CLASSES)},
        "protocol": {"name": "standard", "seed": 0, "modified": {"epsilon": epsilon} if radius == "16/255" else {}},
        "attacks": {"pgd20": {"epsilon": epsilon}},
    }
    return Outcomes(frame, manifest)


def results(without=()):
    made = {result_of(m, r): outcomes(m, r) for m, r in itertools.product(refrl2022.MODELS, refrl2022.RADII)}
    return {name: table for name, table in made.items() if name not in without}


@pytest.fixture(scope="module")
def measured():
    return measure(results())


def readings(claim, group=0, radius="16/255"):
    return {row.measure: row.readings[radius] for row in claim.groups[group].rows}


def test_claim_1_the_errors_become_unequal(measured):
    for group in (0, 1):
        cau, beside, gap, spread, extent = readings(measured[0], group).values()
        assert cau.text.startswith("0.280 to 0.450: +0.170 [")
        assert beside.text.startswith("28.0 to 60.0: +32.0 [")
        assert gap.text.startswith("10.0 to 60.0: +50.0 [")
        assert spread.text.startswith("3.8 to 22.9: +19.1 ["), "root of 59 / 4, root of 2100 / 4"
        assert [r.verdict for r in (cau, beside, gap, spread)] == [HOLDS] * 4
        assert (extent.text, extent.verdict) == ("90.0 to 100.0", None)
        assert spread.value == pytest.approx(np.sqrt(525) - np.sqrt(14.75))
        for reading in (cau, beside, gap, spread):
            assert reading.interval[0] < reading.value < reading.interval[1]


def test_claim_1_is_refuted_by_errors_that_become_more_equal():
    turned = {**results(), result_of(STANDARD, "16/255"): outcomes(AT), result_of(AT, "16/255"): outcomes(STANDARD)}
    cau, _, gap, spread, _ = readings(measure(turned)[0]).values()
    assert [r.verdict for r in (cau, gap, spread)] == [FAILS] * 3
    assert cau.text.startswith("0.450 to 0.280: -0.170 [")


def test_claim_2_the_worst_stay_worst(measured):
    for group in (0, 1):
        same, robust, increase = readings(measured[1], group).values()
        assert same.text == "shirt, shirt, shirt; the same in 100.0 % of draws"
        assert robust.value == pytest.approx(1), "both are in the order bag, shoe, coat, shirt"
        assert increase.value == pytest.approx(4.5 / np.sqrt(5 * 4.5)), "increases of 1, 6, 18, 1: ranks 1.5, 3, 4, 1.5"
        assert [r.verdict for r in (same, robust, increase)] == [HOLDS] * 3


@pytest.mark.parametrize(
    ("after", "text", "expected"),
    [
        ((3, 48, 16, 5), "shirt, coat, shirt; the same in 0.0 % of draws", FAILS),
        ((3, 30, 30, 5), "shirt, coat and 1 more, shirt; the same in ", OPEN),
    ],
)
def test_claim_2_another_worst_class(after, text, expected):
    changed = outcomes(AT, errors=(after, ERRORS[AT][1]))
    same = next(iter(readings(measure({**results(), result_of(AT, "16/255"): changed})[1]).values()))
    assert same.text.startswith(text)
    assert same.verdict == expected


def test_claim_3_reweighting(measured):
    found = readings(measured[2])
    assert list(found) == [
        "worst standard error",
        "standard error of the class worst before",
        "worst robust error",
        "robust error of the class worst before",
        "CAU, the largest gap of the standard error",
        "largest gap of the robust error, points",
    ]
    std, std_same, rob, _, cau, gap = found.values()
    assert cau.text.startswith("0.450 to 0.300: -0.150 ["), "48 less 3, 36 less 6"
    assert gap.text.startswith("60.0 to 48.0: -12.0 [")
    assert std.text.startswith("48.0 (shirt) to 36.0 (shirt): -25.0 % [")
    assert std.value == pytest.approx(-25)
    assert rob.text.startswith("80.0 (shirt) to 72.0 (shirt): -10.0 % [")
    assert std_same == std, "the worst class is the same one"
    assert {r.verdict for r in found.values()} == {HOLDS}
    assert (std.remark, rob.remark) == ("25 % is in the interval", "11 % is in the interval")
    reports = [row.report for row in measured[2].groups[0].rows]
    assert reports == ["25 % lower"] * 2 + ["11 % lower"] * 2 + ["lower", "lower, less"]


def test_claim_3_says_on_which_side_the_published_number_lies():
    claim = refrl2022.reweighting(results(), {"std": 60, "rob": 1})
    remarks = [reading.remark for reading in readings(claim).values()]
    assert remarks[0] == "60 % is not in the interval: less here"
    assert remarks[2] == "1 % is not in the interval: more here"


def test_claim_3_tells_the_worst_class_from_the_class_that_was_worst():
    changed = outcomes(REWEIGHT, errors=((6, 40, 12, 8), ERRORS[REWEIGHT][1]))
    std, std_same, *_ = readings(measure({**results(), result_of(REWEIGHT, "16/255"): changed})[2]).values()
    assert std.text.startswith("48.0 (shirt) to 40.0 (coat): -16.7 % [")
    assert std_same.text.startswith("48.0 (shirt) to 12.0 (shirt): -75.0 % [")


def test_claim_4_remargining_with_right_and_with_mixed_labels(measured):
    std, rob, avg, most, spread = readings(measured[3], 0).values()
    assert std.text.startswith("48.0 (shirt) to 44.0 (shirt): -8.3 % [")
    assert rob.text.startswith("80.0 (shirt) to 70.0 (shirt): -12.5 % [")
    assert avg.text.startswith("45.0 to 42.0: -6.7 % ["), "(20 + 50 + 80 + 30) / 4 and (22 + 48 + 70 + 28) / 4"
    assert [r.verdict for r in (std, rob, avg, most, spread)] == [HOLDS, FAILS, FAILS, FAILS, HOLDS]
    assert rob.remark == "lower, as in `xu2021`: holds"
    assert most.text == "1 of 4; more than half in 0.0 % of draws"

    std, rob, avg, most, _ = readings(measured[3], 1).values()
    assert std.value == pytest.approx(-6.25)
    assert rob.text == "80.0 (shirt) to 80.0 (shirt): +0.0 % [+0.0, +0.0]"
    assert avg.text.startswith("45.0 to 57.5: +27.8 % [")
    assert [r.verdict for r in (std, rob, avg, most)] == [HOLDS] * 4
    assert rob.remark == "lower, as in `xu2021`: not decided"
    assert most.text == "3 of 4; more than half in 100.0 % of draws"


def test_claim_4_the_mix_up_explains_what_only_it_shows(measured):
    std, rob, avg = readings(measured[3], 2).values()
    assert std.text.startswith("44.0 (shirt) to 45.0 (shirt): +1.0 [")
    assert rob.text.startswith("70.0 (shirt) to 80.0 (shirt): +10.0 [")
    assert avg.text.startswith("42.0 to 57.5: +15.5 [")
    assert std.verdict is None
    assert [(r.verdict, r.remark) for r in (rob, avg)] == [(HOLDS, "found with mixed labels only")] * 2


@pytest.mark.parametrize(
    ("with_right", "with_mixed", "interval", "expected", "why"),
    [
        (False, True, (1, 3), HOLDS, "mixed labels only"),
        (True, True, (1, 3), FAILS, "right labels too, but less"),
        (False, True, (-1, 3), OPEN, "not told apart"),
        (True, True, (-1, 3), OPEN, "not told apart"),
        (True, True, (-3, -1), FAILS, "right labels do worse"),
        (False, False, (1, 3), FAILS, "nothing to explain"),
        (True, False, (-3, -1), FAILS, "nothing to explain"),
    ],
)
def test_whether_the_mix_up_explains_it(with_right, with_mixed, interval, expected, why):
    found, remark = explains(with_right, with_mixed, interval)
    assert found == expected
    assert why in remark


@pytest.mark.parametrize(
    ("interval", "boundary", "expected"),
    [
        ((0.1, 2.0), 0, HOLDS),
        ((0.0, 2.0), 0, OPEN),
        ((-1.0, 2.0), 0, OPEN),
        ((-2.0, 0.0), 0, OPEN),
        ((-2.0, -0.1), 0, FAILS),
        ((-4.0, -3.0), -5, HOLDS),
        ((-6.0, -4.0), -5, OPEN),
        ((np.nan, np.nan), 0, OPEN),
    ],
)
def test_the_interval_decides(interval, boundary, expected):
    assert verdict(interval, above=True, boundary=boundary) == expected
    turned = {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}[expected]
    assert verdict(interval, above=False, boundary=boundary) == turned


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([HOLDS, None, HOLDS], "holds"),
        ([FAILS, FAILS], "does not hold"),
        ([OPEN], "not decided"),
        ([MISSING, MISSING], "not measured"),
        ([HOLDS, FAILS, OPEN], "in part: 1 holds, 1 does not hold, 1 not decided"),
        ([HOLDS, HOLDS, FAILS, FAILS], "in part: 2 hold, 2 do not hold"),
        ([FAILS, OPEN], "1 does not hold, 1 not decided"),
        ([None], "-"),
    ],
)
def test_a_group_has_the_verdict_its_measures_share(verdicts, expected):
    rows = tuple(Row("m", "", {"8/255": Reading("", v)}) for v in verdicts)
    assert group_verdict(Group("g", (), rows), "8/255") == expected


def test_models_that_do_not_differ_decide_nothing():
    same = {name: outcomes(AT, "8/255" if name.endswith("standard") else "16/255") for name in PAPER.results}
    first, _, third, fourth = measure(same)
    for row in (*first.groups[0].rows[:1], *first.groups[0].rows[2:4], *third.groups[0].rows, fourth.groups[0].rows[2]):
        for reading in row.readings.values():
            assert (reading.value, reading.interval, reading.verdict) == (0, (0, 0), OPEN)


def test_the_radius_does_not_matter_to_standard_errors():
    changed = {**results(), result_of(AT, "8/255"): outcomes(AT, "8/255", (ERRORS[AT][0], (5, 20, 60, 9)))}
    first, second, third, _ = measure(changed)
    for claim, row in ((first, 0), (second, 2), (third, 0)):
        readings = claim.groups[0].rows[row].readings
        assert readings["16/255"] == readings["8/255"]
    gap = first.groups[0].rows[2].readings
    assert gap["16/255"] != gap["8/255"]


def test_a_missing_result_is_named_and_the_rest_is_measured(measured):
    absent = result_of(REWEIGHT, "16/255")
    found = measure(results(without=[absent]))
    assert {(r.text, r.verdict) for r in readings(found[2]).values()} == {(f"not measured: {absent}", MISSING)}
    assert readings(found[2], radius="8/255") == readings(measured[2], radius="8/255")
    assert (found[0], found[1], found[3]) == (measured[0], measured[1], measured[3])


def test_every_result_can_be_missing():
    nothing = measure({})
    texts = [r.text for c in nothing for g in c.groups for row in g.rows for r in row.readings.values()]
    assert all(text.startswith("not measured: ") for text in texts)
    explained = nothing[3].groups[2].rows[0].readings["8/255"].text
    assert explained == f"not measured: {AT}.standard, {REMARGIN}.standard, {AS_PUBLISHED}.standard"


def test_other_images_are_refused():
    small = outcomes(AT)
    small = Outcomes(small.frame.iloc[:-1], small.manifest)
    with pytest.raises(OutcomesError, match="not evaluated on the same examples"):
        measure({**results(), result_of(AT, "16/255"): small})


def test_an_error_of_zero_cannot_fall():
    nothing = ((0, 0, 0, 0), ERRORS[AT][1])
    changed = {**results(), result_of(AT, "16/255"): outcomes(AT, errors=nothing)}
    std, *_ = readings(measure(changed)[2]).values()
    assert (std.text, std.verdict, std.remark) == ("0.0 (bag and 3 more) to 36.0 (shirt): n/a", OPEN, "")
    document = json.dumps(claims.to_dict(PAPER, measure(changed), []), allow_nan=False)
    assert "null" in document


def test_classes_without_an_example_are_left_out():
    whole = results()
    cut = {n: Outcomes(t.frame[t.frame["label"] != 0], t.manifest) for n, t in whole.items()}
    first, second, third, fourth = measure(cut)
    assert readings(first)["CAU, the largest gap of the standard error"].text.startswith("0.260 to 0.430: +0.170")
    assert next(r.verdict for r in readings(second).values()) == HOLDS
    assert next(iter(readings(third).values())).value == pytest.approx(-25)
    assert readings(fourth)["average robust error"].text.startswith("53.3 to 48.7: ")
    assert readings(fourth)["classes with a higher robust error"].text.startswith("0 of 3; ")


def test_an_average_counts_images_not_classes():
    a, b = outcomes(AT), outcomes(REMARGIN)
    keep = (a.frame["label"] != 0) | (a.frame["index"] < 100)
    pair = refrl2022.Pair.of(*(Outcomes(o.frame[keep], o.manifest) for o in (a, b)))
    statistic, _ = average(pair, "rob")
    (rob,) = pair.rates("rob_a")
    assert statistic(rob) == pytest.approx(100 * (40 + 100 + 160 + 60) / 700), "40 of the 100 bags kept are broken"
    statistic, name = class_worst_before(pair, "rob")
    assert (statistic(rob), name(rob)) == (pytest.approx(80), " (shirt)")


def test_spearman_knows_ties_constants_and_unknown_values():
    x, y = np.array([1.0, 2.0, 3.0, np.nan]), np.array([9.0, 9.0, 1.0, 5.0])
    assert spearman(x, y) == pytest.approx(-np.sqrt(3) / 2)
    assert np.isnan(spearman(x, np.ones(4)))
    assert spearman(np.stack([x, x]), np.stack([y, -y])) == pytest.approx([-np.sqrt(3) / 2, np.sqrt(3) / 2])


def test_a_number_too_small_to_see_has_no_minus_sign():
    from fairbench.metrics.paired import Estimate

    assert signed(Estimate(-0.001, (-0.02, 1.0)), 1, " %") == "+0.0 % [+0.0, +1.0]"


def test_markdown_has_an_overview_and_a_table_for_each_group(measured):
    text = claims.as_markdown(PAPER, measured)
    assert text.startswith(
        "<!-- claims -->\n\n| claim | measured on | at 16/255 | at 8/255 |\n|---|---|---|---|\n| 1. "
    )
    assert text.endswith("<!-- /claims -->")
    assert text.count("\n| measure | the paper | at 16/255 | verdict | at 8/255 | verdict |\n") == 8
    assert len(re.findall(r"^### [1-4]\. ", text, re.MULTILINE)) == 4
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "holds; 25 % is in the interval |" in text


def test_text_fits_a_terminal_and_gives_a_verdict_for_each_group(measured):
    text = claims.as_text(PAPER, measured)
    assert text.count("\n     verdict: at 16/255 ") == 8
    assert "\n       16/255  48.0 (shirt) to 36.0 (shirt): -25.0 % [" in text
    assert "\n        8/255  48.0 (shirt) to 36.0 (shirt): -25.0 % [" in text
    assert text.startswith("refrl2022: ")


def test_plain_data_has_every_number(measured):
    document = json.loads(json.dumps(claims.to_dict(PAPER, measured, ["x"]), allow_nan=False))
    assert (document["paper"], document["missing"], document["draws"]) == ("refrl2022", ["x"], 1000)
    row = document["claims"][2]["groups"][0]["rows"][0]
    reading = row["readings"]["16/255"]
    assert (row["report"], reading["value"], reading["verdict"]) == ("25 % lower", pytest.approx(-25), HOLDS)
    assert reading["interval"][0] < -25 < reading["interval"][1]


def test_kept_results_are_read_by_name(tmp_path):
    write_result(outcomes(AT), tmp_path)
    write_result(outcomes(AT, "8/255"), tmp_path)
    write_result(outcomes("another model", errors=ERRORS[AT]), tmp_path)
    assert sorted(claims.read_results(PAPER, tmp_path)) == [f"{AT}.standard", f"{AT}.standard.epsilon-16-255"]


def test_figures_are_drawn_from_the_results_there_are(tmp_path):
    drawn = PAPER.draw(results(), tmp_path / "new" / "a")
    assert [path.name for path in drawn] == ["refrl2022_1.png", "refrl2022_2.png", "refrl2022_3.png"]
    sizes = []
    for path in drawn:
        with Image.open(path) as image:
            sizes.append(image.size)
    assert sizes[0] == sizes[1]
    assert sizes[2][0] > sizes[0][0], "a third panel"
    some = PAPER.draw(results(without=[result_of(REMARGIN, "16/255")]), tmp_path / "b")
    assert [path.name for path in some] == ["refrl2022_1.png", "refrl2022_2.png"]
    assert some[0].read_bytes() == drawn[0].read_bytes()
