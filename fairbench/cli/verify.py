"""``fairbench leaderboard verify``: attack some of a submission's rows again, with its weights."""

import json
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fairbench.cli import options, shared_options
from fairbench.cli.progress import progress_bar
from fairbench.errors import DownloadError, ModelError, ProtocolError

if TYPE_CHECKING:
    from fairbench.evaluation import Protocol
    from fairbench.leaderboard.card import SubmissionCard
    from fairbench.leaderboard.verify import Verdict
    from fairbench.models import Model


def verify(
    submission: Annotated[Path, typer.Argument(help="Folder of a submission, as `fairbench submit` packs it.")],
    examples: Annotated[int, typer.Option(help="Number of rows that are attacked again.")] = 200,
    seed: Annotated[int | None, typer.Option(help="Of the sample and the new starts. Default: drawn, printed.")] = None,
    attacks: Annotated[str | None, typer.Option(help="Only these of the protocol's attacks, such as pgd20.")] = None,
    arch: Annotated[
        str | None, typer.Option(help="package.module:function, if the card names one: a card runs no code by itself.")
    ] = None,
    data_dir: shared_options.DataDir = None,
    batch_size: shared_options.BatchSize = None,
    device: shared_options.Device = None,
    as_json: shared_options.AsJson = False,
) -> None:
    """Load a submission's weights, attack some rows again and compare; exit code 1 unless all is consistent."""
    from fairbench.cli.rules import rules
    from fairbench.datasets import load_dataset
    from fairbench.evaluation.again import Again
    from fairbench.evaluation.runner import BATCH_SIZE, fitted
    from fairbench.files import user_path
    from fairbench.leaderboard.check import check_submission
    from fairbench.leaderboard.checked import SEED, require_accepted
    from fairbench.leaderboard.verify import verify as hold_to_it

    for option, number in (("--examples", examples), ("--batch-size", batch_size)):
        if number is not None and number < 1:
            raise ProtocolError(f"{option} {number}: give 1 or more.")
    seed = secrets.randbelow(2**31) if seed is None else seed
    if not 0 <= seed < 2**62:
        raise ProtocolError(f"--seed {seed}: give a number from 0 to 2**62 - 1.")
    folder = user_path(submission)
    card, claimed = require_accepted(check_submission(folder, rules(data_dir, None)), folder)
    chosen, left_out = _protocol(card, attacks)
    data = load_dataset(card.dataset, "test", data_dir=data_dir)
    model = _model(card, folder, arch, data.num_classes, data.shape)
    if model.sha256 != claimed.manifest["model"]["sha256"]:
        _reject(submission, f"its weights are not the ones that {card.name} was evaluated with", as_json)
    with progress_bar(f"{card.name}: {', '.join(chosen.attacks)}, {examples} rows again", []) as progress:
        how: dict[str, Any] = {"batch_size": batch_size or BATCH_SIZE, "device": device, "progress": progress}
        again = Again(model, fitted(data, model, chosen), chosen, how)
        found = hold_to_it(
            claimed,
            chosen.attacks,
            examples=examples,
            seed=seed,
            own_seed=SEED,
            attack=again.attack,
            clean=again.clean,
        )
    if as_json:
        print(json.dumps({"submission": str(submission), **found.to_dict(), "not_verified": left_out}, indent=2))
    else:
        _say(submission, found, left_out)
    if found.verdict != "consistent":
        raise typer.Exit(1)


def _protocol(card: "SubmissionCard", attacks: str | None) -> "tuple[Protocol, list[str]]":
    """Return the card's protocol with the chosen attacks, and which of its attacks are left out."""
    from fairbench.evaluation import Protocol

    whole = set(Protocol.named(card.protocol).attacks)
    chosen = Protocol.named(card.protocol, attacks=options.names(attacks, "--attacks"))
    beyond = set(chosen.attacks) - whole
    if beyond:
        raise ProtocolError(f"--attacks {attacks}: {', '.join(sorted(beyond))} is not of protocol {card.protocol}.")
    return chosen, sorted(whole - set(chosen.attacks))


def _reject(submission: Path, reason: str, as_json: bool) -> NoReturn:
    """Say that a submission cannot be verified at all, and end with exit code 1."""
    if as_json:
        print(json.dumps({"submission": str(submission), "verdict": "rejected", "reason": reason}, indent=2))
    else:
        print(f"{submission} is rejected: {reason}.")
    raise typer.Exit(1)


def _model(card: "SubmissionCard", folder: Path, arch: str | None, num_classes: int, shape: tuple[int, ...]) -> "Model":
    from fairbench.models import load_model
    from fairbench.registry import is_own_code

    if is_own_code(card.architecture) and arch != card.architecture:
        raise ModelError(
            f"the card of {card.name} names the architecture '{card.architecture}': a card runs no code; look at that "
            f"code, then say --arch {card.architecture}."
        )
    if arch is not None and arch != card.architecture:
        raise ModelError(f"{card.name} is a {card.architecture}, its card says; leave --arch {arch} out.")
    norm = card.normalization
    load = partial(load_model, arch=card.architecture, num_classes=num_classes, shape=shape)
    return load(
        _weights(card, folder),
        mean=None if norm is None else norm.mean,
        std=None if norm is None else norm.std,
        output=card.output,
        input_size=card.input_size,
    )


def _weights(card: "SubmissionCard", folder: Path) -> Path:
    """Return the file of the weights, fetched if the card names an address."""
    from urllib.parse import urlsplit

    from fairbench.download import fetch
    from fairbench.files import cache_folder, make_folder
    from fairbench.models.checkpoints import SUFFIXES
    from fairbench.provenance import sha256_file

    weights = card.weights
    if weights.url is None:
        return folder / str(weights.file)
    suffix = Path(urlsplit(weights.url).path).suffix
    path = make_folder(cache_folder("submissions")) / f"{weights.sha256}{suffix if suffix in SUFFIXES else '.pt'}"
    if path.is_file() and sha256_file(path) == weights.sha256:
        return path
    try:
        return fetch(weights.url, path, weights.sha256)
    except DownloadError as error:
        raise ModelError(f"{card.name}: its weights {error}.") from error


def _say(submission: Path, found: "Verdict", left_out: list[str]) -> None:
    print(f"seed {found.seed}: {found.examples} rows attacked again, {found.clean_rows} classified again")
    if found.clean_differ:
        print(f"clean: {len(found.clean_differ)} rows differ by more than rounding: {_some(found.clean_differ)}")
    else:
        print("clean: all rows agree")
    for a in found.attacks:
        print(
            f"{a.attack}: {a.rows} rows, {a.robust_rows} of them claimed robust; of these the same seed broke "
            f"{a.same_over} and a fresh one {a.fresh_over}; of those claimed broken {a.same_under} and {a.fresh_under} "
            f"withstood; the two new runs disagree about {a.disagree}"
        )
        print(f"{a.attack}: claimed robust and broken by all of {a.runs} runs: {_some(a.always_broken) or 'none'}")
    for attack in left_out:
        print(f"not verified: {attack}")
    print(f"probability that an honest submission looks this far off, or further: {found.probability:.2g}")
    print(f"{submission}: {found.verdict}")


def _some(index: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, index[:10]))
    return shown if len(index) <= 10 else f"{shown}, ... ({len(index)})"
