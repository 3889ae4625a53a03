"""Verify: an honest submission passes, whatever the seed; 1 % of rows turned from broken to robust is found.

The model here is the cheapest there is: row i is broken by a run with its own chance p_i. A few rows depend on the
random start, the others do not.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom

from fairbench import Outcomes
from fairbench.leaderboard.verify import (
    SHARE_ROBUST,
    Verdict,
    chance_always_broken,
    chance_fresh,
    sample_rows,
    verify,
)

N = 10_000


class Rows:
    """A model as its rows: the chance of each to be broken, and a clean answer that is right."""

    def __init__(self, error: float, ambiguous: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.label = rng.integers(0, 10, N)
        self.chance = (rng.random(N) < error).astype(float)
        some = rng.random(N) < ambiguous
        self.chance[some] = 1 / (1 + np.exp(-rng.uniform(-5, 5, some.sum())))  # density 1 / (p (1 - p))
        self.confidence = rng.uniform(0.5, 1, N)

    def run(self, seed: int, index: np.ndarray, copies: int = 1) -> np.ndarray:
        """The same seed gives the same rows, whichever others are asked for."""
        draws = np.random.default_rng(seed).random((copies, N))
        return draws[:, index] < self.chance[index]

    def claim(self, flipped: int = 0, seed: int = 0) -> Outcomes:
        broken = self.run(0, np.arange(N))[0]
        turned = np.random.default_rng(seed).choice(np.flatnonzero(broken), flipped, replace=False)
        broken[turned] = False
        frame = pd.DataFrame({"index": np.arange(N), "label": self.label, "clean_pred": self.label})
        frame["clean_confidence"] = self.confidence
        frame["pgd20_pred"] = np.where(broken, (self.label + 1) % 10, self.label)
        return Outcomes(frame, {"dataset": {"classes": [str(c) for c in range(10)]}})

    def verify(self, claimed: Outcomes, examples: int, seed: int) -> Verdict:
        return verify(
            claimed,
            ("pgd20",),
            examples=examples,
            seed=seed,
            own_seed=0,
            attack=lambda index, seed, copies=1: {"pgd20": self.run(seed, index, copies)},
            clean=lambda: (self.label, self.confidence, np.ones(N)),
        )


MODELS = [(0.24, 0.001), (0.55, 0.01), (0.9, 0.01), (0.04, 0.005)]


@pytest.mark.parametrize(("error", "ambiguous"), MODELS)
def test_one_percent_turned_robust_is_caught_in_more_than_95_of_100(error, ambiguous):
    model = Rows(error, ambiguous, 1)
    caught = [model.verify(model.claim(100, s), 500, 1_000 + s).verdict != "consistent" for s in range(150)]
    assert np.mean(caught) > 0.95


@pytest.mark.parametrize(("error", "ambiguous"), MODELS)
def test_an_honest_submission_is_hardly_ever_doubted(error, ambiguous):
    model = Rows(error, ambiguous, 2)
    verdicts = [model.verify(model.claim(), 500, 1_000 + s).verdict for s in range(150)]
    assert verdicts.count("consistent") >= 148
    assert "rejected" not in verdicts


@pytest.mark.parametrize("robust", [2_000, 5_100, 7_700, 9_600])
def test_the_sample_holds_a_turned_row_with_the_probability_the_docs_state(robust):
    """One row is enough where the verifier's own runs agree; two are where a few of them differ."""
    drawn = round(SHARE_ROBUST * 500)
    one, two = (hypergeom.sf(k - 1, robust, 100, drawn) for k in (1, 2))
    assert one > 0.99
    assert two > 0.95
    broken = np.zeros(N, dtype=bool)
    broken[robust:] = True
    assert (sample_rows(broken, np.arange(N) % 10, 500, 0) < robust).sum() == drawn


def test_thirty_rows_of_the_worst_class_are_caught_because_classes_are_looked_at_alike():
    """Thirty rows of the worst class, three in a thousand of all: three points of the error that decides the rank."""
    model = Rows(0.15, 0.001, 5)
    worst = model.label == 3
    model.chance[worst] = (np.arange(worst.sum()) % 3 > 0).astype(float)
    caught = 0
    for s in range(60):
        claimed = model.claim()
        frame = claimed.frame.copy()
        broken = np.flatnonzero(worst & (frame["pgd20_pred"] != frame["label"]).to_numpy())
        turned = np.random.default_rng(s).choice(broken, 30, replace=False)
        frame.loc[turned, "pgd20_pred"] = frame.loc[turned, "label"]
        caught += model.verify(Outcomes(frame, claimed.manifest), 500, 100 + s).verdict != "consistent"
    assert caught / 60 > 0.9


def test_a_single_row_suffices_where_the_runs_agree_and_two_where_some_do_not():
    assert 2 * chance_always_broken(1, 450, 500, 0, 100) < 0.01
    assert 4 * chance_always_broken(1, 450, 500, 0, 100) < 0.01  # PGD-20 and AutoAttack: four questions
    assert 4 * chance_always_broken(1, 450, 500, 5, 100) > 0.01
    assert 4 * chance_always_broken(2, 450, 500, 5, 100) < 0.001


def test_the_chance_of_an_honest_row_is_what_a_simulation_of_its_model_gives():
    """Rows that depend on the start: claimed robust and always broken at the rate D / (2 m)."""
    rng = np.random.default_rng(0)
    chance = 1 / (1 + np.exp(-rng.uniform(-12, 12, 400_000)))
    disagree = (2 * chance * (1 - chance)).mean()
    for runs in (5, 20, 100):
        assert ((1 - chance) * chance**runs).mean() == pytest.approx(disagree / (2 * runs), rel=0.03)


def test_mcnemars_odds_follow_the_sampling():
    """By hand: nine of ten rows drawn are claimed robust, so nine of ten chance differences are in its favour."""
    assert chance_fresh(3, np.full(3, 0.9)) == pytest.approx(0.9**3)
    assert chance_fresh(0, np.full(3, 0.5)) == 1.0
    assert chance_fresh(4, np.ones(4)) == 1.0, "nothing was drawn to compare with"
    assert chance_fresh(1, np.array([0.5, 0.2])) == pytest.approx(1 - 0.5 * 0.8)
    assert chance_fresh(0, np.empty(0)) == 1.0


def test_a_model_tuned_to_the_fixed_seed_is_found_by_the_fresh_one():
    model = Rows(0.3, 0.0, 3)
    claimed = model.claim()
    tuned = np.random.default_rng(0).random(N) < 0.05

    def run(index: np.ndarray, seed: int, copies: int = 1) -> dict[str, np.ndarray]:
        found = model.run(seed, index, copies)
        return {"pgd20": found if seed == 0 else found | tuned[index]}

    clean = lambda: (model.label, model.confidence, np.ones(N))  # noqa: E731
    verdict = verify(claimed, ("pgd20",), examples=1_000, seed=5, own_seed=0, attack=run, clean=clean)
    assert verdict.attacks[0].same_over == 0
    assert verdict.attacks[0].fresh_over > 20
    assert verdict.verdict != "consistent"


def disturb(model: Rows, **changes: Callable) -> Verdict:
    predicted, confidence, margin = model.label.copy(), model.confidence.copy(), np.ones(N)
    for change in changes.values():
        change(predicted, confidence, margin)
    return verify(
        model.claim(),
        ("pgd20",),
        examples=100,
        seed=1,
        own_seed=0,
        attack=lambda index, seed, copies=1: {"pgd20": model.run(seed, index, copies)},
        clean=lambda: (predicted, confidence, margin),
    )


def test_clean_predictions_are_compared_on_every_row_but_those_that_rounding_decides():
    model = Rows(0.3, 0.0, 4)

    def other(predicted, confidence, margin):
        predicted[7] = (predicted[7] + 1) % 10

    def near(predicted, confidence, margin):
        margin[7] = 1e-6

    def surer(predicted, confidence, margin):
        confidence[9] += 0.01

    assert disturb(model).verdict == "consistent"
    assert disturb(model, other=other, near=near).verdict == "consistent"
    found = disturb(model, other=other)
    assert (found.verdict, found.clean_differ, found.probability) == ("rejected", (7,), 0.0)
    assert disturb(model, surer=surer).clean_differ == (9,)


def test_the_sample_is_the_seeds_and_never_more_than_there_is():
    broken, label = np.arange(100) < 95, np.arange(100) % 3
    assert sample_rows(broken, label, 1_000, 0).tolist() == list(range(100))
    assert len(sample_rows(broken, label, 50, 0)) == 50
    assert (sample_rows(~broken, label, 50, 3) == sample_rows(~broken, label, 50, 3)).all()
    assert len(sample_rows(np.ones(10, dtype=bool), label[:10], 4, 0)) == 4


def test_the_sample_is_even_over_classes_and_a_small_one_is_taken_whole():
    label = np.repeat([0, 1, 2], [5, 500, 500])
    rows = sample_rows(np.zeros(1_005, dtype=bool), label, 105, 1)
    assert np.bincount(label[rows]).tolist() == [5, 50, 50]
