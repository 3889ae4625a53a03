"""Spearman's correlation, against SciPy's."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from fairbench.metrics.ranks import spearman


def test_it_is_scipys():
    x, y = np.random.default_rng(0).integers(0, 6, (2, 20, 9)).astype(float)
    assert spearman(x, y) == pytest.approx([spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)])


def test_places_without_a_value_are_left_out_row_by_row():
    x = np.array([[1.0, 2.0, np.nan, 4.0], [3.0, 2.0, 1.0, np.nan]])
    y = np.array([[1.0, 2.0, 3.0, 9.0], [1.0, 2.0, 3.0, 4.0]])
    assert spearman(x, y) == pytest.approx([1, -1])


@pytest.mark.parametrize("x", [[1.0, 1.0, 1.0], [np.nan, np.nan, 1.0], [np.nan] * 3])
def test_without_an_order_it_is_not_known(x):
    assert np.isnan(spearman(np.array(x), np.array([1.0, 2.0, 3.0])))
