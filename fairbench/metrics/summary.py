"""``summarize``: from an outcome table to the numbers of the report."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairbench.metrics import unfairness
from fairbench.metrics.classwise import PRINTED_ERRORS, class_errors, count_cells, errors_from_cells
from fairbench.metrics.intervals import Interval, percentile_interval, rate_intervals, resample
from fairbench.metrics.least_epsilon import LeastEpsilons, least_epsilons
from fairbench.metrics.least_steps import LeastSteps, least_steps
from fairbench.outcomes import Outcomes


@dataclass(frozen=True)
class AttackSummary:
    """What one attack did to each class. Errors in percent, CRU_s in points, CAU a fraction; NaN where not measured.

    ``classes`` has a row per class (``class``, ``n`` and the errors); ``intervals`` maps each scalar to its 95 %
    interval and ``class_intervals`` each class name to those of its errors; ``not_measured`` counts the rows without a
    prediction under this attack. The worst class of one metric need not be that of another.
    """

    attack: str
    epsilon: float | None
    avg_std: float
    avg_bndy: float
    avg_rob: float
    strict_bndy_avg: float
    worst_std: float
    worst_std_class: str | None
    worst_bndy: float
    worst_bndy_class: str | None
    worst_rob: float
    worst_rob_class: str | None
    cau: float
    cru_s: float
    cru_s_correct: float
    n: int
    not_measured: int
    intervals: dict[str, Interval]
    class_intervals: dict[str, dict[str, Interval]]
    classes: pd.DataFrame
    least_epsilon: LeastEpsilons | None = None
    """Of a search for least epsilon, whose errors are those at the largest radius."""
    least_steps: LeastSteps | None = None
    """Of a count of the least steps, whose errors are those after all steps, any iterate counting."""

    def __repr__(self) -> str:
        errors = (
            f"{name} {getattr(self, f'avg_{name}'):.2f}, worst {getattr(self, f'worst_{name}'):.2f} "
            f"{getattr(self, f'worst_{name}_class')}"
            for name in ("std", "rob")
        )
        return f"<AttackSummary of {self.attack}, {self.n:,} examples: {'; '.join(errors)}>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, NaN as None."""
        scalars = (
            "epsilon avg_std worst_std worst_std_class avg_bndy worst_bndy worst_bndy_class avg_rob worst_rob "
            "worst_rob_class strict_bndy_avg cau cru_s cru_s_correct n not_measured"
        ).split()
        plain: dict[str, Any] = {name: _plain(getattr(self, name)) for name in scalars}
        plain["intervals"] = {name: _plain(interval) for name, interval in self.intervals.items()}
        plain["intervals"]["classes"] = {
            name: {error: _plain(interval) for error, interval in intervals.items()}
            for name, intervals in self.class_intervals.items()
        }
        plain["classes"] = _plain(self.classes.to_dict("records"))
        if self.least_epsilon is not None:
            plain["least_epsilon"] = _plain(self.least_epsilon.to_dict())
        if self.least_steps is not None:
            plain["least_steps"] = _plain(self.least_steps.to_dict())
        return plain


@dataclass(frozen=True)
class Summary:
    """The report of one run: what was evaluated, and one :class:`AttackSummary` per attack."""

    model: str
    dataset: str
    protocol: str
    modified: dict[str, Any]
    n: int
    seed: int | None
    attacks: dict[str, AttackSummary]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    transfer_from: str | None = None
    """The model that the attacks were made for, where it is not the one evaluated."""
    precision: str = "float32"
    """What attacks computed gradients in."""

    def __repr__(self) -> str:
        attacks = ", ".join(self.attacks) or "no attack"
        return f"<Summary of {self.model} on {self.dataset}: {self.n:,} examples, {self.protocol}, {attacks}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the document that ``--json`` prints and ``summary.json`` keeps."""
        return {
            "model": self.model,
            **({} if self.transfer_from is None else {"transfer_from": self.transfer_from}),
            "dataset": self.dataset,
            **({} if self.precision == "float32" else {"precision": self.precision}),
            "protocol": self.protocol,
            "modified": self.modified,
            "n": self.n,
            "seed": self.seed,
            "attacks": {name: attack.to_dict() for name, attack in self.attacks.items()},
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def summarize(outcomes: Outcomes) -> Summary:
    """Compute every class-wise metric of an outcome table, with 95 % intervals.

    Examples
    --------
    >>> frame = pd.DataFrame({"index": [0, 1, 2], "label": [0, 0, 1], "clean_pred": [0, 0, 1], "pgd20_pred": [1, 0, 1]})
    >>> pgd20 = summarize(Outcomes(frame, {"dataset": {"classes": ["cat", "dog"]}})).attacks["pgd20"]
    >>> pgd20.worst_rob, pgd20.worst_rob_class, pgd20.cru_s
    (50.0, 'cat', 50.0)
    """
    manifest = outcomes.manifest
    protocol = manifest.get("protocol", {})
    return Summary(
        model=manifest.get("model", {}).get("name", "unnamed"),
        dataset=manifest["dataset"].get("name", "unnamed"),
        protocol=protocol.get("name", "custom"),
        modified=protocol.get("modified", {}),
        n=len(outcomes),
        seed=protocol.get("seed"),
        attacks={attack: _summarize_attack(outcomes, attack) for attack in outcomes.attacks},
        warnings=tuple(manifest.get("warnings", ())),
        notes=tuple(manifest.get("notes", ())),
        transfer_from=manifest.get("transfer_from", {}).get("name"),
        precision=outcomes.precision,
    )


def _summarize_attack(outcomes: Outcomes, attack: str) -> AttackSummary:
    cells = count_cells(outcomes.frame, attack, len(outcomes.classes))
    table = class_errors(outcomes.frame, attack, outcomes.classes)
    average = {name: float(value) for name, value in errors_from_cells(cells.sum(axis=0)).items()}
    worst = {name: _worst(table, name) for name in PRINTED_ERRORS}
    return AttackSummary(
        attack=attack,
        epsilon=outcomes.manifest.get("attacks", {}).get(attack, {}).get("epsilon"),
        avg_std=average["std"],
        avg_bndy=average["bndy"],
        avg_rob=average["rob"],
        strict_bndy_avg=average["strict_bndy"],
        worst_std=worst["std"][0],
        worst_std_class=worst["std"][1],
        worst_bndy=worst["bndy"][0],
        worst_bndy_class=worst["bndy"][1],
        worst_rob=worst["rob"][0],
        worst_rob_class=worst["rob"][1],
        cau=float(unfairness.cau(cells)),
        cru_s=float(unfairness.cru_s(cells)),
        cru_s_correct=float(unfairness.cru_s_correct(cells)),
        n=int(cells.sum()),
        not_measured=len(outcomes) - int(cells.sum()),
        intervals=_intervals(cells),
        class_intervals={c: rate_intervals(cells[i]) for i, c in enumerate(outcomes.classes)},
        classes=table,
        least_epsilon=least_epsilons(outcomes, attack),
        least_steps=least_steps(outcomes, attack),
    )


def _worst(table: pd.DataFrame, error: str) -> tuple[float, str | None]:
    """Return the largest class value and its class; the first of equals."""
    if table[error].isna().all():
        return float("nan"), None
    row = int(table[error].to_numpy(na_value=-np.inf).argmax())
    return float(table[error].iloc[row]), str(table["class"].iloc[row])


def _intervals(cells: np.ndarray) -> dict[str, Interval]:
    average = rate_intervals(cells.sum(axis=0))
    resampled = resample(cells)
    found: dict[str, Interval] = {f"avg_{name}": average[name] for name in PRINTED_ERRORS}
    found["strict_bndy_avg"] = average["strict_bndy"]
    drawn, observed = errors_from_cells(resampled), errors_from_cells(cells)
    for name in PRINTED_ERRORS:
        found[f"worst_{name}"] = percentile_interval(_largest, drawn[name], float(_largest(observed[name])))
    for statistic in (unfairness.cau, unfairness.cru_s, unfairness.cru_s_correct):
        found[statistic.__name__] = percentile_interval(statistic, resampled, float(statistic(cells)))
    return found


def _largest(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), -np.inf, values).max(-1)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
