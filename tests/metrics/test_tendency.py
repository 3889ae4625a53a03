"""Confusion, targets and steps, against a table computed by hand."""

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import wilson
from fairbench.metrics.tendency import kl, tendency, total_variation

LABEL = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
UNDER_ATTACK = [0, 1, 1, 2, 1, 1, 1, 0, 2, 1]
STEPS = [None, 3, 5, 7, None, None, None, 9, None, 20]
CLASSES = ("cat", "dog", "fox", "owl")


def outcomes(label=LABEL, under_attack=UNDER_ATTACK, steps=STEPS, classes=CLASSES):
    frame = pd.DataFrame({"index": range(len(label)), "label": label, "clean_pred": label})
    frame["pgd10_pred"] = pd.array(under_attack, dtype="Int16")
    frame["least-steps_broken_at"] = pd.array(steps, dtype="Int16")
    frame["least-steps_censored"] = [step is None for step in steps]
    frame["least-steps_pred"] = frame["pgd10_pred"]
    manifest = {"dataset": {"classes": list(classes)}, "attacks": {"least-steps": {"steps": 100}}}
    return Outcomes(frame, manifest)


def test_the_confusion_has_a_row_per_true_class():
    found = tendency(outcomes())
    assert found.confusion.tolist() == [[1, 2, 1, 0], [1, 3, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert found.classes["rob_acc"].tolist()[:3] == [25, 75, 50]
    assert tuple(found.classes.loc[1, ["rob_acc_low", "rob_acc_high"]]) == pytest.approx(wilson(3, 4))
    assert np.isnan(found.classes["rob_acc"][3])


def test_the_targets_are_the_columns_of_the_wrong_ones_and_uniform_is_over_all_classes():
    found = tendency(outcomes())
    assert found.classes["target"].tolist() == [20, 60, 20, 0]
    assert found.total_variation.value == pytest.approx((0.05 + 0.35 + 0.05 + 0.25) / 2)
    assert found.kl.value == pytest.approx(0.6 * np.log(0.6 * 4) + 2 * 0.2 * np.log(0.2 * 4))
    assert found.classes["target_no_tendency"].tolist() == pytest.approx([100 * w / 15 for w in (2, 4, 4, 5)])
    for name in ("total_variation", "kl"):
        low, high = getattr(found, name).interval
        assert low <= getattr(found, name).value <= high


def test_correlations_are_over_the_classes_that_are_there():
    found = tendency(outcomes())
    # robust accuracy 25, 75, 50; means 28.75, 77.25, 60; of the broken 5, 9, 20; targets 20, 60, 20
    assert found.steps_and_robustness.value == pytest.approx(1)
    assert found.broken_steps_and_robustness.value == pytest.approx(0.5)
    assert found.targets_and_robustness.value == pytest.approx(np.sqrt(3) / 2)
    low, high = found.steps_and_robustness.interval
    assert -1 <= low <= high <= 1


@pytest.mark.parametrize(
    ("shares", "variation", "nats"),
    [
        ([0.25] * 4, 0, 0),
        ([1, 0, 0, 0], 0.75, np.log(4)),
        ([0.5, 0.5, 0, 0], 0.5, np.log(2)),
        ([0, 1.0], 0.5, np.log(2)),
    ],
)
def test_distances_to_uniform(shares, variation, nats):
    assert float(total_variation(np.array(shares))) == pytest.approx(variation)
    assert float(kl(np.array(shares))) == pytest.approx(nats)


def test_uniform_targets_lie_where_chance_would_put_them_and_biased_ones_do_not():
    rng = np.random.default_rng(0)
    label = np.repeat(range(4), 200)
    anywhere = (label + rng.integers(1, 4, len(label))) % 4
    for under_attack, uniform in ((anywhere, True), (np.where(label == 0, 1, 0), False)):
        found = tendency(outcomes(label, under_attack, [1] * len(label)))
        low, high = found.total_variation_by_chance
        assert (low <= found.total_variation.value <= high) is uniform
        assert (found.total_variation.interval[0] > high) is not uniform


def test_nothing_broken_leaves_no_targets():
    found = tendency(outcomes(under_attack=LABEL, steps=[None] * 10))
    assert found.classes["target"].isna().all()
    assert np.isnan([found.total_variation.value, found.kl.value, *found.total_variation_by_chance]).all()
    assert np.isnan(found.steps_and_robustness.value)
    assert found.steps.classes["mean"].tolist()[:3] == [100] * 3


def test_of_two_classes_the_sources_decide():
    found = tendency(outcomes([0, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, None], ("cat", "dog")))
    assert found.classes["target"].tolist() == pytest.approx([100 / 3, 200 / 3])
    assert found.total_variation_by_chance == pytest.approx([1 / 6] * 2)


def test_rows_that_were_not_measured_are_left_out():
    found = tendency(outcomes(under_attack=[None, *UNDER_ATTACK[1:]]))
    assert found.confusion.sum() == 9
    assert found.classes["n"].tolist() == [3, 4, 2, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attack": "pgd20"}, "the outcomes have no pgd20"),
        ({"steps": "pgd10"}, "have no pgd10: the steps"),
    ],
)
def test_without_both_attacks_it_is_refused(options, message):
    with pytest.raises(OutcomesError, match=message):
        tendency(outcomes(), **options)
