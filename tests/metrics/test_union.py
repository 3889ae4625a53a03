"""Attacks together, by hand: an example withstands only if it withstands each of them."""

import pandas as pd
import pytest

from fairbench.errors import OutcomesError
from fairbench.metrics import summarize, with_union
from fairbench.outcomes import Outcomes

NA = pd.NA


@pytest.fixture
def outcomes() -> Outcomes:
    """Six cats and dogs; the last one's clean prediction is wrong, and one attack was not measured on two."""
    frame = pd.DataFrame({"index": range(6), "label": [0, 0, 0, 1, 1, 1], "clean_pred": [0, 0, 0, 1, 1, 0]})
    frame["pgd20_pred"] = pd.array([0, 2, 0, 1, 1, 1], dtype="Int16")
    frame["mine_pred"] = pd.array([0, 1, 1, NA, 0, NA], dtype="Int16")
    frame["autoattack_pred"] = pd.array([0, 0, 0, 1, NA, 2], dtype="Int16")
    frame["least-epsilon_pred"] = pd.array([1] * 6, dtype="Int16")
    epsilons = {"pgd20": 0.1, "mine": 0.1, "autoattack": 0.1, "least-epsilon": 0.4}
    manifest = {"dataset": {"classes": ["cat", "dog", "bird"]}}
    return Outcomes(frame, manifest | {"attacks": {name: {"epsilon": e} for name, e in epsilons.items()}})


def test_what_any_attack_breaks_is_broken_where_all_were_measured(outcomes):
    found = with_union(outcomes)
    assert found.frame["any_pred"].tolist() == [0, 2, 1, NA, NA, NA]
    assert found.manifest["attacks"]["any"] == {"epsilon": 0.1, "any_of": ["pgd20", "mine", "autoattack"]}
    assert "any" not in outcomes.attacks
    assert "any" not in outcomes.manifest["attacks"]


def test_the_attack_named_first_gives_the_class(outcomes):
    assert with_union(outcomes, ["mine", "pgd20"]).frame["any_pred"].tolist() == [0, 1, 1, NA, 0, NA]
    assert with_union(with_union(outcomes)).frame["any_pred"].tolist() == [0, 2, 1, NA, NA, NA]


def test_its_errors_are_at_least_those_of_each(outcomes):
    summary = summarize(with_union(outcomes))
    of_any = summary.attacks["any"]
    assert (of_any.n, of_any.not_measured, of_any.epsilon) == (3, 3, 0.1)
    assert of_any.avg_rob == pytest.approx(200 / 3)
    assert all(of_any.avg_rob >= summary.attacks[name].avg_rob for name in ("pgd20", "autoattack"))


@pytest.mark.parametrize(
    ("attacks", "message"),
    [
        (["pgd20"], "two or more, and here is pgd20"),
        ([], "two or more, and here is none"),
        (["pgd20", "min"], "no attack 'min'. Did you mean 'mine'"),
        (["pgd20", "least-epsilon"], "have one epsilon"),
    ],
)
def test_what_is_no_union_is_one_line(attacks, message, outcomes):
    with pytest.raises(OutcomesError, match=message):
        with_union(outcomes, attacks)
