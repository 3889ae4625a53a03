"""Two models on the same examples: joint counts against masks, and the paired bootstrap against resampled examples."""

import math

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.metrics.paired import RATES, class_rates, mcnemar, paired_bootstrap, paired_cells, resampled_rates

CLASSES = ["cat", "dog", "fox"]


def outcomes(seed, *, wrong=0.3, name="m", **manifest):
    """120 cats, 60 dogs, no fox; wrong where the seed says so."""
    label = np.repeat([0, 1], [120, 60])
    draw = np.random.default_rng(seed).random((2, 180))
    frame = pd.DataFrame({"index": range(180), "label": label})
    for column, row in zip(("clean_pred", "pgd20_pred"), draw, strict=True):
        frame[column] = np.where(row < wrong, 2, label)
    return Outcomes(frame, {"model": {"name": name}, "dataset": {"classes": CLASSES, **manifest}})


def gap_of_worst(a, b):
    return np.fmax.reduce(b, axis=-1) - np.fmax.reduce(a, axis=-1)


def test_each_example_is_counted_once_by_what_both_models_did():
    a, b = outcomes(1), outcomes(2)
    cells = paired_cells(a, b, "pgd20")
    label = a.frame["label"].to_numpy()
    wrong = [(o.frame[c] != o.frame["label"]).to_numpy() for o in (a, b) for c in ("clean_pred", "pgd20_pred")]
    assert cells.shape == (3, 2, 2, 2, 2)
    for index in np.ndindex(cells.shape):
        mask = label == index[0]
        for way, state in zip(wrong, index[1:], strict=True):
            mask = mask & (way == bool(state))
        assert cells[index] == mask.sum()


def test_class_rates_are_those_of_each_model_and_an_absent_class_has_none():
    a, b = outcomes(1), outcomes(2)
    rates = class_rates(paired_cells(a, b, "pgd20"), *RATES)
    for found, (model, column) in zip(
        rates, [(o, c) for o in (a, b) for c in ("clean_pred", "pgd20_pred")], strict=True
    ):
        frame = model.frame
        for c in (0, 1):
            of_class = frame[frame["label"] == c]
            assert found[c] == pytest.approx(100 * (of_class[column] != c).mean())
        assert np.isnan(found[2])


def test_boundary_errors_are_robust_minus_standard_also_when_resampled():
    cells = paired_cells(outcomes(1), outcomes(2), "pgd20")
    std, rob, bndy = class_rates(cells, "std_b", "rob_b", "bndy_b")
    assert np.allclose(bndy, rob - std, equal_nan=True)
    std, rob, bndy = resampled_rates(cells, "std_b", "rob_b", "bndy_b", draws=20)
    assert np.allclose(bndy, rob - std, equal_nan=True)


@pytest.mark.parametrize("rate", ["std", "rob"])
def test_mcnemars_test_is_that_of_the_discordant_examples(rate):
    a, b = outcomes(1), outcomes(2)
    column = {"std": "clean_pred", "rob": "pgd20_pred"}[rate]
    wrong_a, wrong_b = ((o.frame[column] != o.frame["label"]).to_numpy() for o in (a, b))
    first, second = int((wrong_a & ~wrong_b).sum()), int((wrong_b & ~wrong_a).sum())
    tail = sum(math.comb(first + second, k) for k in range(min(first, second) + 1)) / 2 ** (first + second)
    assert mcnemar(paired_cells(a, b, "pgd20"), rate) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(paired_cells(a, a, "pgd20"), rate) == 1


def test_rates_come_in_the_order_asked_for():
    cells = paired_cells(outcomes(1), outcomes(2), "pgd20")
    rob_b, std_a = class_rates(cells, "rob_b", "std_a")
    assert np.array_equal(rob_b, class_rates(cells, "rob_b")[0], equal_nan=True)
    assert np.array_equal(std_a, class_rates(cells, "std_a")[0], equal_nan=True)


@pytest.mark.parametrize("rate", ["std", "rob"])
def test_a_model_does_not_differ_from_itself(rate):
    cells = paired_cells(outcomes(1), outcomes(1), "pgd20")
    found = paired_bootstrap(cells, gap_of_worst, f"{rate}_a", f"{rate}_b")
    assert found.value == 0
    assert found.interval == (0, 0)


def test_the_interval_is_that_of_resampled_examples():
    """Against a bootstrap that draws the examples themselves, within classes, for both models at once."""
    a, b = outcomes(1, wrong=0.2), outcomes(2, wrong=0.5)
    found = paired_bootstrap(paired_cells(a, b, "pgd20"), gap_of_worst, "rob_a", "rob_b")
    label = a.frame["label"].to_numpy()
    wrong = np.stack([(o.frame["pgd20_pred"] != o.frame["label"]).to_numpy() for o in (a, b)])
    generator = np.random.default_rng(5)
    drawn = []
    for _ in range(4000):
        rows = [generator.choice(np.flatnonzero(label == c), (label == c).sum()) for c in (0, 1)]
        errors = [[100 * wrong[m, r].mean() for r in rows] for m in (0, 1)]
        drawn.append(max(errors[1]) - max(errors[0]))
    assert found.interval == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=1.7)


def test_models_that_fail_on_the_same_examples_are_compared_more_sharply():
    a, alike, other = outcomes(1), outcomes(1), outcomes(2)
    frame = alike.frame.copy()
    frame.loc[frame.index[::20], "pgd20_pred"] = 2
    alike = Outcomes(frame, alike.manifest)

    def width(b):
        low, high = paired_bootstrap(paired_cells(a, b, "pgd20"), gap_of_worst, "rob_a", "rob_b").interval
        return high - low

    assert width(alike) < 0.7 * width(other)


def test_what_concerns_clean_predictions_does_not_depend_on_the_attack():
    a, b, c = outcomes(1), outcomes(2), outcomes(3)
    swapped = Outcomes(b.frame.assign(pgd20_pred=c.frame["pgd20_pred"]), b.manifest)
    drawn = [resampled_rates(paired_cells(a, x, "pgd20"), "std_a", "std_b") for x in (b, swapped)]
    assert np.array_equal(*drawn, equal_nan=True)


def test_examples_that_one_model_was_not_measured_on_are_left_out():
    a, b = outcomes(1), outcomes(2)
    frame = b.frame.copy()
    frame.loc[:9, "pgd20_pred"] = pd.NA
    assert paired_cells(a, Outcomes(frame, b.manifest), "pgd20").sum(axis=(1, 2, 3, 4)).tolist() == [110, 60, 0]
    frame["pgd20_pred"] = pd.NA
    with pytest.raises(OutcomesError, match="no example has a prediction under pgd20 of both m and m"):
        paired_cells(a, Outcomes(frame, b.manifest), "pgd20")


def test_other_examples_are_refused():
    a = outcomes(1, name="first", sha256="1")
    shifted = outcomes(2, name="second")
    shifted = Outcomes(shifted.frame.assign(index=range(1, 181)), shifted.manifest)
    for b in (shifted, outcomes(2, name="second", sha256="2")):
        with pytest.raises(OutcomesError, match="first and second were not evaluated on the same examples"):
            paired_cells(a, b, "pgd20")
    with pytest.raises(OutcomesError, match="the outcomes of first have no autoattack"):
        paired_cells(a, a, "autoattack")
