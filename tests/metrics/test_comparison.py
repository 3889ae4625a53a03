"""Two models compared: against masks and tests done by hand, classes without examples, and Holm's correction."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from fairbench import Outcomes
from fairbench.errors import OutcomesError
from fairbench.metrics.comparison import compare, holm

CLASSES = ["cat", "dog", "fox"]
LABEL = np.repeat([0, 1], [6, 4])


def outcomes(clean_wrong, broken, **manifest):
    """Six cats and four dogs, no fox; the rows that are named are wrong."""
    frame = pd.DataFrame({"index": range(10), "label": LABEL})
    for column, wrong in (("clean_pred", clean_wrong), ("pgd20_pred", broken)):
        frame[column] = np.where(np.isin(np.arange(10), wrong), 2, LABEL)
    return Outcomes(frame, {"dataset": {"classes": CLASSES}, **manifest})


A, B = outcomes([0], [0, 1, 2, 3, 6]), outcomes([0, 1], [0, 6, 7, 8])


def row(found, name, error):
    classes = found.classes
    return classes[(classes["class"] == name) & (classes["error"] == error)].iloc[0]


def test_every_class_by_hand():
    found = compare(A, B, "pgd20")
    cat, dog, fox = (row(found, name, "rob") for name in CLASSES)
    assert (cat["n"], cat["only_a"], cat["only_b"]) == (6, 3, 0)
    assert cat["a"] == pytest.approx(400 / 6)
    assert cat["difference"] == pytest.approx(-50.0)
    assert cat["p"] == pytest.approx(0.25), "three of three to one side: 2 / 2**3"
    assert (dog["a"], dog["b"], dog["only_b"], dog["p"]) == (25.0, 75.0, 2, pytest.approx(0.5))
    assert fox["n"] == 0
    assert np.isnan([fox["a"], fox["difference"], fox["low"], fox["p"], fox["p_holm"]]).all()
    assert [cat["p_holm"], dog["p_holm"]] == [0.5, 0.5], "two classes have examples"
    assert row(found, "cat", "std")["difference"] == pytest.approx(100 / 6)
    for name in ("cat", "dog"):
        for error in ("std", "rob"):
            found_row = row(found, name, error)
            assert found_row["low"] <= found_row["difference"] <= found_row["high"]


def test_average_and_worst_class_by_hand():
    found = compare(A, B, "pgd20")
    average, worst = found.average["rob"], found.worst["rob"]
    assert (average.a, average.b, average.difference) == (50.0, 40.0, -10.0)
    assert average.p == binomtest(3, 5).pvalue
    assert (worst.class_a, worst.class_b) == ("cat", "dog")
    assert worst.difference.value == pytest.approx(75 - 400 / 6)
    low, high = worst.difference.interval
    assert low <= worst.difference.value <= high
    assert found.cru_s.value == pytest.approx((75 - 100 / 6) - (400 / 6 - 25))
    assert found.cau.value == pytest.approx(2 / 6 - 1 / 6)


def searched(radii, largest=0.2):
    """Four cats and two dogs; NaN withstands the largest radius."""
    frame = pd.DataFrame({"index": range(6), "label": [0, 0, 0, 0, 1, 1], "clean_pred": [0, 0, 0, 0, 1, 1]})
    frame["least-epsilon_epsilon"] = np.array(radii, dtype=float)
    frame["least-epsilon_pred"] = np.where(np.isnan(radii), frame["label"], 1 - frame["label"])
    manifest = {"dataset": {"classes": ["cat", "dog"]}, "attacks": {"least-epsilon": {"epsilon": largest}}}
    return Outcomes(frame, manifest)


def test_the_difference_of_cru_eps_by_hand():
    a = searched([0.1, 0.1, 0.1, 0.1, 0.0, 0.1])  # means 0.1 and 0.05
    b = searched([0.1, 0.1, np.nan, 0.0, 0.1, np.nan])  # 0.1 and 0.15
    found = compare(a, b, "least-epsilon").cru_eps
    assert found.value == pytest.approx(0.05 - 0.05, abs=1e-6)
    worse = compare(a, searched([0.0] * 4 + [0.1, np.nan]), "least-epsilon")
    assert worse.cru_eps.value == pytest.approx(0.15 - 0.05, abs=1e-6)
    low, high = worse.cru_eps.interval
    assert low <= worse.cru_eps.value <= high
    assert worse.to_dict()["cru_eps"]["value"] == worse.cru_eps.value
    assert compare(a, a, "least-epsilon").cru_eps.interval == (0.0, 0.0), "the same examples of both are drawn"
    with pytest.raises(OutcomesError, match="up to other radii"):
        compare(a, searched([0.1] * 6, largest=0.3), "least-epsilon")


def test_a_model_and_itself_do_not_differ():
    found = compare(A, A, "pgd20")
    assert found.average["rob"].p == 1.0
    assert found.worst["rob"].difference.interval == (0.0, 0.0)


def test_other_examples_are_refused():
    with pytest.raises(OutcomesError, match="not evaluated on the same examples"):
        compare(A, outcomes([0], [0], dataset={"classes": CLASSES[::-1]}), "pgd20")


def test_holm_steps_down():
    assert holm(np.array([0.02, 0.01, 0.5, 0.9])).tolist() == pytest.approx([0.06, 0.04, 1.0, 1.0])
    assert holm(np.array([])).tolist() == []


@pytest.mark.parametrize(
    "other",
    [{"attacks": {"pgd20": {"epsilon": 4 / 255}}}, {"transfer_from": {"name": "source"}}],
    ids=["radius", "source"],
)
def test_attacks_that_only_share_a_name_are_not_compared(other):
    attacks = {"pgd20": {"epsilon": 8 / 255, "seed": 0}}
    a, b = outcomes([0], [0, 1], attacks=attacks), outcomes([0], [0, 1], **{"attacks": attacks} | other)
    with pytest.raises(OutcomesError, match="pgd20 has other parameters, or was made for another model"):
        compare(a, b, "pgd20")
    again = {"pgd20": {"epsilon": 8 / 255, "seed": 1}}
    assert compare(a, outcomes([0], [0, 1], attacks=again), "pgd20").epsilon == 8 / 255


SMALL, LARGE = ({"name": "data", "sha256": str(size), "shape": [1, size, size]} for size in (28, 32))


def test_the_same_examples_at_two_sizes_are_compared_and_said_to_be():
    """A model that takes 28x28 images and one that takes 32x32 have one test split, whose hash differs by size."""
    a, b = outcomes([0], [0]), outcomes([0], [0])
    a.manifest["dataset"] |= SMALL
    b.manifest["dataset"] |= LARGE
    assert compare(a, b, "pgd20", resized=["data"]).shapes == ((1, 28, 28), (1, 32, 32))
    assert compare(a, a, "pgd20", resized=["data"]).shapes is None
    with pytest.raises(OutcomesError, match="not evaluated on the same examples"):  # a file of that name, perhaps
        compare(a, b, "pgd20", resized=["cifar10"])


@pytest.mark.parametrize(
    "other",
    [
        {"sha256": "others"},
        {"name": "another", "shape": [1, 32, 32], "sha256": "others"},
        {"shape": [3, 32, 32], "sha256": "others"},
    ],
)
def test_other_images_are_refused(other):
    a, b = outcomes([0], [0]), outcomes([0], [0])
    a.manifest["dataset"] |= SMALL
    b.manifest["dataset"] |= SMALL | other
    with pytest.raises(OutcomesError, match="not evaluated on the same examples"):
        compare(a, b, "pgd20", resized=["data"])
