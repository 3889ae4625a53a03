"""What a submission must be before a person looks at it: every problem gets its line, all of them at once.

A check that could not be made is told apart from one that was passed: :attr:`Checked.not_made`.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairbench.errors import FairbenchError, first_line, printable
from fairbench.leaderboard.card import SubmissionCard, next_version, read_submission_card
from fairbench.leaderboard.check_rows import row_problems
from fairbench.leaderboard.checked import SEED, Checked, Latest, Rules, Truth, short_value
from fairbench.leaderboard.submission import CARD, SUMMARY, submission_files
from fairbench.leaderboard.tables import read_columns
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.outcomes.identity import run_identity
from fairbench.outcomes.schema import PRECISIONS
from fairbench.outcomes.table import MANIFEST, TABLE
from fairbench.provenance import sha256_file
from fairbench.registry import is_own_code


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
    checked.notes += _unknown_code(checked.card)
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
            problems += row_problems(table, truth, rules.attacks(protocol, len(truth.classes)), checked)
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
        yield f"{MANIFEST}: precision is {short_value(manifest.get('precision'))}, not {known}"


def _agreement(card: SubmissionCard, manifest: dict[str, Any]) -> Iterator[str]:
    pairs = {
        "dataset": (card.dataset, _get(manifest, "dataset", "name")),
        "protocol": (card.protocol, _get(manifest, "protocol", "name")),
        "architecture": (card.architecture, _get(manifest, "model", "architecture")),
    }
    for what, (said, done) in pairs.items():
        if said != done:
            yield f"{CARD}: {what} is {short_value(said)}, but {MANIFEST} has {short_value(done)}"


def _name(card: SubmissionCard, taken: Mapping[str, Latest], models: Collection[str]) -> Iterator[str]:
    if card.name in models:
        yield f"{CARD}: the name {card.name} is that of a model of the project; choose another"
    latest = taken.get(card.name)
    if latest is None:
        if card.replaces is not None:
            yield f"{CARD}: replaces {card.replaces}, but there is no entry {card.name}"
        return
    held = f"{card.name}.{latest.version}"
    if latest.dataset not in (None, card.dataset):
        yield f"{CARD}: the name {card.name} is taken, by an entry on {latest.dataset}; choose another"
    elif card.replaces is None:
        yield (
            f"{CARD}: the name {card.name} is taken; choose another, or, for a correction of your own entry, set "
            f"replaces: {held}"
        )
    elif card.replaces != held:
        yield f"{CARD}: replaces {card.replaces}, but its latest version is {held}"
    elif latest.protocol == "leaderboard" != card.protocol:
        yield f"{CARD}: {held} was measured under protocol leaderboard; a correction of it is, too"


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


def _unknown_code(card: SubmissionCard | None) -> Iterator[str]:
    """Yield a line where nobody else can load the weights."""
    if card is not None and is_own_code(card.architecture) and card.code is None:
        yield (
            f"{CARD}: architecture {card.architecture} is code of one's own, and the card gives no address of it: "
            "others cannot verify the entry; add `code: https://...` (submit --code-url)"
        )


def _truth(dataset: Any, rules: Rules, problems: list[str]) -> Truth | None:
    if dataset is None and problems:  # there is no card to name it
        return None
    truth = rules.truth(dataset) if isinstance(dataset, str) else None
    if truth is None:
        problems.append(
            f"there is no board for the dataset {short_value(dataset)}; `fairbench datasets` lists those known"
        )
    return truth


def _protocol(manifest: dict[str, Any], rules: Rules, num_classes: int) -> Iterator[str]:
    """Yield what of the protocol is not as locked."""
    name, seed = _get(manifest, "protocol", "name"), _get(manifest, "protocol", "seed")
    if name not in ("leaderboard", "standard"):
        yield f"{MANIFEST}: protocol {short_value(name)}: submissions are made under leaderboard or standard"
        return
    modified = _get(manifest, "protocol", "modified")
    if modified != {}:
        yield f"{MANIFEST}: the protocol was modified ({short_value(modified)}); it is locked"
    if "transfer_from" in manifest:
        yield f"{MANIFEST}: transfer_from: the attacks were made for another model; they are made for the one submitted"
    if seed != SEED or isinstance(seed, bool):
        yield f"{MANIFEST}: seed {short_value(seed)}: it is fixed to {SEED} and not the submitter's to choose"
    locked, held = rules.attacks(name, num_classes), manifest.get("attacks")
    if not isinstance(held, dict) or set(held) != set(locked):
        names = sorted(held) if isinstance(held, dict) else held
        yield f"{MANIFEST}: attacks are {short_value(names)}, not {sorted(locked)}"
        return
    for attack, parameters in locked.items():
        for key in sorted({*parameters, *(held[attack] if isinstance(held[attack], dict) else ())}):
            found = _get(held, attack, key)
            if found != parameters.get(key) or isinstance(found, bool):
                yield f"{MANIFEST}: {attack} has {key} {short_value(found)}, not {short_value(parameters.get(key))}"


def _dataset(manifest: dict[str, Any], truth: Truth, checked: Checked) -> Iterator[str]:
    if _get(manifest, "dataset", "classes") != list(truth.classes):
        yield f"{MANIFEST}: the classes are not those of the dataset, in their order"
    if _get(manifest, "dataset", "split") != "test":
        yield f"{MANIFEST}: split {short_value(_get(manifest, 'dataset', 'split'))}: it is the test split that counts"
    if _get(manifest, "dataset", "n") != truth.size:
        yield f"{MANIFEST}: {short_value(_get(manifest, 'dataset', 'n'))} examples; the test split has {truth.size:,}"
    shape = _get(manifest, "dataset", "shape")
    plain = isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 < n <= 1024 for n in shape)
    if not plain:
        yield f"{MANIFEST}: dataset.shape {short_value(shape)} is no (C, H, W) of at most 1,024"
    elif truth.sha256 is None:
        checked.not_made.append(f"images: {truth.missing or 'they are not here'}; their hash was not compared")
    elif (own := truth.sha256(tuple(shape))) is None:
        checked.not_made.append(f"images: at {shape[1]}x{shape[2]} they are too large to be made here and hashed")
    elif _get(manifest, "dataset", "sha256") != own:
        yield f"{MANIFEST}: the images are not the dataset's test split (their hash differs)"


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
