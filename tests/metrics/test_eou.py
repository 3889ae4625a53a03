"""EOU and errors by group, against tables worked by hand and against fairlearn's MetricFrame."""

import numpy as np
import pandas as pd
import pytest

from fairbench.errors import OutcomesError
from fairbench.metrics.classwise import class_errors
from fairbench.metrics.eou import eou, eou_difference
from fairbench.metrics.groups import group_errors
from fairbench.outcomes import Outcomes


def outcomes(frame: pd.DataFrame, classes: tuple[str, ...] = ("no", "yes"), **manifest) -> Outcomes:
    attributes = [name for name in ("sex", "race") if name in frame]
    return Outcomes(frame, {"dataset": {"classes": list(classes), "attributes": attributes}, **manifest})


@pytest.fixture
def table() -> pd.DataFrame:
    """By hand: label 0 has 20 f of confidence 0.1 in "yes" and 40 m of 0.3; label 1 has 20 f of 0.6 and 20 m of 0.9."""
    cells = [(0, "f", 0.1, 20), (0, "m", 0.3, 40), (1, "f", 0.6, 20), (1, "m", 0.9, 20)]
    rows = [(label, sex, yes) for label, sex, yes, n in cells for _ in range(n)]
    frame = pd.DataFrame(rows, columns=["label", "sex", "yes"])
    frame["index"] = range(len(frame))
    frame["clean_pred"] = (frame["yes"] > 0.5).astype(int)
    frame["clean_confidence"] = np.maximum(frame["yes"], 1 - frame["yes"])
    frame["clean_label_confidence"] = np.where(frame["label"] == 1, frame["yes"], 1 - frame["yes"])
    frame["pgd20_pred"] = 1 - frame["clean_pred"]
    frame["pgd20_label_confidence"] = 1 - frame["clean_label_confidence"]
    return frame.drop(columns="yes")


def test_eou_is_the_largest_gap_of_mean_confidence_of_each_label(table):
    found = eou(outcomes(table), "sex")
    assert found.groups["mean"].tolist() == pytest.approx([0.1, 0.3, 0.6, 0.9])
    assert set(found.groups["class"]) == {"yes"}
    assert found.labels["eou"].tolist() == pytest.approx([0.2, 0.3])
    assert found.labels[["low", "high"]].to_numpy().ravel() == pytest.approx([0.2, 0.2, 0.3, 0.3])  # all alike


def test_the_difference_of_two_models_is_of_the_same_examples(table):
    other = table.copy()
    women = (table["sex"] == "f") & (table["label"] == 1)  # 0.6 becomes 0.5 to 0.7, 0.62 in the mean
    other.loc[women, "clean_label_confidence"] = [0.5] * 8 + [0.7] * 12
    found = eou_difference(outcomes(table), outcomes(other), "sex")
    assert found["label"].tolist() == ["no", "yes"]
    assert found["difference"].tolist() == pytest.approx([0.0, -0.02], abs=1e-6)
    assert found.loc[0, ["low", "high"]].tolist() == [0, 0]
    assert -0.08 < found.loc[1, "low"] < -0.03 < 0.01 < found.loc[1, "high"] < 0.04
    back = eou_difference(outcomes(other), outcomes(table), "sex")
    assert back["difference"].tolist() == pytest.approx([0.0, 0.02], abs=1e-6)


def test_models_on_other_examples_have_no_difference(table):
    with pytest.raises(OutcomesError, match="not evaluated on the same examples"):
        eou_difference(outcomes(table), outcomes(table.iloc[1:]), "sex")


def test_under_attack_it_reads_the_confidences_under_attack(table):
    assert eou(outcomes(table), "sex", "pgd20").groups["mean"].tolist() == pytest.approx([0.9, 0.7, 0.4, 0.1])


@pytest.mark.parametrize("attack", ["clean", "pgd20"])
def test_a_table_without_the_confidences_is_refused(table, attack):
    with pytest.raises(OutcomesError, match=f"no {attack}_label_confidence: evaluate again"):
        eou(outcomes(table.drop(columns=f"{attack}_label_confidence")), "sex", attack)


def test_among_more_classes_the_confidence_is_that_of_the_label(table):
    found = eou(outcomes(table, ("no", "yes", "perhaps")), "sex")
    assert found.groups["class"].tolist() == ["no", "no", "yes", "yes"]
    assert found.groups["mean"].tolist() == pytest.approx([0.9, 0.7, 0.6, 0.9])


def test_a_small_group_is_left_out_and_named(table):
    found = eou(outcomes(table.drop(index=table.index[0])), "sex")
    assert found.left_out == {("no", "f"): 19}
    assert found.labels["label"].tolist() == ["yes"]


@pytest.mark.parametrize(
    ("rows", "attribute", "attack", "message"),
    [
        (100, "gender", "clean", "no attribute 'gender'. Known: sex"),
        (100, "sex", "pgd7", "no attack 'pgd7'. Did you mean 'pgd20'"),
        (25, "sex", "clean", "two groups of 20 examples are needed; too small: m 5"),
    ],
)
def test_what_cannot_be_measured_is_said(table, rows, attribute, attack, message):
    with pytest.raises(OutcomesError, match=message):
        eou(outcomes(table[:rows]), attribute, attack)


def test_intervals_hold_the_true_gap_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(40):
        yes = np.concatenate([rng.beta(2, 5, 60), rng.beta(3, 4, 60)])
        frame = pd.DataFrame({"index": range(120), "label": 1, "clean_pred": 1, "sex": ["f"] * 60 + ["m"] * 60})
        row = eou(outcomes(frame.assign(clean_label_confidence=yes)), "sex").labels.iloc[0]
        held += row["low"] <= 3 / 7 - 2 / 7 <= row["high"]
    assert held >= 34


def test_errors_by_group_by_hand(table):
    found = group_errors(outcomes(table), "sex", "pgd20")
    assert found.groups[["group", "n", "std", "rob", "bndy"]].to_dict("list") == {
        "group": ["f", "m"],
        "n": [40, 60],
        "std": [0.0, 0.0],
        "rob": [100.0, 100.0],
        "bndy": [100.0, 100.0],
    }
    assert found.gap == {"std": 0.0, "bndy": 0.0, "rob": 0.0}


@pytest.fixture
def random_table() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"index": range(600), "label": rng.integers(0, 3, 600)})
    frame["race"] = rng.choice(["a", "b", "c", "tiny"], 600, p=[0.5, 0.3, 0.19, 0.01])
    for column in ("clean_pred", "pgd20_pred"):
        frame[column] = np.where(rng.random(600) < 0.6, frame["label"], rng.integers(0, 3, 600))
    return frame.astype({"pgd20_pred": "Int16"})


def test_class_and_group_errors_agree_with_fairlearn(random_table):
    pytest.importorskip("fairlearn")
    random_table.loc[random_table["index"] % 50 == 3, "pgd20_pred"] = pd.NA
    found = outcomes(random_table, ("x", "y", "z"))
    measured = Outcomes(found.frame[found.frame["pgd20_pred"].notna()], found.manifest)
    by_class = class_errors(found.frame, "pgd20", found.classes).set_index("class")
    by_group = group_errors(found, "race", "pgd20")
    groups = by_group.groups.set_index("group")
    for attack, error in ((None, "std"), ("pgd20", "rob")):
        theirs = measured.metric_frame("label", attack).by_group["error"]
        assert (100 * theirs).to_dict() == pytest.approx(by_class[error].to_dict())
        theirs = measured.metric_frame("race", attack).by_group["error"].drop(index=list(by_group.left_out))
        assert (100 * theirs).to_dict() == pytest.approx(groups[error].to_dict())
        assert 100 * (theirs.max() - theirs.min()) == pytest.approx(by_group.gap[error])
    assert list(by_group.left_out) == ["tiny"]


def test_fairlearn_takes_combinations_and_other_metrics(random_table):
    pytest.importorskip("fairlearn")
    from fairlearn.metrics import count

    frame = outcomes(random_table, ("x", "y", "z")).metric_frame(["label", "race"], metrics={"n": count})
    assert frame.by_group["n"].sum() == 600
    assert frame.by_group.index.names == ["label", "race"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("sex",), "no attribute 'sex'"), (("race", "pgd7"), "no attack 'pgd7'. Did you mean 'pgd20'")],
)
def test_a_metric_frame_of_what_is_not_there_is_refused(random_table, arguments, message):
    pytest.importorskip("fairlearn")
    with pytest.raises(OutcomesError, match=message):
        outcomes(random_table, ("x", "y", "z")).metric_frame(*arguments)


def test_without_fairlearn_the_extra_is_named(random_table, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fairlearn.metrics", None)
    with pytest.raises(OutcomesError, match="pip install fairlearn"):
        outcomes(random_table, ("x", "y", "z")).metric_frame("race")
