"""Leave-one-out unfairness by hand, and what holds for any confidences."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairbench.errors import OutcomesError
from fairbench.metrics.luf import difference, example_table, flips, leave_one_out, luf, sample_table

# Three test examples, three classes, two samples left out.
FULL = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
WITHOUT_FIRST = np.array([[0.4, 0.5, 0.1], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4]])
WITHOUT_SECOND = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.4, 0.3, 0.3]])
LEFT = np.stack([WITHOUT_FIRST, WITHOUT_SECOND])
"""
example   changes without the first   without the second   LUF   classes: full, first, second   flips
0         .1 .2 .1                    0 0 0                0.2   0 1 0                          1
1         .1 .1 0                     0 .6 .6              0.6   1 1 2                          1
2         0 0 0                       .1 0 .1              0.1   2 2 0                          1
"""


def table(full=FULL, left=LEFT):
    return example_table(np.arange(len(full)), np.zeros(len(full)), full, left)


def test_luf_by_hand():
    assert luf(FULL, LEFT) == pytest.approx([0.2, 0.6, 0.1])
    assert flips(FULL, LEFT).tolist() == [[True, False, False], [False, True, True]]
    found = leave_one_out(table(), 2)
    assert found.luf_mean == pytest.approx(0.9 / 3)
    assert found.luf_t == 3 / 3
    assert found.luf_l == 3 / 2
    assert (found.n, found.left_out) == (3, 2)


def test_the_tables_by_hand():
    assert table()["full_pred"].tolist() == [0, 1, 2]
    assert table()["flips"].tolist() == [1, 1, 1]
    samples = sample_table(np.array([7, 9]), np.array([1, 0]), FULL, LEFT)
    assert samples["flips"].tolist() == [1, 2]
    assert samples["largest_change"].tolist() == pytest.approx([0.2, 0.6])


def test_rows_come_by_index():
    found = example_table(np.array([5, 2, 9]), np.array([0, 1, 2]), FULL, LEFT)
    assert found["index"].tolist() == [2, 5, 9]
    assert found["luf"].tolist() == pytest.approx([0.6, 0.2, 0.1])


def test_models_that_say_the_same_have_none():
    found = leave_one_out(table(FULL, np.stack([FULL] * 4)), 4)
    assert (found.luf_mean, found.luf_t, found.luf_l) == (0, 0, 0)
    assert set(found.intervals.values()) == {(0.0, 0.0)}


def test_the_most_unfair_there_can_be():
    full = np.tile([1.0, 0.0], (5, 1))
    found = leave_one_out(table(full, np.stack([full[:, ::-1]] * 3)), 3)
    assert (found.luf_mean, found.luf_t, found.luf_l) == (1, 3, 5)


@st.composite
def confidences(draw):
    models, n, classes = draw(st.integers(1, 5)), draw(st.integers(1, 8)), draw(st.integers(2, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = generator.dirichlet(np.full(classes, draw(st.sampled_from([0.1, 1.0, 10.0]))), size=(models + 1, n))
    return values.astype(np.float32)


@given(confidences())
@settings(max_examples=40, deadline=None)
def test_what_holds_for_any_confidences(values):
    full, left = values[0], values[1:]
    found = leave_one_out(table(full, left), len(left))
    assert found.luf_t * found.n == pytest.approx(found.luf_l * found.left_out)
    assert 0 <= found.luf_mean <= 1
    assert 0 <= found.luf_t <= len(left)
    assert 0 <= found.luf_l <= len(full)
    for name, (low, high) in found.intervals.items():
        assert low <= getattr(found, name) <= high
    assert (
        sample_table(np.arange(len(left)), np.zeros(len(left)), full, left)["flips"].sum()
        == table(full, left)["flips"].sum()
    )


@given(confidences())
@settings(max_examples=20, deadline=None)
def test_one_more_sample_left_out_never_lowers_luf(values):
    assert (luf(values[0], values[1:]) >= luf(values[0], values[1:2]) - 1e-12).all()


def test_the_interval_is_the_bootstraps():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"index": range(400), "label": 0, "full_pred": 0, "luf": rng.random(400), "flips": 1})
    found = leave_one_out(frame, 10)
    low, high = found.intervals["luf_mean"]
    expected = 1.96 * frame["luf"].std() / 20
    assert found.luf_mean - low == pytest.approx(expected, rel=0.15)
    assert high - found.luf_mean == pytest.approx(expected, rel=0.15)
    assert found.intervals["luf_t"] == (1.0, 1.0)
    assert found.intervals["luf_l"] == (40.0, 40.0)


def test_the_difference_is_paired():
    """The second is 0.1 above the first on every example: its interval has no width, whatever the examples' spread."""
    rng = np.random.default_rng(0)
    first = pd.DataFrame({"index": range(400), "label": 0, "full_pred": 0, "luf": 0.9 * rng.random(400), "flips": 1})
    second = first.assign(luf=first["luf"] + 0.1, flips=rng.integers(0, 3, 400))
    found = difference(first, second, 10)
    assert found["luf_mean"].value == pytest.approx(0.1)
    assert found["luf_mean"].interval == pytest.approx((0.1, 0.1))
    moved = (second["flips"] - 1).to_numpy()
    assert found["luf_t"].value == pytest.approx(moved.mean())
    assert found["luf_t"].interval[1] - found["luf_t"].value == pytest.approx(1.96 * moved.std() / 20, rel=0.15)
    assert found["luf_l"].value == pytest.approx(moved.sum() / 10)


def test_other_examples_have_no_difference():
    with pytest.raises(OutcomesError, match="not of the same test examples"):
        difference(table(), table().assign(index=lambda frame: frame["index"] + 1), 2)


@pytest.mark.parametrize(
    ("full", "left"),
    [
        (FULL, FULL),
        (FULL, LEFT[:, :2]),
        (FULL, LEFT[:0]),
        (FULL[:0], LEFT[:, :0]),
        (10 * FULL, LEFT),
        (FULL, LEFT - 1),
        (FULL, LEFT * np.nan),
    ],
)
def test_what_are_no_confidences_is_refused(full, left):
    with pytest.raises(OutcomesError, match="confidences"):
        luf(full, left)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="luf"), "has no luf"),
        (lambda frame: frame.iloc[:0], "has no rows"),
        (lambda frame: frame.assign(flips=3), "2 models cannot give"),
        (lambda frame: frame.assign(luf=np.nan), "2 models cannot give"),
        (lambda frame: frame.assign(luf=1.5), "2 models cannot give"),
    ],
)
def test_a_table_that_is_none_is_refused(change, message):
    with pytest.raises(OutcomesError, match=message):
        leave_one_out(change(table()), 2)
