"""Class means of the least epsilon and CRU_eps, against tables computed by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes, summarize

LARGEST = 0.1


def outcomes(radii, classes=("cat", "dog", "fox"), attack="least-epsilon"):
    """One example per radius: NaN withstands, 0 is wrong clean."""
    label = np.concatenate([np.full(len(r), c) for c, r in enumerate(radii)]).astype(int)
    radius = np.concatenate(radii)
    wrong = (label + 1) % len(classes)
    frame = pd.DataFrame({"index": range(len(label)), "label": label})
    frame["clean_pred"] = np.where(radius == 0, wrong, label)
    frame[f"{attack}_pred"] = np.where(np.isnan(radius), label, wrong)
    frame[f"{attack}_epsilon"] = radius
    frame[f"{attack}_censored"] = np.isnan(radius)
    manifest = {"dataset": {"classes": list(classes)}, "attacks": {attack: {"epsilon": LARGEST}}}
    return Outcomes(frame, manifest)


def summary(radii):
    return summarize(outcomes([np.array(r, dtype=float) for r in radii])).attacks["least-epsilon"]


def test_means_count_what_withstands_as_the_largest_radius():
    found = summary([[0.02, 0.04], [0.0, 0.06, np.nan], []]).least_epsilon
    assert found.classes["mean"].tolist()[:2] == pytest.approx([0.03, (0 + 0.06 + 0.1) / 3])
    assert np.isnan(found.classes["mean"][2])
    assert found.classes["censored"].tolist() == [0, 1, 0]
    assert found.average == pytest.approx((0.02 + 0.04 + 0.06 + 0.1) / 5)
    assert found.cru_eps == pytest.approx((0 + 0.06 + 0.1) / 3 - 0.03)
    assert found.censored == 1


def test_the_errors_beside_it_are_those_at_the_largest_radius():
    found = summary([[0.02, np.nan], [0.0, 0.06], []])
    assert (found.avg_std, found.avg_rob, found.worst_rob_class) == (25.0, 75.0, "dog")
    assert found.epsilon == LARGEST


def test_intervals_contain_the_value_and_shrink_with_more_examples():
    rng = np.random.default_rng(0)
    widths = []
    for n in (50, 800):
        found = summary([rng.uniform(0, 0.05, n), rng.uniform(0.03, 0.09, n), []]).least_epsilon
        low, high = found.cru_eps_interval
        assert low <= found.cru_eps <= high
        row = found.classes.iloc[0]
        assert row["low"] <= row["mean"] <= row["high"]
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_equal_examples_leave_nothing_to_resample():
    found = summary([[0.02] * 5, [0.06] * 5, []]).least_epsilon
    assert found.cru_eps_interval == pytest.approx((0.04, 0.04))


def test_it_is_in_the_document_as_plain_numbers_and_only_for_this_attack():
    document = json.loads(json.dumps(summary([[0.02], [np.nan], []]).to_dict(), allow_nan=False))
    assert document["least_epsilon"]["classes"][2]["mean"] is None
    assert document["least_epsilon"]["intervals"]["cru_eps"] == pytest.approx([0.08, 0.08])
    frame = pd.DataFrame({"index": [0, 1], "label": [0, 1], "clean_pred": [0, 1], "pgd20_pred": [1, 1]})
    found = summarize(Outcomes(frame, {"dataset": {"classes": ["cat", "dog"]}}))
    assert found.attacks["pgd20"].least_epsilon is None
    assert "least_epsilon" not in found.attacks["pgd20"].to_dict()
