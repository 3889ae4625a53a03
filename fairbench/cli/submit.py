"""``fairbench submit``: evaluate a checkpoint under the locked protocol and pack what the leaderboard takes."""

import re
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import options, shared_options
from fairbench.cli.evaluate_options import Precision
from fairbench.cli.running import Computing, run_shown
from fairbench.errors import OutcomesError
from fairbench.registry import is_own_code

if TYPE_CHECKING:
    from fairbench.leaderboard.card import SubmissionCard
    from fairbench.models.export import Exported


class Locked(StrEnum):
    """The protocols a submission may be made under."""

    LEADERBOARD = "leaderboard"
    STANDARD = "standard"


def submit(
    model: Annotated[str, typer.Argument(help="A checkpoint file, a run's folder, or a model of the zoo.")],
    name: Annotated[str, typer.Option(help="Title on the board, such as 'My method'.")],
    contact: Annotated[str, typer.Option(help="Address for questions.")],
    out: Annotated[Path, typer.Option(help="Folder of the submission.")],
    licence: Annotated[str, typer.Option(help="Licence of the weights, such as MIT.")] = "not stated",
    arch: Annotated[str | None, typer.Option(help="Architecture of a checkpoint. Default: the one that fits.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset by name. Default: the model's own.")] = None,
    data_dir: shared_options.DataDir = None,
    protocol: Annotated[
        Locked, typer.Option(help="leaderboard (PGD-20 and AutoAttack), or standard (PGD-20 alone; marked so).")
    ] = Locked.LEADERBOARD,
    key: Annotated[str | None, typer.Option(help="Name of the entry. Default: made of --name.")] = None,
    paper: Annotated[str | None, typer.Option(help="Address of the paper.")] = None,
    code_url: Annotated[
        str | None, typer.Option(help="Address of the code of an architecture of one's own, so that others can verify.")
    ] = None,
    authors: Annotated[str | None, typer.Option(help="Authors, with commas between.")] = None,
    extra_data: Annotated[str | None, typer.Option(help="Training data beyond the dataset's training split.")] = None,
    training_cost: Annotated[str | None, typer.Option(help="Such as '3 hours on one A100'.")] = None,
    threat_epsilon: Annotated[
        str | None, typer.Option(help="L-inf radius trained against, such as 8/255; 0 for natural training.")
    ] = None,
    weights_url: Annotated[
        str | None, typer.Option(help="https address of the checkpoint file, instead of packing the weights.")
    ] = None,
    replaces: Annotated[str | None, typer.Option(help="Entry and version that this corrects: my_method.1")] = None,
    mean: shared_options.Mean = None,
    std: shared_options.Std = None,
    output: Annotated[str | None, typer.Option(help="Which output holds the logits.")] = None,
    resize: Annotated[str | None, typer.Option(help="Image size. Default: what the model demands.")] = None,
    batch_size: shared_options.BatchSize = None,
    device: shared_options.Device = None,
    precision: Annotated[
        Precision, typer.Option(help="What attacks compute gradients in; the board marks bf16.")
    ] = Precision.FP32,
) -> None:
    """Evaluate a model under the locked protocol and pack a submission for the leaderboard."""
    from fairbench.files import user_path
    from fairbench.leaderboard.submission import refuse_another_entry
    from fairbench.reports import folder

    said: dict[str, Any] = {
        "version": 1,
        "name": _key(name) if key is None else key,
        "title": name,
        "authors": list(options.names(authors, "--authors") or ()),
        "contact": contact,
        "paper": paper,
        "code": code_url,
        "protocol": protocol.value,
        "extra_data": extra_data,
        "training_cost": training_cost,
        "licence": licence,
        "replaces": replaces,
        "trained_against": _trained_against(threat_epsilon),
    }
    _check_dataset(dataset)
    _card(said | {"dataset": dataset or "none", "architecture": "none"}, weights_url, "0" * 64)  # before hours go by
    loading: dict[str, Any] = {
        "dataset": dataset,
        "data_dir": data_dir,
        "resize": options.size(resize),
        "mean": options.floats(mean, "--mean"),
        "std": options.floats(std, "--std"),
        "arch": arch,
        "output": output,
    }
    out = user_path(out)
    refuse_another_entry(out, said["name"])
    with folder.claimed(out):
        _evaluate_and_pack(model, said, weights_url, loading, Computing(batch_size, device, precision.value), out)
    if arch is not None and is_own_code(arch) and code_url is None:
        print(
            "note: nobody else can load these weights without your code: --code-url says where it is", file=sys.stderr
        )
    given = "" if data_dir is None else f" --data-dir {shlex.quote(data_dir)}"
    print(f"{out} is packed: fairbench leaderboard check {shlex.quote(str(out))}{given}")


def _evaluate_and_pack(
    model: str, said: dict[str, Any], weights_url: str | None, loading: dict[str, Any], computing: Computing, out: Path
) -> None:
    """Complete the card by what the model is, evaluate under its protocol, and write the submission."""
    from fairbench.evaluation import Protocol
    from fairbench.evaluation.inputs import load_inputs
    from fairbench.leaderboard.submission import pack
    from fairbench.metrics import summarize
    from fairbench.models.export import export
    from fairbench.reports.tables import gist

    protocol = Protocol.named(said["protocol"])
    inputs = load_inputs(model, protocol, **loading)
    exported = export(inputs.model)
    sha256, packed = _weights(exported, model, weights_url)
    card = _card(said | _how_to_load(exported) | {"dataset": inputs.dataset.name}, weights_url, sha256)
    outcomes, _ = run_shown(inputs, protocol, computing, out=out)
    pack(out, card, outcomes, packed)
    for attack in summarize(outcomes).attacks.values():
        print(gist(attack))


def _check_dataset(name: str | None) -> None:
    """Raise unless a dataset is one that others have too."""
    from fairbench.datasets.named import NAMED
    from fairbench.registry import suggest

    if name is not None and name not in NAMED:
        near = suggest(name, list(NAMED))
        raise OutcomesError(
            f"--dataset {name}: boards are of the datasets that `fairbench datasets` lists, and this is for fairbench "
            f"evaluate.{near}"
        )


def _key(title: str) -> str:
    key = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")[:64]
    if not key:
        raise OutcomesError(f"--name '{title}' has no letter from a to z to name the entry by; give a name with --key.")
    return key


def _trained_against(text: str | None) -> dict[str, Any] | None:
    from fairbench.evaluation.protocol import parse_fraction

    if text is None:
        return None
    epsilon = parse_fraction(text, "--threat-epsilon")
    return {"norm": "Linf" if epsilon else "none", "epsilon": epsilon}


def _how_to_load(exported: "Exported") -> dict[str, Any]:
    norm = exported.normalization
    return {
        "architecture": exported.architecture,
        "normalization": None if norm is None else {"mean": norm[0], "std": norm[1]},
        "output": exported.output,
        "input_size": exported.input_size,
    }


def _weights(exported: "Exported", model: str, url: str | None) -> tuple[str, bytes | None]:
    """Return the SHA-256 of the weights' file, and its bytes where it is packed."""
    from fairbench.files import user_path
    from fairbench.models.checkpoints import safetensors_bytes
    from fairbench.provenance import sha256_file, sha256_plain

    if url is None:
        data = safetensors_bytes(exported.state)
        return sha256_plain(data), data
    if not user_path(model).is_file():
        raise OutcomesError("--weights-url goes with a checkpoint file: the one that lies at the address.")
    return sha256_file(user_path(model)), None


def _card(said: dict[str, Any], url: str | None, sha256: str) -> "SubmissionCard":
    from fairbench.leaderboard.card import WEIGHTS, card_of

    place = {"file": WEIGHTS} if url is None else {"url": url}
    card, faults = card_of(said | {"weights": {**place, "sha256": sha256}}, "the card")
    if card is None:
        raise OutcomesError("; ".join(faults) + ".")
    return card
