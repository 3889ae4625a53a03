"""Intervals against published values, against resampled examples, and at their edges."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from fairbench import Outcomes, summarize
from fairbench.metrics.classwise import errors_from_cells
from fairbench.metrics.intervals import paired_difference, percentile_interval, resample, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 25.53, 36.62), (15, 148, 6.24, 16.05), (0, 20, 0.0, 16.11), (1, 29, 0.61, 17.18)],
)
def test_wilson_gives_newcombes_table(successes, n, low, high):
    """Newcombe, Statistics in Medicine 17, 857-872 (1998), Table I, method 3."""
    assert wilson(successes, n) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 999, 1_000, 10_000])
def test_wilson_is_scipys_to_the_last_bit(n):
    for successes in {0, 1, n // 3, n // 2, n - 1, n}:
        found = binomtest(successes, n).proportion_ci(0.95, method="wilson")
        assert wilson(successes, n) == (100 * float(found.low), 100 * float(found.high))


@pytest.mark.parametrize(
    ("cells", "low", "high"),
    [
        ([[36, 12], [2, 0]], 5.69, 34.04),  # the paper's first example, negative correlation
        ([[0, 0], [0, 20]], -16.11, 16.11),  # both rates certain: Wilson's reach on either side
        ([[30, 0], [0, 0]], -11.35, 11.35),
        ([[10, 0], [0, 10]], -8.98, 8.98),  # phi is (100 - 10) / 100: by hand from Wilson's 29.93 and 70.07
    ],
)
def test_the_paired_interval_is_newcombes_method_10(cells, low, high):
    """Newcombe, Statistics in Medicine 17, 2635-2650 (1998)."""
    assert paired_difference(np.array(cells)) == pytest.approx((low, high), abs=0.01)


def test_the_paired_interval_covers_the_truth():
    generator = np.random.default_rng(0)
    shares = np.array([0.6, 0.25, 0.03, 0.12])
    truth = 100 * (shares[1] - shares[2])
    covered = 0
    for cells in generator.multinomial(100, shares, size=400).reshape(-1, 2, 2):
        low, high = paired_difference(cells)
        covered += low <= truth <= high
    assert 0.92 <= covered / 400 <= 0.985


def test_resampled_counts_are_distributed_like_resampled_examples():
    cells = np.array([[[50, 20], [2, 28]], [[5, 3], [0, 2]], [[0, 0], [0, 0]]])
    drawn = resample(cells, draws=4000)
    assert (drawn.sum(axis=(2, 3)) == cells.sum(axis=(1, 2))).all(), "class sizes stay"
    examples = np.repeat(np.arange(4), cells[0].ravel())
    by_example = np.random.default_rng(1).choice(examples, size=(4000, len(examples)))
    for cell in range(4):
        counts = (by_example == cell).sum(1)
        ours = drawn[:, 0].reshape(4000, 4)[:, cell]
        assert ours.mean() == pytest.approx(counts.mean(), abs=0.35)
        assert ours.std() == pytest.approx(counts.std(), abs=0.25)


def test_the_bootstrap_is_the_same_every_time_and_leaves_unknown_values_out():
    cells = np.array([[[50, 20], [2, 28]], [[0, 0], [0, 0]]])

    def worst(counts):
        return np.nanmax(errors_from_cells(counts)["rob"], axis=-1)

    first, second = (percentile_interval(worst, resample(cells)) for _ in range(2))
    assert first == second
    assert first[0] < 48 < first[1]
    unknown = percentile_interval(lambda counts: np.full(len(counts), np.nan), resample(cells))
    assert np.isnan(unknown).all()


def test_no_examples_have_no_interval():
    assert np.isnan(wilson(0, 0)).all()
    assert np.isnan(paired_difference(np.zeros((2, 2), dtype=int))).all()


def test_the_worst_class_lies_in_its_own_interval():
    label = np.repeat(np.arange(10), 100)
    wrong = np.tile(np.arange(100) < 50, 10)
    frame = pd.DataFrame({"index": range(1000), "label": label})
    frame["clean_pred"] = frame["pgd20_pred"] = np.where(wrong, (label + 1) % 10, label)
    found = summarize(Outcomes(frame, {"dataset": {"classes": [str(c) for c in range(10)]}})).attacks["pgd20"]
    for name in ("worst_std", "worst_rob", "cau", "cru_s"):
        low, high = found.intervals[name]
        assert low <= getattr(found, name) <= high
