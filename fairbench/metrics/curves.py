"""Success rate of the attack per class over epsilon, and CRU_s at each (``sooksatra2022``, Figures 2 and 3).

A curve is read off a search for least epsilon: at an epsilon are broken all examples whose least epsilon is not above
it. So a curve never falls, and one search gives all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fairbench.errors import OutcomesError
from fairbench.metrics.intervals import BOOTSTRAP_SEED, DRAWS, percentile_interval, wilson
from fairbench.metrics.unfairness import spread
from fairbench.outcomes import Outcomes

_ROUNDING = 1e-3
"""Share of the distance between radii that counts as none: they are kept in float32."""


@dataclass(frozen=True)
class Curves:
    """Success rates in percent with 95 % intervals; clean errors count as broken at every epsilon.

    Parameters
    ----------
    classes
        A row per epsilon and class: ``epsilon``, ``class``, ``n``, ``broken``, ``low``, ``high`` (Wilson).
    overall
        A row per epsilon: ``epsilon``, ``average`` with ``average_low`` and ``average_high`` (Wilson), ``worst`` and
        ``worst_class``, ``cru_s`` in percentage points with ``cru_s_low`` and ``cru_s_high`` (bootstrap).
    """

    classes: pd.DataFrame
    overall: pd.DataFrame


def success_curves(outcomes: Outcomes, attack: str, epsilons: Sequence[float]) -> Curves:
    """Return the success rates of a least-epsilon search at some of its radii.

    Raises
    ------
    OutcomesError
        There was no such search, an epsilon is none of its radii, or they do not rise.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 1]})
    >>> frame["least-epsilon_pred"], frame["least-epsilon_epsilon"] = [1, 1, 0], [0.1, 0.2, 0.1]
    >>> search = {"least-epsilon": {"epsilon": 0.2, "resolution": 0.1}}
    >>> outcomes = Outcomes(frame, {"dataset": {"classes": ["cat", "dog"]}, "attacks": search})
    >>> success_curves(outcomes, "least-epsilon", [0.0, 0.1]).overall["cru_s"].tolist()
    [0.0, 50.0]
    """
    column = f"{attack}_epsilon"
    if column not in outcomes.frame:
        raise OutcomesError(f"the outcomes have no {column}: a curve needs a search for least epsilon.")
    radii = _checked(epsilons, outcomes.manifest["attacks"][attack])
    frame = outcomes.frame[outcomes.frame[f"{attack}_pred"].notna()]
    label = frame["label"].to_numpy()
    rounding = _ROUNDING * outcomes.manifest["attacks"][attack]["resolution"]
    place = np.searchsorted(radii, frame[column].fillna(np.inf).to_numpy(dtype=float) - rounding)
    counts = np.zeros((len(outcomes.classes), len(radii) + 1), dtype=np.int64)
    np.add.at(counts, (label, place), 1)
    n, broken = counts.sum(axis=1), counts.cumsum(axis=1)[:, :-1]
    drawn = _drawn(counts)
    classes, overall = [], []
    for e, epsilon in enumerate(radii):
        for c, name in enumerate(outcomes.classes):
            row = {"epsilon": epsilon, "class": name, "n": int(n[c]), "broken": _share(broken[c, e], n[c])}
            classes.append(row | dict(zip(("low", "high"), wilson(broken[c, e], n[c]), strict=True)))
        shares = np.array([_share(broken[c, e], n[c]) for c in range(len(n))])
        low, high = wilson(broken[:, e].sum(), n.sum())
        gap = float(spread(shares))
        gap_low, gap_high = percentile_interval(spread, drawn[:, :, e], gap)
        worst = int(np.nanargmax(shares))
        overall.append(
            {
                "epsilon": epsilon,
                "average": _share(broken[:, e].sum(), n.sum()),
                "average_low": low,
                "average_high": high,
                "worst": shares[worst],
                "worst_class": outcomes.classes[worst],
                "cru_s": gap,
                "cru_s_low": gap_low,
                "cru_s_high": gap_high,
            }
        )
    return Curves(pd.DataFrame(classes), pd.DataFrame(overall))


def _checked(epsilons: Sequence[float], search: dict[str, float]) -> np.ndarray:
    radii = np.asarray(epsilons, dtype=float)
    if not len(radii) or not np.isfinite(radii).all() or (np.diff(radii) <= 0).any():
        raise OutcomesError(f"epsilons {', '.join(f'{value:g}' for value in radii)}: give one or more, rising.")
    largest, resolution = search["epsilon"], search["resolution"]
    rounding = _ROUNDING * resolution
    for value in radii:
        level = value / resolution
        on_grid = abs(level - round(level)) < _ROUNDING or abs(value - largest) < rounding
        if not on_grid or not 0 <= value <= largest + rounding:
            raise OutcomesError(
                f"epsilon {value:g} is none of the radii searched: multiples of {resolution:g} up to {largest:g}."
            )
    return radii


def _share(count: int, n: int) -> float:
    return 100 * float(count) / float(n) if n else float("nan")


def _drawn(counts: np.ndarray) -> np.ndarray:
    """Resample each class's examples; return (draws, K, E) success rates, NaN for a class without an example."""
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    n = counts.sum(axis=1)
    shares = counts / np.maximum(n, 1)[:, None]
    shares[n == 0, 0] = 1.0
    drawn = generator.multinomial(n, shares, size=(DRAWS, len(n))).cumsum(axis=-1)[..., :-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return 100 * drawn / n[None, :, None]
