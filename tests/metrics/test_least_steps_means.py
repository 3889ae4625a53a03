"""Class means of the least steps, against a table computed by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes, summarize

LIMIT = 100


def outcomes(steps, classes=("cat", "dog", "fox")):
    """One example per entry: None withstands, 0 is wrong clean."""
    label = np.concatenate([np.full(len(s), c) for c, s in enumerate(steps)]).astype(int)
    at = pd.array([s for of_class in steps for s in of_class], dtype="Int16")
    wrong = (label + 1) % len(classes)
    frame = pd.DataFrame({"index": range(len(label)), "label": label, "least-steps_broken_at": at})
    frame["clean_pred"] = np.where(at.fillna(-1) == 0, wrong, label)
    frame["least-steps_pred"] = np.where(at.isna(), label, wrong)
    frame["least-steps_censored"] = at.isna()
    manifest = {"dataset": {"classes": list(classes)}, "attacks": {"least-steps": {"epsilon": 0.03, "steps": LIMIT}}}
    return Outcomes(frame, manifest)


def found(steps):
    return summarize(outcomes(steps)).attacks["least-steps"].least_steps


def test_who_withstands_counts_as_the_limit_and_the_broken_stand_alone_beside():
    measured = found([[10, 20, None, None], [0, 30], []])
    assert measured.classes["mean"].tolist()[:2] == [(10 + 20 + 100 + 100) / 4, 15]
    assert measured.classes["mean_broken"].tolist()[:2] == [15, 15]
    assert measured.classes["censored"].tolist() == [2, 0, 0]
    assert measured.classes.loc[2, ["mean", "low", "high", "mean_broken"]].isna().all()
    assert (measured.average, measured.censored, measured.limit) == ((230 + 30) / 6, 2, LIMIT)
    assert measured.most == 30


def test_where_all_withstand_the_broken_have_no_mean():
    assert found([[None], [None], []]).most is None
    measured = found([[None, None], [5, 5], []])
    assert measured.classes["mean"].tolist()[:2] == [LIMIT, 5]
    assert np.isnan(measured.classes["mean_broken"][0])
    assert tuple(measured.classes.loc[0, ["low", "high"]]) == (LIMIT, LIMIT)


def test_intervals_contain_the_value_and_shrink_with_more_examples():
    rng = np.random.default_rng(0)
    widths = []
    for n in (40, 640):
        row = found([list(rng.integers(1, 50, n)), list(rng.integers(1, 50, n)), []]).classes.iloc[0]
        assert row["low"] <= row["mean"] <= row["high"]
        assert row["mean_broken_low"] <= row["mean_broken"] <= row["mean_broken_high"]
        widths.append(row["high"] - row["low"])
    assert widths[1] < widths[0] / 2


def test_it_is_in_the_document_only_for_this_attack():
    document = json.loads(json.dumps(summarize(outcomes([[10], [None], []])).to_dict(), allow_nan=False))
    steps = document["attacks"]["least-steps"]["least_steps"]
    assert (steps["limit"], steps["censored"], steps["classes"][1]["mean_broken"]) == (LIMIT, 1, None)
    assert steps["intervals"]["average"] == pytest.approx([55, 55])
    frame = outcomes([[10], [20], []]).frame.rename(columns=lambda c: c.replace("least-steps", "pgd20"))
    plain = summarize(Outcomes(frame.drop(columns="pgd20_censored"), {"dataset": {"classes": ["a", "b", "c"]}}))
    assert "least_steps" not in plain.attacks["pgd20"].to_dict()
