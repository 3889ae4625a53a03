"""What the rows of a submission must be: all of the test split, with its labels, and what an evaluation can give."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from fairbench.leaderboard.checked import Checked, Truth
from fairbench.leaderboard.tables import ATTACK_COLUMNS, Columns
from fairbench.outcomes.schema import BASE
from fairbench.outcomes.table import TABLE

_SHOWN = 3
_MOST_MENDED = 0.1
"""Share of misclassified examples that an attack leaves classified correctly, above which a person is told: it was made
to do the opposite, and of the zoo's models on images it does so to 2.4 % at most."""


def row_problems(
    table: Columns, truth: Truth, attacks: Mapping[str, Mapping[str, Any]], checked: Checked
) -> Iterator[str]:
    """Yield what is wrong with the rows: which there are, what they are of, and what they cannot say together."""
    wanted = [*BASE, *(f"{a}_{c}" for a in attacks for c in ("pred", *ATTACK_COLUMNS.get(a, ())))]
    for name in sorted(set(table.names) - set(wanted)):
        yield f"{TABLE}: column {name!r} is none of the protocol's"
    for name in wanted:
        if name not in table.names:
            yield f"{TABLE}: column {name} is missing"
    yield from _examples(table, truth)
    yield from _labels(table, truth, checked)
    num_classes = len(truth.classes)
    for name in ("clean_pred", *(f"{a}_pred" for a in attacks)):
        if name in table.whole:
            values = table.whole[name]
            yield from _some(
                f"{TABLE}: {name} outside 0..{num_classes - 1}, or missing",
                table,
                (values < 0) | (values >= num_classes),
            )
    if "clean_confidence" in table.real:
        values = table.real["clean_confidence"]
        low = 1 / num_classes - 1e-4
        wrong = ~((values >= low) & (values <= 1 + 1e-4))
        yield from _some(
            f"{TABLE}: clean_confidence outside 1/K..1: it is the largest of K probabilities", table, wrong
        )
    yield from _plausible(table, attacks.get("autoattack", {}).get("stages", ()))
    checked.notes += _mended(table, attacks)


def _examples(table: Columns, truth: Truth) -> Iterator[str]:
    index = table.whole.get("index")
    if index is None:
        return
    inside = (index >= 0) & (index < truth.size)
    yield from _some(f"{TABLE}: index outside 0..{truth.size - 1}", table, ~inside)
    counts = np.bincount(index[inside], minlength=truth.size)
    for what, rows in (("missing", np.flatnonzero(counts == 0)), ("there more than once", np.flatnonzero(counts > 1))):
        if len(rows):
            yield f"{TABLE}: {len(rows):,} of the {truth.size:,} test examples {what}: {_first(rows)}"


def _labels(table: Columns, truth: Truth, checked: Checked) -> Iterator[str]:
    index, label = table.whole.get("index"), table.whole.get("label")
    if index is None or label is None:
        checked.not_made.append("labels: the table has none that can be compared")
        return
    known = np.full(truth.size, -1, dtype=np.int64)
    known[truth.index] = truth.labels
    inside = (index >= 0) & (index < truth.size)
    own = np.where(inside, known[np.where(inside, index, 0)], -1)
    yield from _some(f"{TABLE}: label is not the dataset's", table, inside & (own >= 0) & (own != label))
    yield from _some(
        f"{TABLE}: label outside 0..{len(truth.classes) - 1}", table, (label < 0) | (label >= len(truth.classes))
    )
    unknown = truth.size - len(truth.index)
    if unknown:
        checked.not_made.append(
            f"labels of {unknown:,} of {truth.size:,} examples: {truth.missing or 'not known here'}"
        )
    else:
        checked.labels_compared = True


def _plausible(table: Columns, stages: Collection[str]) -> Iterator[str]:
    """Yield what rows claim that no evaluation can give; ``stages`` are those of AutoAttack."""
    whole = table.whole
    if not {"label", "clean_pred"} <= set(whole):
        return
    label, clean_wrong = whole["label"], whole["clean_pred"] != whole["label"]
    strong, weak = whole.get("autoattack_pred"), whole.get("pgd20_pred")
    if strong is not None and weak is not None:
        claim = f"{TABLE}: robust under AutoAttack, and broken by PGD-20"
        yield from _some(claim, table, (strong == label) & (weak != label))
    if strong is not None:
        wrong = clean_wrong & (strong != whole["clean_pred"])
        yield from _some(f"{TABLE}: misclassified clean, and another prediction under AutoAttack", table, wrong)
        stage = table.text.get("autoattack_broken_by")
        if stage is not None:
            none, clean = stage == "", stage == "clean"
            claim = f"{TABLE}: autoattack_broken_by does not go with the predictions"
            yield from _some(claim, table, (none != (strong == label)) | (clean != clean_wrong))
            unknown = ~np.isin(stage, ["", "clean", *stages])
            yield from _some(f"{TABLE}: autoattack_broken_by is no stage of {', '.join(stages)}", table, unknown)
    at = whole.get("pgd20_broken_at")
    if at is not None and weak is not None:
        claim = f"{TABLE}: pgd20_broken_at does not go with the predictions"
        yield from _some(claim, table, (at < -1) | (at > 20) | ((weak != label) & (at == -1)))


def _mended(table: Columns, attacks: Collection[str]) -> Iterator[str]:
    """Yield where an attack makes much of what was wrong right: it was perhaps not made against these weights."""
    label, clean = table.whole.get("label"), table.whole.get("clean_pred")
    if label is None or clean is None:
        return
    wrong = clean != label
    for attack in attacks:
        found = table.whole.get(f"{attack}_pred")
        if found is None or not wrong.any():
            continue
        mended, of = int(np.count_nonzero(wrong & (found == label))), int(np.count_nonzero(wrong))
        if mended > _MOST_MENDED * of:
            yield f"{attack}: {mended:,} of the {of:,} examples misclassified clean are correct under attack"


def _some(claim: str, table: Columns, wrong: np.ndarray) -> Iterator[str]:
    """Yield one line for all rows of a kind, naming the first."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        index = table.whole.get("index")
        yield f"{claim}: {len(rows):,} example(s), {_first(rows if index is None else index[rows])}"


def _first(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN].tolist()))
    return shown if len(numbers) <= _SHOWN else f"{shown}, ..."
