"""Hold a submission to its weights: attack some of its rows again, and say how likely an honest one would look this far
off. ``docs/leaderboard.md`` has the arithmetic.

Three questions, each with its own answer:

- Clean predictions have no chance in them: every row must agree but for those that rounding can decide.
- Rows claimed robust that *every* one of many runs breaks. An example whose outcome depends on the random start has a
  chance p of being broken; that the claimed run alone was the lucky one has the chance (1 - p) p^m.
- The claimed run against one with a fresh seed. For an honest submission the two are exchangeable: rows that only the
  claim calls robust are as many, but for chance, as those that only the fresh run does (McNemar's exact test).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from scipy.stats import beta, binom

from fairbench.outcomes import Outcomes

SHARE_ROBUST = 0.9
"""Share of the sample that is taken from rows claimed robust: only there can a claim be too good."""
REPEATS = 98
"""Further runs of each row that is claimed robust and that both first runs broke."""
PRIOR = (1.0, 500.0)
"""Beta prior of the rate at which two runs with different seeds disagree about a row: two in a thousand, give or take.

Measured: 12 of 40,000 (PGD-20, four LeNet-5 of the zoo; benchmarks/results/verify_rates.json).
"""
ROUNDING = 1e-3
"""Difference of probabilities that another machine's rounding explains."""
DOUBTFUL, REJECTED = 0.01, 0.001
"""Below these probabilities a submission is doubtful, or rejected."""

Clean = tuple[np.ndarray, np.ndarray, np.ndarray]


class AttackAgain(Protocol):
    """Attacks examples with a seed, each some times, and returns by attack (copies, M) bool: broken."""

    def __call__(self, index: np.ndarray, seed: int, copies: int = 1) -> dict[str, np.ndarray]:
        """Attack."""
        ...


@dataclass(frozen=True)
class AttackCompared:
    """One attack's rows, claimed and found.

    ``same_over``, ``fresh_over``: claimed robust and broken by the run with the submission's seed, with the fresh one;
    ``same_under``, ``fresh_under``: the reverse. ``disagree``: the verifier's own two runs differ. ``always_broken``:
    index of the rows claimed robust that all ``runs`` broke. ``p_always`` and ``p_fresh`` are the chances of an honest
    submission to look so, or worse.
    """

    attack: str
    rows: int
    robust_rows: int
    same_over: int
    same_under: int
    fresh_over: int
    fresh_under: int
    disagree: int
    runs: int
    always_broken: tuple[int, ...]
    p_always: float
    p_fresh: float


@dataclass(frozen=True)
class Verdict:
    """What came of it. ``probability``: that an honest submission looks this far off or further."""

    verdict: Literal["consistent", "doubtful", "rejected"]
    probability: float
    seed: int
    examples: int
    clean_rows: int
    clean_differ: tuple[int, ...]
    attacks: tuple[AttackCompared, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            **{k: getattr(self, k) for k in ("verdict", "probability", "seed", "examples", "clean_rows")},
            "clean_differ": list(self.clean_differ),
            "attacks": [vars(a) | {"always_broken": list(a.always_broken)} for a in self.attacks],
        }


def verify(
    claimed: Outcomes,
    attacks: tuple[str, ...],
    *,
    examples: int,
    seed: int,
    own_seed: int,
    attack: AttackAgain,
    clean: Callable[[], Clean],
) -> Verdict:
    """Compare a submission's rows with what its weights do now.

    Parameters
    ----------
    attacks
        Which of the protocol's attacks are repeated.
    examples
        Number of rows that are attacked again.
    seed
        Draws the sample, and the starts of the fresh runs.
    own_seed
        The seed that the submission was made with.
    attack, clean
        Run the model: see :class:`fairbench.evaluation.again.Again`.
    """
    frame = claimed.frame
    index, label = frame["index"].to_numpy(), frame["label"].to_numpy()
    differ = _clean_differences(claimed, clean())
    broken = {a: frame[f"{a}_pred"].to_numpy(dtype=np.int64) != label for a in attacks}
    rows = sample_rows(np.logical_and.reduce(list(broken.values())), label, examples, seed)
    fresh_seed = seed if seed != own_seed else seed + 1
    same, fresh = attack(index[rows], own_seed), attack(index[rows], fresh_seed)
    suspects = {a: rows[~broken[a][rows] & same[a][0] & fresh[a][0]] for a in attacks}
    again = np.unique(np.concatenate(list(suspects.values())))
    more = attack(index[again], fresh_seed + 1, REPEATS) if len(again) else {}
    compared = []
    for a in attacks:
        always = [int(index[r]) for r in suspects[a] if more[a][:, np.searchsorted(again, r)].all()]
        both = same[a][0], fresh[a][0]
        compared.append(_compare(a, broken[a], label, rows, runs=both, always=tuple(always)))
    chances = [p for c in compared for p in (c.p_always, c.p_fresh)]
    probability = 0.0 if len(differ) else min(1.0, len(chances) * min(chances))
    verdict: Literal["consistent", "doubtful", "rejected"] = (
        "rejected" if probability < REJECTED else "doubtful" if probability < DOUBTFUL else "consistent"
    )
    return Verdict(verdict, probability, seed, len(rows), len(index), differ, tuple(compared))


def sample_rows(broken: np.ndarray, label: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Draw positions of rows, most of them from those not claimed broken by all attacks; sorted.

    Each kind is drawn evenly from all classes, so that the worst class, which decides the rank, is looked at closely.
    Where a class or a kind has too few rows, the others make up for it.
    """
    generator = np.random.default_rng(seed)
    count = min(count, len(broken))
    robust, others = np.flatnonzero(~broken), np.flatnonzero(broken)
    wanted = min(len(robust), max(round(SHARE_ROBUST * count), count - len(others)))
    drawn = [_evenly(robust, label, wanted, generator), _evenly(others, label, count - wanted, generator)]
    return np.sort(np.concatenate(drawn))


def _evenly(rows: np.ndarray, label: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    """Draw as many rows of each class as there are, up to a number that is the same for all."""
    shuffled = generator.permutation(rows)
    turn = pd.Series(label[shuffled]).groupby(label[shuffled]).cumcount().to_numpy()
    return shuffled[np.argsort(turn, kind="stable")[:count]]


def chance_always_broken(found: int, robust_rows: int, rows: int, disagree: int, runs: int) -> float:
    """Return the probability that an honest submission has ``found`` rows or more that all ``runs`` broke.

    Of the rows that depend on the start, as many are taken to have a chance p of being broken near 0 and near 1 as the
    density 1 / (p (1 - p)) says. If two runs disagree about a row at the rate D, it is claimed robust, and broken by
    all of m other runs, at the rate D / (2 m). D is known from ``disagree`` of ``rows`` and :data:`PRIOR`.

    Examples
    --------
    >>> chance_always_broken(0, 450, 500, 0, 100)
    1.0
    >>> [f"{chance_always_broken(found, 450, 500, 0, 100):.2g}" for found in (1, 2)]
    ['0.0022', '5e-06']
    """
    if found == 0:
        return 1.0
    levels = (np.arange(2_000) + 0.5) / 2_000
    rates = beta.ppf(levels, PRIOR[0] + disagree, PRIOR[1] + rows - disagree)
    return float(binom.sf(found - 1, robust_rows, rates / (2 * runs)).mean())


def chance_fresh(over: int, odds: np.ndarray) -> float:
    """Return the probability that an honest submission has ``over`` of the differing rows, or more, in its favour.

    McNemar's exact test, one-sided. Rows claimed robust were drawn at another rate than the others, so a row that
    differs is in the submission's favour with the odds of its class, not with one half.

    Parameters
    ----------
    odds
        One for each row that differs: a / (a + b), if the share a of the rows of its class that are claimed robust was
        drawn, and the share b of those claimed broken.

    Examples
    --------
    >>> chance_fresh(5, np.full(5, 0.5))
    0.03125
    """
    chances = np.ones(1)
    for p in odds:
        chances = np.convolve(chances, [1 - p, p])
    return float(min(1.0, chances[over:].sum()))


def _clean_differences(claimed: Outcomes, clean: Clean) -> tuple[int, ...]:
    """Return the index of rows whose clean prediction or confidence is not the model's, rounding aside."""
    predicted, confidence, margin = clean
    frame = claimed.frame
    wrong = (frame["clean_pred"].to_numpy() != predicted) & (margin > ROUNDING)
    if "clean_confidence" in frame:
        wrong |= np.abs(frame["clean_confidence"].to_numpy(dtype=float) - confidence) > ROUNDING
    return tuple(frame["index"].to_numpy()[wrong].tolist())


def _compare(
    attack: str,
    broken: np.ndarray,
    label: np.ndarray,
    rows: np.ndarray,
    *,
    runs: tuple[np.ndarray, np.ndarray],
    always: tuple[int, ...],
) -> AttackCompared:
    said, (same, fresh) = broken[rows], runs
    robust, disagree = int((~said).sum()), int((same != fresh).sum())
    over, under = int((~said & fresh).sum()), int((said & ~fresh).sum())
    differing = label[rows][said != fresh]
    return AttackCompared(
        attack=attack,
        rows=len(rows),
        robust_rows=robust,
        same_over=int((~said & same).sum()),
        same_under=int((said & ~same).sum()),
        fresh_over=over,
        fresh_under=under,
        disagree=disagree,
        runs=REPEATS + 2,
        always_broken=always,
        p_always=chance_always_broken(len(always), robust, len(rows), disagree, REPEATS + 2),
        p_fresh=chance_fresh(over, _odds(broken, label, rows)[differing]),
    )


def _odds(broken: np.ndarray, label: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the odds of each class, (K,): how much closer its rows claimed robust were looked at than the others."""
    size = int(label.max()) + 1
    shares = []
    for kind in (~broken, broken):
        there = np.bincount(label[kind], minlength=size)
        drawn = np.bincount(label[rows][kind[rows]], minlength=size)
        shares.append(drawn / np.maximum(there, 1))
    total = shares[0] + shares[1]
    return np.divide(shares[0], total, out=np.ones(size), where=total > 0)
