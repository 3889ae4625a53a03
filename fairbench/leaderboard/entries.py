"""Entries of the boards: what kept results and submissions say of a model, every figure recomputed from its table."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairbench.errors import OutcomesError
from fairbench.leaderboard.board import read_submission, versions
from fairbench.leaderboard.card import SubmissionCard
from fairbench.leaderboard.misled import by_the_protocol, subject
from fairbench.leaderboard.results import read_result, result_names, result_path, results_folder
from fairbench.leaderboard.zoo_card import zoo_card
from fairbench.metrics import AttackSummary, summarize
from fairbench.metrics.misled import FoundMore, found_more
from fairbench.outcomes import Outcomes
from fairbench.outcomes.table import TABLE

ATTACKS = ("autoattack", "pgd20")
"""The attack a row is judged by: the first that was measured."""


@dataclass(frozen=True)
class Evidence:
    """What an entry is made of.

    Parameters
    ----------
    table
        The outcome table's file.
    manifest
        Of the evaluation.
    confusion
        (K, K) int64 counts: row the true class, column the prediction under the attack.
    card
        Of a submission.
    """

    table: Path
    manifest: Mapping[str, Any]
    confusion: np.ndarray
    card: SubmissionCard | None = None


@dataclass(frozen=True)
class Entry:
    """A model on the board.

    Parameters
    ----------
    name, version
        Key, and the number of corrections plus one; 0 for a kept result of the project, which has none.
    source
        "zoo" for a model of the zoo, "public" for a public checkpoint evaluated by the project, "submission".
    sample
        Whether it was measured on the 1,000 images of `quick`: never ranked beside whole test splits.
    extra_data
        Training data beyond the dataset's own; "" for none, None where nobody said.
    precision
        What attacks computed gradients in, as the manifest says it: "float32" or "bfloat16".
    found_more
        What a stronger attack breaks beyond PGD-20, of an entry judged by that; None where none was run.
    """

    name: str
    title: str
    version: int
    source: str
    dataset: str
    epsilon: float
    sample: bool
    attack: AttackSummary
    extra_data: str | None
    paper: str | None = None
    precision: str = "float32"
    found_more: FoundMore | None = None
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    @property
    def misled(self) -> bool:
        """Whether its robust error is known to be much too low, because PGD-20 was misled."""
        return self.found_more is not None and self.found_more.misled


def read_entries(board: Path) -> list[Entry]:
    """Read the kept results and the latest version of every submission.

    Kept results are those in the board's folder, or the ones that came with the package where it has none.

    Raises
    ------
    OutcomesError
        One is damaged.
    """
    folder = kept_folder(board)
    kept_results = {name: read_result(name, folder) for name in result_names(folder)}
    entries = []
    for name, outcomes in kept_results.items():
        entry = _kept(outcomes, result_path(name, folder).with_suffix(".parquet"))
        entries += [] if entry is None else [(entry, outcomes)]
    for kept in versions(board).values():
        version = max(kept)
        card, outcomes = read_submission(kept[version])
        entries.append((_submitted(card, outcomes, version, kept[version] / TABLE), outcomes))
    return _one_each(_of_all_classes(_with_stronger(entries, kept_results.values())))


def kept_folder(board: Path) -> Path:
    """Return the folder of the kept results of a board: its own, or the one that came with the package."""
    return board / "results" if (board / "results").is_dir() else results_folder()


def _judged(outcomes: Outcomes) -> AttackSummary | None:
    attack = next((a for a in ATTACKS if a in outcomes.attacks), None)
    if attack is None:
        return None
    kept = [c for c in outcomes.frame if str(c).partition("_")[0] not in set(outcomes.attacks) - {attack}]
    return summarize(Outcomes(outcomes.frame[kept], outcomes.manifest)).attacks[attack]


def _confusion(outcomes: Outcomes, attack: str) -> np.ndarray:
    frame, k = outcomes.frame, len(outcomes.classes)
    frame = frame[frame[f"{attack}_pred"].notna()]
    cells = frame["label"].to_numpy(dtype=np.int64) * k + frame[f"{attack}_pred"].to_numpy(dtype=np.int64)
    return np.bincount(cells, minlength=k * k).reshape(k, k)


def _with_stronger(entries: Iterable[tuple[Entry, Outcomes]], kept: Iterable[Outcomes]) -> list[Entry]:
    """Add to the entries judged by PGD-20 what stronger attacks break beyond it, by the kept results."""
    of_subject: dict[Hashable, list[Outcomes]] = {}
    for outcomes in kept:
        of_subject.setdefault(subject(outcomes), []).append(outcomes)
    known = []
    for entry, outcomes in entries:
        about = subject(outcomes)
        others = of_subject.get(about, []) if about is not None and entry.attack.attack == ATTACKS[-1] else []
        known.append(replace(entry, found_more=found_more(outcomes, others)))
    return known


def _kept(outcomes: Outcomes, table: Path) -> Entry | None:
    """Return the entry of a kept result; None for one that no board ranks."""
    protocol, name = outcomes.manifest["protocol"], str(outcomes.manifest["model"]["name"])
    sample = protocol["name"] == "quick"
    attack = _judged(outcomes)
    if attack is None or attack.epsilon is None or not by_the_protocol(outcomes):
        return None
    zoo = zoo_card(name) is not None
    return Entry(
        name=name,
        title=name,
        version=0,
        source="zoo" if zoo else "public",
        dataset=str(outcomes.manifest["dataset"]["name"]),
        epsilon=attack.epsilon,
        sample=sample,
        attack=attack,
        extra_data=_extra_data_of_zoo(name) if zoo else None,
        precision=outcomes.precision,
        evidence=Evidence(table, outcomes.manifest, _confusion(outcomes, attack.attack)),
    )


def _extra_data_of_zoo(name: str) -> str | None:
    """Return "" for a model that recipes made of its dataset alone; None, not known, for one of others' weights."""
    training = (zoo_card(name) or {}).get("training")
    if not training:
        return None
    start = training["recipe"].get("start")
    return "" if start is None else _extra_data_of_zoo(start)


def _submitted(card: SubmissionCard, outcomes: Outcomes, version: int, table: Path) -> Entry:
    attack = _judged(outcomes)
    if attack is None or attack.epsilon is None:
        raise OutcomesError(f"the submission {card.name}.{version} has no attack of the protocol; remove it by hand.")
    return Entry(
        name=card.name,
        title=card.title,
        version=version,
        source="submission",
        dataset=card.dataset,
        epsilon=attack.epsilon,
        sample=False,
        attack=attack,
        extra_data=card.extra_data or "",
        paper=card.paper,
        precision=outcomes.precision,
        evidence=Evidence(table, outcomes.manifest, _confusion(outcomes, attack.attack), card),
    )


def _of_all_classes(entries: list[Entry]) -> list[Entry]:
    """Leave out what was measured on fewer classes than others of its dataset: with hard ones gone, errors are less."""
    most: dict[str, int] = {}
    for entry in entries:
        most[entry.dataset] = max(most.get(entry.dataset, 0), len(entry.attack.classes))
    return [entry for entry in entries if len(entry.attack.classes) == most[entry.dataset]]


def _one_each(entries: list[Entry]) -> list[Entry]:
    """Keep one entry a model, threat model and size of sample: the stronger attack, of equal ones that in float32."""

    def weakness(entry: Entry) -> tuple[int, bool]:
        return ATTACKS.index(entry.attack.attack), entry.precision != "float32"

    best: dict[tuple[Any, ...], Entry] = {}
    for entry in entries:
        key = entry.name, entry.source, entry.dataset, entry.epsilon, entry.sample
        held = best.get(key)
        if held is None or weakness(entry) < weakness(held):
            best[key] = entry
    return list(best.values())
