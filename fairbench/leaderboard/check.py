"""What a submission must be before a person looks at it: every problem gets its line, all of them at once.

A check that could not be made is told apart from one that was passed: :attr:`Checked.not_made`.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairbench.errors import FairbenchError, OutcomesError, first_line, printable
from fairbench.leaderboard.card import SubmissionCard, next_version, read_submission_card
from fairbench.leaderboard.submission import CARD, SUMMARY, submission_files
from fairbench.leaderboard.tables import ATTACK_COLUMNS, Columns, read_columns
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.outcomes.identity import run_identity
from fairbench.outcomes.schema import BASE, PRECISIONS
from fairbench.outcomes.table import MANIFEST, TABLE
from fairbench.provenance import sha256_file

SEED = 0
"""The seed of every submission: one that a submitter may choose can be chosen for its luck."""
_SHOWN = 3
_MOST_MENDED = 0.1
"""Share of misclassified examples that an attack leaves classified correctly, above which a person is told: it was made
to do the opposite, and of the zoo's models on images it does so to 2.4 % at most."""


@dataclass(frozen=True)
class Truth:
    """What a dataset's own files say of its test split.

    Parameters
    ----------
    classes, size
        Names of the classes and number of test examples.
    index, labels
        (M,) int64 positions whose labels are known here, and the labels.
    missing
        Why not all of them are, or None.
    sha256
        Hash of the images at (C, H, W), as a manifest has it, or None for more pixels than are made; None where the
        images are not there.
    """

    classes: tuple[str, ...]
    size: int
    index: np.ndarray
    labels: np.ndarray
    missing: str | None = None
    sha256: Callable[[tuple[int, ...]], str | None] | None = None


@dataclass(frozen=True)
class Rules:
    """What a submission is held to.

    Parameters
    ----------
    attacks
        (protocol, K) to the attacks of a locked protocol and their parameters, as a manifest has them.
    truth
        Dataset name to its :class:`Truth`; None for a dataset that has no board.
    taken
        Names on the board, and the latest version of each; None where the name is not to be checked.
    place
        Name and version by which the folder lies on the board, if it does: those of its card.
    known_weights
        SHA-256 of weights that the project has measured itself, of the file or of what is loaded from it, to the
        model's name.
    """

    attacks: Callable[[str, int], Mapping[str, Mapping[str, Any]]]
    truth: Callable[[str], Truth | None]
    taken: Mapping[str, int] | None = field(default_factory=dict)
    known_weights: Mapping[str, str] = field(default_factory=dict)
    place: tuple[str, int] | None = None


@dataclass
class Checked:
    """The outcome of a check; ``card`` and ``outcomes`` are there where they could be read.

    ``notes`` say what a person should know and what is no fault.
    """

    problems: list[str] = field(default_factory=list)
    not_made: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    card: SubmissionCard | None = None
    outcomes: Outcomes | None = None
    labels_compared: bool = False

    @property
    def accepted(self) -> bool:
        """Whether nothing was found that speaks against it."""
        return not self.problems


def check_submission(folder: Path, rules: Rules) -> Checked:
    """Check the folder of a submission against the rules.

    Raises
    ------
    OutcomesError
        It is no folder, or cannot be read.
    """
    files, problems = submission_files(folder)
    checked = Checked(problems=problems)
    if CARD in files:
        checked.card, faults = read_submission_card(files[CARD])
        problems += faults
    manifest = _manifest(files, problems)
    table = None
    if TABLE in files:
        table, faults = read_columns(files[TABLE])
        problems += faults
    problems += _weights(checked, files)
    checked.notes += _known_weights(checked.card, manifest, rules.known_weights)
    if checked.card is not None and rules.taken is not None:
        problems += _name(checked.card, rules.taken, rules.known_weights.values())
        problems += _place(checked.card, rules.place)
    if manifest is not None:
        problems += _manifest_itself(manifest, files)
        if checked.card is not None:
            problems += _agreement(checked.card, manifest)
    dataset = checked.card.dataset if checked.card else _get(manifest, "dataset", "name")
    truth = _truth(dataset, rules, problems)
    if manifest is not None and truth is not None:
        problems += _protocol(manifest, rules, len(truth.classes))
        problems += _dataset(manifest, truth, checked)
    if table is not None and truth is not None:
        protocol = checked.card.protocol if checked.card else _get(manifest, "protocol", "name")
        if protocol in ("leaderboard", "standard"):
            problems += _rows(table, truth, rules.attacks(protocol, len(truth.classes)), checked)
    if not problems:
        _read_whole(folder, files, checked)
    for lines in (checked.problems, checked.not_made, checked.notes):
        lines[:] = map(printable, lines)
    return checked


def _manifest(files: Mapping[str, Path], problems: list[str]) -> dict[str, Any] | None:
    if MANIFEST not in files:
        return None

    def no_number(text: str) -> None:
        raise ValueError(f"{text} is no number")

    try:
        manifest = json.loads(files[MANIFEST].read_text(encoding="utf-8"), parse_constant=no_number)
        json.dumps(manifest, ensure_ascii=False, allow_nan=False).encode()  # no 1e999, and no half of a character
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{MANIFEST}: not readable JSON ({first_line(error)})")
        return None
    if not isinstance(manifest, dict):
        problems.append(f"{MANIFEST}: it holds no manifest")
        return None
    return manifest


def _get(manifest: Any, *keys: str) -> Any:
    for key in keys:
        manifest = manifest.get(key) if isinstance(manifest, dict) else None
    return manifest


def _manifest_itself(manifest: dict[str, Any], files: Mapping[str, Path]) -> Iterator[str]:
    """Yield what shows that the manifest, or the table beside it, is not what an evaluation wrote."""
    try:
        if run_identity(manifest) != manifest.get("run"):
            yield f"{MANIFEST}: changed by hand: its run is not the hash of what it says"
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        yield f"{MANIFEST}: incomplete ({first_line(error)})"
    if TABLE in files and manifest.get("table_sha256") != sha256_file(files[TABLE]):
        yield f"{TABLE}: not the table that {MANIFEST} was written with (SHA-256 differs): damaged, or changed by hand"
    if manifest.get("precision") not in [*PRECISIONS.values()]:
        known = " or ".join(PRECISIONS.values())
        yield f"{MANIFEST}: precision is {_short(manifest.get('precision'))}, not {known}"


def _agreement(card: SubmissionCard, manifest: dict[str, Any]) -> Iterator[str]:
    pairs = {
        "dataset": (card.dataset, _get(manifest, "dataset", "name")),
        "protocol": (card.protocol, _get(manifest, "protocol", "name")),
        "architecture": (card.architecture, _get(manifest, "model", "architecture")),
    }
    for what, (said, done) in pairs.items():
        if said != done:
            yield f"{CARD}: {what} is {_short(said)}, but {MANIFEST} has {_short(done)}"


def _name(card: SubmissionCard, taken: Mapping[str, int], models: Collection[str]) -> Iterator[str]:
    if card.name in models:
        yield f"{CARD}: the name {card.name} is that of a model of the project; choose another"
    latest = taken.get(card.name)
    if card.replaces is None:
        if latest is not None:
            yield (
                f"{CARD}: the name {card.name} is taken; choose another, or, for a correction of your own entry, set "
                f"replaces: {card.name}.{latest}"
            )
    elif latest is None or card.replaces != f"{card.name}.{latest}":
        there = f"its latest version is {card.name}.{latest}" if latest else f"there is no entry {card.name}"
        yield f"{CARD}: replaces {card.replaces}, but {there}"


def _place(card: SubmissionCard, place: tuple[str, int] | None) -> Iterator[str]:
    """Yield where a submission lies on the board under another name or version than its card's."""
    version = next_version(card)
    if place is not None and place != (card.name, version):
        yield f"{CARD}: it is {card.name}.{version}, but lies on the board as {place[0]}.{place[1]}"


def _weights(checked: Checked, files: Mapping[str, Path]) -> Iterator[str]:
    card = checked.card
    held = files.get("weights.safetensors")
    if card is None:
        return
    if card.weights.url is not None:
        checked.not_made.append(f"weights: {card.weights.url} was not fetched; `leaderboard verify` does")
        if held is not None:
            yield f"{held.name}: {CARD} names a url instead; give one of the two"
    elif held is None:
        yield "weights.safetensors: missing or not allowed, and the card names no url"
    elif sha256_file(held) != card.weights.sha256:
        yield f"{held.name}: its SHA-256 is not the one in {CARD}"
    else:
        checked.not_made.append("weights: not loaded, and no row was attacked again; `leaderboard verify` does both")


def _known_weights(card: SubmissionCard | None, manifest: Any, known: Mapping[str, str]) -> Iterator[str]:
    """Yield a line where the weights are somebody else's: a copy under a new name is still that model."""
    hashes = (None if card is None else card.weights.sha256, _get(manifest, "model", "sha256"))
    names = {known[value]: None for value in hashes if isinstance(value, str) and value in known}
    for name in names:
        yield f"weights: they are those of {name}, which fairbench has measured already"


def _truth(dataset: Any, rules: Rules, problems: list[str]) -> Truth | None:
    if dataset is None and problems:  # there is no card to name it
        return None
    truth = rules.truth(dataset) if isinstance(dataset, str) else None
    if truth is None:
        problems.append(f"there is no board for the dataset {_short(dataset)}; `fairbench datasets` lists those known")
    return truth


def _protocol(manifest: dict[str, Any], rules: Rules, num_classes: int) -> Iterator[str]:
    """Yield what of the protocol is not as locked."""
    name, seed = _get(manifest, "protocol", "name"), _get(manifest, "protocol", "seed")
    if name not in ("leaderboard", "standard"):
        yield f"{MANIFEST}: protocol {_short(name)}: submissions are made under leaderboard or standard"
        return
    modified = _get(manifest, "protocol", "modified")
    if modified != {}:
        yield f"{MANIFEST}: the protocol was modified ({_short(modified)}); it is locked"
    if "transfer_from" in manifest:
        yield f"{MANIFEST}: transfer_from: the attacks were made for another model; they are made for the one submitted"
    if seed != SEED or isinstance(seed, bool):
        yield f"{MANIFEST}: seed {_short(seed)}: it is fixed to {SEED} and not the submitter's to choose"
    locked, held = rules.attacks(name, num_classes), manifest.get("attacks")
    if not isinstance(held, dict) or set(held) != set(locked):
        names = sorted(held) if isinstance(held, dict) else held
        yield f"{MANIFEST}: attacks are {_short(names)}, not {sorted(locked)}"
        return
    for attack, parameters in locked.items():
        for key in sorted({*parameters, *(held[attack] if isinstance(held[attack], dict) else ())}):
            found = _get(held, attack, key)
            if found != parameters.get(key) or isinstance(found, bool):
                yield f"{MANIFEST}: {attack} has {key} {_short(found)}, not {_short(parameters.get(key))}"


def _dataset(manifest: dict[str, Any], truth: Truth, checked: Checked) -> Iterator[str]:
    if _get(manifest, "dataset", "classes") != list(truth.classes):
        yield f"{MANIFEST}: the classes are not those of the dataset, in their order"
    if _get(manifest, "dataset", "split") != "test":
        yield f"{MANIFEST}: split {_short(_get(manifest, 'dataset', 'split'))}: it is the test split that counts"
    if _get(manifest, "dataset", "n") != truth.size:
        yield f"{MANIFEST}: {_short(_get(manifest, 'dataset', 'n'))} examples; the test split has {truth.size:,}"
    shape = _get(manifest, "dataset", "shape")
    plain = isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 < n <= 1024 for n in shape)
    if not plain:
        yield f"{MANIFEST}: dataset.shape {_short(shape)} is no (C, H, W) of at most 1,024"
    elif truth.sha256 is None:
        checked.not_made.append(f"images: {truth.missing or 'they are not here'}; their hash was not compared")
    elif (own := truth.sha256(tuple(shape))) is None:
        checked.not_made.append(f"images: at {shape[1]}x{shape[2]} they are too large to be made here and hashed")
    elif _get(manifest, "dataset", "sha256") != own:
        yield f"{MANIFEST}: the images are not the dataset's test split (their hash differs)"


def _rows(table: Columns, truth: Truth, attacks: Mapping[str, Mapping[str, Any]], checked: Checked) -> Iterator[str]:
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


def _read_whole(folder: Path, files: Mapping[str, Path], checked: Checked) -> None:
    """Read it as the board will, and hold a summary beside it to the table."""
    try:
        outcomes = Outcomes.read(folder)
        summary = summarize(outcomes).to_dict()
    except FairbenchError as error:
        checked.problems.append(str(error))
        return
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        checked.problems.append(f"{MANIFEST}: not what an evaluation writes ({first_line(error)})")
        return
    if SUMMARY in files:
        try:
            written = json.loads(files[SUMMARY].read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            checked.problems.append(f"{SUMMARY}: not readable JSON ({first_line(error)})")
            return
        if not _same(written, json.loads(json.dumps(summary))):
            checked.problems.append(f"{SUMMARY}: changed by hand: it is not what {TABLE} gives")
            return
    checked.outcomes = outcomes


def _same(a: Any, b: Any) -> bool:
    """Whether plain data is equal but for rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, int | float):
        return bool(np.isclose(a, b, rtol=1e-9, atol=1e-9))
    return type(a) is type(b) and bool(a == b)


def _some(claim: str, table: Columns, wrong: np.ndarray) -> Iterator[str]:
    """Yield one line for all rows of a kind, naming the first."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        index = table.whole.get("index")
        yield f"{claim}: {len(rows):,} example(s), {_first(rows if index is None else index[rows])}"


def _first(numbers: np.ndarray) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN].tolist()))
    return shown if len(numbers) <= _SHOWN else f"{shown}, ..."


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return " ".join(text.encode("unicode_escape").decode("ascii").split())[:80]


def require_accepted(checked: Checked, folder: Path) -> tuple[SubmissionCard, Outcomes]:
    """Return card and outcomes of an accepted submission.

    Raises
    ------
    OutcomesError
        It has problems; the first is named.
    """
    if checked.problems or checked.card is None or checked.outcomes is None:
        more = f" and {len(checked.problems) - 1} more" if len(checked.problems) > 1 else ""
        raise OutcomesError(
            f"{folder} is refused: {(checked.problems or ['it could not be read'])[0]}{more}. "
            "`fairbench leaderboard check` lists all."
        )
    return checked.card, checked.outcomes
