"""Success rate over epsilon, against counts by hand."""

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.metrics.curves import success_curves
from fairbench.metrics.intervals import wilson

LABEL = np.array([0] * 4 + [1] * 5)
RADIUS = np.array([0.0, 0.1, 0.3, np.nan, 0.1, 0.1, 0.2, 0.3, np.nan])


def outcomes(**search):
    frame = pd.DataFrame({"index": range(9), "label": LABEL, "clean_pred": np.where(RADIUS == 0, 1, LABEL)})
    frame["least-epsilon_pred"] = np.where(np.isnan(RADIUS), LABEL, 1 - LABEL)
    frame["least-epsilon_epsilon"] = RADIUS
    manifest = {"dataset": {"classes": ["cat", "dog", "fox"]}}
    return Outcomes(frame, manifest | {"attacks": {"least-epsilon": {"epsilon": 0.3, "resolution": 0.1} | search}})


def test_at_an_epsilon_is_broken_what_breaks_up_to_it():
    found = success_curves(outcomes(), "least-epsilon", [0.0, 0.1, 0.2, 0.3])
    cat = found.classes[found.classes["class"] == "cat"]
    assert cat["broken"].tolist() == [25, 50, 50, 75]
    assert found.classes[found.classes["class"] == "dog"]["broken"].tolist() == pytest.approx([0, 40, 60, 80])
    assert tuple(cat.iloc[1][["low", "high"]]) == pytest.approx(wilson(2, 4))
    assert found.classes[found.classes["class"] == "fox"]["broken"].isna().all()


def test_overall_rates_worst_class_and_gap():
    overall = success_curves(outcomes(), "least-epsilon", [0.0, 0.1, 0.2, 0.3]).overall
    assert overall["average"].tolist() == pytest.approx([100 / 9, 400 / 9, 500 / 9, 700 / 9])
    assert overall["worst_class"].tolist() == ["cat", "cat", "dog", "dog"]
    assert overall["cru_s"].tolist() == pytest.approx([25, 10, 10, 5])
    assert (overall["cru_s_low"] <= overall["cru_s"]).all()
    assert (overall["cru_s"] <= overall["cru_s_high"]).all()


def test_some_of_the_radii_give_the_same_as_all_of_them():
    whole = success_curves(outcomes(), "least-epsilon", [0.0, 0.1, 0.2, 0.3]).overall.set_index("epsilon")
    some = success_curves(outcomes(), "least-epsilon", [0.1, 0.3]).overall.set_index("epsilon")
    assert some["average"].tolist() == whole["average"].loc[[0.1, 0.3]].tolist()


@pytest.mark.parametrize("epsilon", [0.15, 0.4, -0.1])
def test_a_radius_that_was_not_searched_is_refused(epsilon):
    with pytest.raises(OutcomesError, match=f"epsilon {epsilon:g} is none of the radii searched: multiples of 0.1"):
        success_curves(outcomes(), "least-epsilon", [epsilon])


@pytest.mark.parametrize("epsilons", [[], [0.2, 0.1], [0.1, 0.1], [float("nan")], [0.1, float("inf")]])
def test_radii_that_do_not_rise_are_refused(epsilons):
    with pytest.raises(OutcomesError, match="give one or more, rising"):
        success_curves(outcomes(), "least-epsilon", epsilons)


def test_the_largest_radius_counts_also_off_the_grid():
    found = success_curves(outcomes(epsilon=0.35), "least-epsilon", [0.35])
    assert found.overall["average"].tolist() == pytest.approx([700 / 9])


def test_outcomes_without_a_search_are_refused():
    with pytest.raises(OutcomesError, match="a curve needs a search for least epsilon"):
        success_curves(outcomes(), "pgd20", [0.1])
