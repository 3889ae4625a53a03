"""The claims on unfairness beyond one epsilon, on tables computed by hand."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.reports import claims
from fairbench.reports.claims import FAILS, HOLDS, MEASURED, MISSING
from fairbench.reports.sooksatra2022 import PAPER, measure
from fairbench.reports.sooksatra2022_pairs import (
    BAT,
    CIFAR10,
    CIFAR10_STANDARD,
    PAIRS,
    PGD_AT,
    PUBLIC,
    PUBLIC_ROBUST,
    PUBLIC_STANDARD,
    STANDARD,
    sample,
    whole_split,
)

CLASSES = ("bag", "coat", "shirt", "shoe")
N = 100
CLEAN = {False: (2, 10, 30, 4), True: (2, 16, 50, 4)}
"""Standard error of each class in percent, of a standard and a robust model."""
LEVELS = {False: (14, 10, 6, 12), True: (40, 20, 6, 18)}
"""What all clean-correct images of a class need, in 1/255."""
STEPS = {False: (30, 20, 10, 25), True: (None, 20, 10, None)}


def outcomes(model):
    """100 images a class; a model errs on the first ones of each, and always takes the class before for it."""
    robust = model not in (STANDARD, PUBLIC_STANDARD, CIFAR10_STANDARD, "standard_mlp_adult")
    label = np.repeat(range(4), N)
    clean_wrong = np.tile(np.arange(N), 4) < np.repeat(CLEAN[robust], N)
    frame = pd.DataFrame({"index": range(4 * N), "label": label})
    wrong = np.where(label == 3, 2, np.maximum(label, 1) - 1)
    wrong = np.where(label == 0, 2, wrong)
    frame["clean_pred"] = np.where(clean_wrong, wrong, label)
    frame["pgd20_pred"] = frame["clean_pred"]
    steps = pd.array([STEPS[robust][c] for c in label], dtype="Int16")
    steps[clean_wrong] = 0
    frame["least-steps_broken_at"], frame["least-steps_censored"] = steps, steps.isna()
    frame["least-steps_pred"] = frame["pgd10_pred"] = np.where(steps.isna(), label, wrong)
    frame["least-epsilon_epsilon"] = np.where(clean_wrong, 0, np.repeat(LEVELS[robust], N) / 255)
    frame["least-epsilon_censored"] = False
    frame["least-epsilon_pred"] = wrong
    attacks = {"least-steps": {"steps": 1000}, "least-epsilon": {"epsilon": 64 / 255, "resolution": 1 / 255}}
    manifest = {
        "model": {"name": model},
        "dataset": {"name": "fashion_mnist", "classes": list(CLASSES)},
        "attacks": attacks,
    }
    return Outcomes(frame, manifest)


def results(without=()):
    made = {name: outcomes(name.partition(".")[0]) for pair in PAIRS.values() for name in pair.results}
    for radius in ("", ".epsilon-15", ".epsilon-20"):
        robust = [f"{model}_mlp_adult.sooksatra2022{radius}" for model in ("static_augmentation", "pgd_at")]
        names = [f"standard_mlp_adult.sooksatra2022{radius}", *robust]
        names += [f"{name}.transfer-standard_mlp_adult" for name in robust]
        made |= {name: outcomes(name.partition(".")[0]) for name in names}
    return {name: table for name, table in made.items() if name not in without}


@pytest.fixture(scope="module")
def measured():
    return measure(results())


def readings(claim, group=0):
    return {row.measure: row.readings[MEASURED] for row in claim.groups[group].rows}


def test_claim_1_the_gap_of_accuracies_grows(measured):
    (cau,) = readings(measured[0]).values()
    assert cau.text.startswith("0.280 to 0.480: +0.200 [")
    assert cau.verdict == HOLDS
    assert measured[0].groups[0].rows[0].report == "larger (0.286 to 0.344)"


def test_claim_2_the_gap_of_least_epsilons_grows(measured):
    gap, smallest, largest, share, withstanding = readings(measured[1]).values()
    counted = (np.array(LEVELS[r]) * (1 - np.array(CLEAN[r]) / 100) / 255 for r in (False, True))
    before, after = counted
    assert gap.value == pytest.approx(np.ptp(after) - np.ptp(before))
    assert gap.interval[0] < gap.value < gap.interval[1]
    assert (gap.verdict, smallest.verdict, share.verdict) == (HOLDS, None, None)
    assert smallest.value == pytest.approx(after.min() - before.min())
    assert largest.value == pytest.approx(after.max() - before.max())
    assert share.value == pytest.approx(np.ptp(after) / after.mean() - np.ptp(before) / before.mean())
    assert withstanding.text == "0 to 0 of 400"


def test_claim_2_says_how_many_images_withstand_the_largest_radius():
    tables = results()
    robust = tables[sample(PGD_AT)] = outcomes(PGD_AT)
    robust.frame.loc[:11, ["least-epsilon_epsilon", "least-epsilon_censored"]] = [np.nan, True]
    found = readings(measure(tables)[1])["images that withstand the largest radius"]
    assert (found.text, found.verdict) == ("0 to 12 of 400", None)


def test_claim_3_the_gap_of_success_rates_by_radius(measured):
    found = readings(measured[2])
    at_8 = found["CRU_s at 8/255, points"]
    assert at_8.text.startswith("98.0 to 98.0: +0.0 [")
    at_16 = found["CRU_s at 16/255, points"]
    assert (at_16.text[:14], at_16.verdict) == ("0.0 to 98.0: +", HOLDS)
    assert found["images broken, standard model, percent"].text.startswith("11.5 at 4/255, 29.0 at 8/255, ")


def test_claim_4_the_difference_of_these_gaps(measured):
    found = readings(measured[3])
    grows = found["robust less standard, 8/255 to 16/255"]
    assert (grows.text[:14], grows.verdict) == ("+0.0 to +98.0:", FAILS), "bags of the standard model break at 14/255"
    assert "12.42 at 0.01, 7.82 at 0.012, 5.85 at 0.014" in measured[3].report


def test_the_papers_own_network_is_read_at_its_radii(measured):
    assert [group.title for group in measured[2].groups[3:]] == [
        "CIFAR-10, the paper's robust model",
        "CIFAR-10, PGD-AT",
        "Adult, the paper's robust model",
        "Adult, PGD-AT",
    ]
    found = readings(measured[2], group=3)
    assert list(found)[1:4] == [f"CRU_s at {radius}, points" for radius in ("0.01", "0.012", "0.014")]
    assert found["CRU_s at 0.01, points"].text.startswith("28.0 to 48.0: +20.0 ["), "only clean errors, of shirts"
    assert found["CRU_s at 0.03, points"].text.startswith("98.0 to 98.0: +0.0 ["), "shirts break at 6/255"
    assert found["CRU_s at 0.01, all test images, transfer"].text.startswith("28.0 to 48.0: +20.0 ["), "PGD-20"
    assert found["CRU_s at 0.01, all test images, white-box"].verdict == HOLDS
    differences = readings(measured[3], group=4)
    assert "robust less standard, 0.012 to 0.014" in differences
    assert (
        differences["the same on all test images, transfer, 0.01 to 0.012"].text == "+20.0 to +20.0: +0.0 [+0.0, +0.0]"
    )


def test_the_difference_of_gaps_on_all_images_is_that_of_four_tables():
    pair = PAIRS["CIFAR-10, PGD-AT"]
    tables = results()
    larger = tables[pair.at("0.012", "white-box")[1]] = outcomes(pair.robust)
    larger.frame["pgd20_pred"] = 0  # bags alone are right, so every other class is broken whole
    found = readings(measure(tables)[3], group=4)
    expected = (100 - 0) - 28  # a gap of 100 minus the standard model's, whose bags err on 2 and shirts on 30
    assert found["the same on all test images, white-box, 0.01 to 0.012"].text.startswith(
        f"+20.0 to +{expected}.0: +52.0 ["
    )
    assert found["the same on all test images, white-box, 0.01 to 0.012"].verdict == FAILS
    assert found["the same on all test images, transfer, 0.01 to 0.012"].text.startswith("+20.0 to +20.0: +0.0")


def test_claim_4_holds_where_both_are_broken_whole():
    results_of = results()
    swapped = {**results_of, sample(STANDARD): results_of[sample(PGD_AT)], sample(PGD_AT): results_of[sample(STANDARD)]}
    assert readings(measure(swapped)[3])["robust less standard, 8/255 to 16/255"].verdict == HOLDS


def test_claim_5_steps_agree_with_robust_accuracy(measured):
    restricted, broken, withstand, most = readings(measured[4], group=1).values()
    assert restricted.verdict == HOLDS
    assert broken.verdict == FAILS, "the few broken ones of robust classes are clean errors"
    assert most.text == "20 of 1,000"
    assert withstand.text == f"{(98 + 96) / 4:.1f}"


def test_claim_6_targets(measured):
    variation, kl, most, correlation = readings(measured[5], group=1).values()
    # the wrong ones: 2 bags as shirt, 100 coats as bag, 100 shirts as coat, 4 shoes as shirt
    shares = np.array([100, 100, 6, 0]) / 206
    assert variation.value == pytest.approx(np.abs(shares - 0.25).sum() / 2)
    assert kl.value == pytest.approx(sum(p * np.log(4 * p) for p in shares[:3]))
    assert (variation.verdict, kl.verdict) == (HOLDS, HOLDS)
    assert most.text.startswith("bag, 48.5 % [")
    assert correlation.value == pytest.approx(0.25 / 4.5), "ranks 4, 1.5, 1.5, 3 and 3.5, 3.5, 2, 1"


def test_a_row_without_its_result_says_which():
    found = measure(results(without=(sample(BAT), whole_split(PUBLIC_ROBUST))))
    assert readings(found[0], group=2)["CAU, all test images"].text == f"not measured: {whole_split(PUBLIC_ROBUST)}"
    assert {reading.verdict for reading in readings(found[1], group=1).values()} == {MISSING}
    assert {reading.verdict for reading in readings(found[5], group=2).values()} == {MISSING}
    assert readings(found[1])["CRU_eps"].verdict == HOLDS


def test_models_on_other_images_are_not_compared():
    other = outcomes(PGD_AT)
    other = Outcomes(other.frame.iloc[1:], other.manifest)
    with pytest.raises(OutcomesError, match="not evaluated on the same examples"):
        measure({**results(), sample(PGD_AT): other})


def test_it_is_one_column_without_a_radius(measured):
    text = claims.as_markdown(PAPER, measured)
    assert text.startswith("<!-- claims -->\n\n| claim | measured on | verdict |\n")
    assert "| measure | the paper | measured | verdict |" in text
    assert "     verdict: holds\n" in claims.as_text(PAPER, measured)


@pytest.mark.parametrize("group", [5, 6])
def test_the_papers_claims_on_adult(measured, group):
    (cau,) = readings(measured[0], group=group).values()
    assert (cau.text[:25], cau.verdict) == ("0.280 to 0.480: +0.200 [+", HOLDS)
    assert measured[0].groups[group].rows[0].report == "larger (0.0195 to 0.0205)"
    found = readings(measured[2], group=group)
    readings_at = [
        f"CRU_s at {radius}, all test rows, {r}" for radius in (10, 15, 20) for r in ("white-box", "transfer")
    ]
    assert list(found) == readings_at
    assert {reading.text[:20] for reading in found.values()} == {"28.0 to 48.0: +20.0 "}
    assert "on Adult 6.11 to 18.66 at 10" in measured[2].report


def test_figures_are_drawn_of_models_that_are_all_there(tmp_path):
    drawn = PAPER.draw(results(without=(sample(BAT),)), tmp_path)
    assert [path.name for path in drawn] == [
        "unfairness_curves_public.png",
        "unfairness_tendency_public.png",
        "unfairness_curves_cifar10.png",
    ]
    for path in drawn:
        with Image.open(path) as picture:
            assert picture.width > 1000


def test_all_results_that_are_read_are_named():
    assert set(PAPER.results) == set(results())
    on_cifar10 = {(CIFAR10_STANDARD, robust) for robust in CIFAR10[1:]}
    found = {pair.models for pair in PAIRS.values()}
    assert found == {(STANDARD, PGD_AT), (STANDARD, BAT), PUBLIC} | on_cifar10
