"""Two models compared on the same examples: class by class, on average and in the worst class, with exact tests.

Differences are the second minus the first, in percentage points (CAU: a fraction); below 0 the second errs less.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import Interval, paired_difference, wilson
from fairbench.metrics.least_epsilon import cru_eps_difference
from fairbench.metrics.paired import Estimate, class_rates, differ_in_size, mcnemar, paired_bootstrap, paired_cells
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes

ERRORS = ("std", "rob")


@dataclass(frozen=True)
class Average:
    """Errors of both models over all examples in percent, their difference, and McNemar's exact p-value."""

    a: float
    b: float
    difference: float
    interval: Interval
    p: float


@dataclass(frozen=True)
class Worst:
    """The worst class of each model (NaN where nothing was measured) and the paired bootstrap of the difference."""

    a: float
    b: float
    class_a: str
    class_b: str
    difference: Estimate


@dataclass(frozen=True)
class Comparison:
    """What two models do differently under one attack.

    ``classes`` has a row per class and error ("std", "rob"): ``class``, ``error``, ``n``, ``a`` and ``b`` with ``_low``
    and ``_high`` (Wilson), ``difference`` with its ends (Newcombe's paired interval), ``only_a`` and ``only_b``
    (examples that only one of them gets wrong), ``p`` (McNemar's exact test), and ``p_holm``, corrected for the number
    of classes. ``cru_eps`` is there for a search for least epsilon. ``precisions`` is what the gradients of each
    model's attack were computed in, "float32" or "bfloat16"; ``epsilon`` is its radius, where it has one; ``shapes``
    are those of the inputs where they differ, as each model takes another size.
    """

    attack: str
    n: int
    classes: pd.DataFrame
    average: dict[str, Average]
    worst: dict[str, Worst]
    cau: Estimate
    cru_s: Estimate
    cru_eps: Estimate | None = None
    precisions: tuple[str, str] = ("float32", "float32")
    epsilon: float | None = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; NaN stays NaN."""
        return {
            "attack": self.attack,
            "epsilon": self.epsilon,
            "n": self.n,
            "precisions": list(self.precisions),
            "shapes": None if self.shapes is None else [list(shape) for shape in self.shapes],
            "classes": self.classes.to_dict("records"),
            "average": {error: vars(found) for error, found in self.average.items()},
            "worst": {e: vars(found) | {"difference": vars(found.difference)} for e, found in self.worst.items()},
            "cau": vars(self.cau),
            "cru_s": vars(self.cru_s),
            "cru_eps": None if self.cru_eps is None else vars(self.cru_eps),
        }


def compare(a: Outcomes, b: Outcomes, attack: str, *, resized: Collection[str] = ()) -> Comparison:
    """Compare two outcome tables of the same examples.

    Parameters
    ----------
    attack
        A column that both have.
    resized
        Names of datasets whose images were resized to what each model takes (``fashion_mnist`` at 28x28 and at 32x32):
        index and label tell their examples. Of others, images of another size are other images.

    Raises
    ------
    OutcomesError
        They are not of the same examples, one lacks the attack, or its parameters or the model it was made for differ.
    """
    cells, cru_eps = paired_cells(a, b, attack, resized), cru_eps_difference(a, b, attack, resized)
    if not same_attack(a, b, attack):
        raise OutcomesError(f"{attack} has other parameters, or was made for another model, in one of the two tables.")
    return Comparison(
        attack=attack,
        n=int(cells.sum()),
        classes=pd.concat([_classes(cells, a.classes, error) for error in ERRORS], ignore_index=True),
        average={error: _average(cells, error) for error in ERRORS},
        worst={error: _worst(cells, a.classes, error) for error in ERRORS},
        cau=_gap(cells, "std", 100),
        cru_s=_gap(cells, "rob", 1),
        cru_eps=cru_eps,
        precisions=(a.precision, b.precision),
        epsilon=a.manifest.get("attacks", {}).get(attack, {}).get("epsilon"),
        shapes=_shapes(a, b) if differ_in_size(a, b, resized) else None,
    )


def _shapes(a: Outcomes, b: Outcomes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(a.manifest["dataset"]["shape"]), tuple(b.manifest["dataset"]["shape"])


def same_attack(a: Outcomes, b: Outcomes, attack: str) -> bool:
    """Whether an attack was the same in two tables, and made for the model itself or for one of the same name."""
    terms = [(_parameters(o, attack), o.manifest.get("transfer_from", {}).get("name")) for o in (a, b)]
    return terms[0] == terms[1]


def _parameters(outcomes: Outcomes, attack: str) -> dict[str, Any]:
    """Return the parameters of an attack but its seed: another draw of the starts is the same attack."""
    return {k: v for k, v in outcomes.manifest.get("attacks", {}).get(attack, {}).items() if k != "seed"}


def holm(p: np.ndarray) -> np.ndarray:
    """Correct p-values for their number by Holm's step-down method (Scandinavian Journal of Statistics 6, 65-70, 1979).

    Examples
    --------
    >>> [round(float(v), 3) for v in holm(np.array([0.01, 0.04, 0.03]))]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(raised, 1.0)
    return corrected


def _both(cells: np.ndarray, error: str) -> np.ndarray:
    """Return (K, 2, 2) counts [class, first wrong, second wrong]."""
    return cells.sum(axis=(2, 4)) if error == "std" else cells.sum(axis=(1, 3))


def _classes(cells: np.ndarray, classes: tuple[str, ...], error: str) -> pd.DataFrame:
    both = _both(cells, error)
    rows = []
    for number, name in enumerate(classes):
        counts = both[number]
        n, wrong_a, wrong_b = int(counts.sum()), int(counts[1].sum()), int(counts[:, 1].sum())
        a, b = (100 * wrong / n if n else np.nan for wrong in (wrong_a, wrong_b))
        low, high = paired_difference(counts)
        rows.append(
            {
                "class": name,
                "error": error,
                "n": n,
                "a": a,
                "b": b,
                **dict(
                    zip(("a_low", "a_high", "b_low", "b_high"), wilson(wrong_a, n) + wilson(wrong_b, n), strict=True)
                ),
                "difference": b - a,
                "low": low,
                "high": high,
                "only_a": int(counts[1, 0]),
                "only_b": int(counts[0, 1]),
                "p": mcnemar(cells[number : number + 1], error) if n else np.nan,
            }
        )
    frame = pd.DataFrame(rows)
    known = frame["p"].notna().to_numpy()
    frame["p_holm"] = np.nan
    frame.loc[known, "p_holm"] = holm(frame.loc[known, "p"].to_numpy(dtype=float))
    return frame


def _average(cells: np.ndarray, error: str) -> Average:
    counts = _both(cells, error).sum(axis=0)
    n = counts.sum()
    a, b = 100 * float(counts[1].sum()) / n, 100 * float(counts[:, 1].sum()) / n
    return Average(a, b, b - a, paired_difference(counts), mcnemar(cells, error))


def _worst(cells: np.ndarray, classes: tuple[str, ...], error: str) -> Worst:
    rates = f"{error}_a", f"{error}_b"
    a, b = class_rates(cells, *rates)
    difference = paired_bootstrap(cells, lambda x, y: _largest(y) - _largest(x), *rates)
    return Worst(
        float(np.nanmax(a)),
        float(np.nanmax(b)),
        classes[int(np.nanargmax(a))],
        classes[int(np.nanargmax(b))],
        difference,
    )


def _largest(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), -np.inf, values).max(-1)


def _gap(cells: np.ndarray, error: str, unit: float) -> Estimate:
    return paired_bootstrap(cells, lambda x, y: (spread(y) - spread(x)) / unit, f"{error}_a", f"{error}_b")
