"""Whether PGD-20 is misled on a model: what stronger attacks break beyond it, of the same examples."""

from collections.abc import Iterable
from dataclasses import dataclass

from fairbench.outcomes import Outcomes

LIMIT = 6.0
"""Points of robust error that a stronger attack may find more before PGD's figure misleads. Of the zoo's robust models
of images it finds -1.3 to 4.4 more on all but GAIRAT's two, on those 7.4 and 9.8 (docs/zoo.md, docs/zoo_cifar10.md)."""
LEAST = 500
"""Examples from which on a difference of that size is more than chance."""
PGD = "pgd20"
NAMES = {"autoattack": "AutoAttack", "cw20": "CW-20"}
"""The stronger attacks, as people call them."""


@dataclass(frozen=True)
class FoundMore:
    """What a stronger attack breaks beyond PGD-20.

    Parameters
    ----------
    attack
        One of :data:`NAMES`.
    points
        Difference of the two robust errors, in points of percent.
    examples
        How many both attacks were run on.
    """

    attack: str
    points: float
    examples: int

    @property
    def misled(self) -> bool:
        """Whether that is so much that PGD-20's figure misleads."""
        return self.points > LIMIT

    def __str__(self) -> str:
        """Return "CW-20 breaks 9.8 points more of 1,000 examples"."""
        return f"{NAMES[self.attack]} breaks {self.points:.1f} points more of {self.examples:,} examples"


def found_more(outcomes: Outcomes, others: Iterable[Outcomes]) -> FoundMore | None:
    """Return the most that a stronger attack breaks beyond PGD-20.

    Parameters
    ----------
    outcomes
        With ``pgd20``; else there is nothing to compare.
    others
        Tables of the same model, data and radius, which may be of some of the examples.

    Returns
    -------
    FoundMore or None
        None where none was run on the same examples, :data:`LEAST` of them.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"index": range(1000), "label": 0, "clean_pred": 0})
    >>> weak = frame.assign(pgd20_pred=[1] * 300 + [0] * 700)
    >>> strong = frame.assign(cw20_pred=[1] * 370 + [0] * 630)
    >>> manifest = {"dataset": {"classes": ["cat", "dog"]}}
    >>> str(found_more(Outcomes(weak, manifest), [Outcomes(strong, manifest)]))
    'CW-20 breaks 7.0 points more of 1,000 examples'
    """
    if PGD not in outcomes.attacks:
        return None
    weak = outcomes.frame[["index", "label", f"{PGD}_pred"]].dropna()
    found = []
    for other in others:
        for attack in (name for name in NAMES if name in other.attacks):
            strong = other.frame[["index", "label", f"{attack}_pred"]].rename(columns={f"{attack}_pred": "strong_pred"})
            both = weak.merge(strong.dropna(), on=["index", "label"])
            if len(both) >= LEAST:
                more = (both["strong_pred"] != both["label"]).sum() - (both[f"{PGD}_pred"] != both["label"]).sum()
                found.append(FoundMore(attack, 100 * int(more) / len(both), len(both)))
    return max(found, key=lambda one: one.points, default=None)
