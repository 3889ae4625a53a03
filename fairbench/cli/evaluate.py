"""``fairbench evaluate``: from a checkpoint to a per-class robustness report."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import options
from fairbench.cli.evaluate_models import evaluate_models
from fairbench.cli.running import check_attributes, load_all, run_shown
from fairbench.errors import ModelError, ProtocolError

if TYPE_CHECKING:
    from fairbench.datasets import Dataset
    from fairbench.evaluation import Protocol
    from fairbench.evaluation.engines import Engine
    from fairbench.metrics import Summary
    from fairbench.metrics.groups import GroupErrors
    from fairbench.models import Model


class Format(StrEnum):
    """How the table is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


class Precision(StrEnum):
    """What attacks compute gradients in."""

    FP32 = "fp32"
    BF16 = "bf16"


class Score(StrEnum):
    """Which iterate of PGD counts."""

    LAST = "last"
    ANY = "any"


def evaluate(
    model: Annotated[str | None, typer.Option(help="A model of the zoo, a checkpoint file, or robustbench:ID.")] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Many models: zoo:DATASET/GLOB, or what --model takes, with wildcards; give it again."),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            help="Architecture of a checkpoint: a built-in one, torchvision:NAME, or module:function. Default: the "
            "built-in one that fits.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="A dataset by name, a .npz file, or a folder per class. Default: the model's own."),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA, then a cache.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="quick (1,000 images, PGD-20), standard (whole test split), leaderboard (and AutoAttack), "
            "sooksatra2022 (features). Default: quick, or sooksatra2022 for features.",
        ),
    ] = None,
    attacks: Annotated[str | None, typer.Option(help="Instead of the protocol's: such as pgd20,autoattack.")] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="L-inf radius in [0, 1] pixels, or in the features' unit. Default: 8/255 or 10.")
    ] = None,
    max_epsilon: Annotated[
        str | None, typer.Option(help="Largest radius that least-epsilon tries. Default: 32/255.")
    ] = None,
    resolution: Annotated[
        str | None, typer.Option(help="Distance between the radii that least-epsilon tries. Default: 1/255.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Most steps that least-steps takes. Default: 1000.")] = None,
    step: Annotated[
        str | None,
        typer.Option(
            help="PGD's step. Default: min(2/255, epsilon/4), from 16/255 on epsilon/8; of least-steps: "
            "min(0.4/255, epsilon/20)."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="PGD's number of steps. Default: 20.")] = None,
    restarts: Annotated[int | None, typer.Option(help="PGD's random starts. Default: 1.")] = None,
    score: Annotated[Score | None, typer.Option(help="PGD iterate that counts. Default: last.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random starts. Default: 0.")] = None,
    protect: Annotated[
        str | None,
        typer.Option(help="Columns of a table that stay as they are, such as sex,race; categorical for every one-hot."),
    ] = None,
    in_range: Annotated[
        bool, typer.Option("--in-range", help="Keep each feature in its range in the training split.")
    ] = False,
    transfer_from: Annotated[
        str | None,
        typer.Option(
            help="A model that the attacks are made for, instead of --model; a checkpoint takes pixels as they are."
        ),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Also the errors by an attribute of the data; give it again.")
    ] = None,
    mean: Annotated[str | None, typer.Option(help="Normalisation to put inside the model: a mean per channel.")] = None,
    std: Annotated[str | None, typer.Option(help="And a standard deviation per channel.")] = None,
    output: Annotated[
        str | None, typer.Option(help="Which output holds the logits (a tuple's index, a dict's key).")
    ] = None,
    resize: Annotated[
        str | None, typer.Option(help="Image size, such as 32 or 24x32. Default: what the model demands.")
    ] = None,
    drop_classes: Annotated[
        str | None, typer.Option(help="Classes to leave out, such as 2,3,4,5. Default: those the run left out.")
    ] = None,
    model_dir: Annotated[str | None, typer.Option(help="RobustBench's download folder. Default: ./models.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images attacked at once; bounds memory. Default: 128.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = None,
    precision: Annotated[
        Precision, typer.Option(help="What attacks compute gradients in; every verdict is the float32 model's.")
    ] = Precision.FP32,
    engine: Annotated[str, typer.Option(help="Who computes the batches: local, or ray for a cluster.")] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Ray cluster: HOST:PORT, or local. Default: $RAY_ADDRESS, the one here, or local."),
    ] = None,
    cpus_per_task: Annotated[int | None, typer.Option(help="Cores of a Ray task. Default: 1.")] = None,
    gpus_per_task: Annotated[float | None, typer.Option(help="GPUs of a Ray task, such as 0.25. Default: 0.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for outcomes.parquet, manifest.json, summary.json and classes.png; of many models one each."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
    ] = False,
    format: Annotated[Format, typer.Option(help="How the table is printed.")] = Format.TABLE,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what a finished run has.")] = False,
) -> None:
    """Attack a model and report, class by class, what breaks."""
    from fairbench.files import user_path
    from fairbench.metrics import summarize
    from fairbench.metrics.groups import group_errors

    changes = {
        "attacks": options.names(attacks, "--attacks"),
        "steps": steps,
        "max_steps": max_steps,
        "restarts": restarts,
        "score": None if score is None else score.value,
        "seed": seed,
        "protect": options.names(protect, "--protect"),
        "in_range": in_range or None,
    }
    if as_json and format is not Format.TABLE:
        raise ProtocolError(f"--json and --format {format.value}: give one of them.")
    out = None if out is None else user_path(out)
    group = list(dict.fromkeys(group or []))
    radii = {"epsilon": epsilon, "max_epsilon": max_epsilon, "resolution": resolution, "step": step}
    if (model is None) == (not models):
        what = "not both --model and --models" if models else "--model, or --models for many"
        raise ModelError(f"give {what}, such as --models 'zoo:cifar10/*'.")
    chosen_engine = _engine(engine, address, cpus_per_task, gpus_per_task)
    loading = {
        "resize": options.size(resize),
        "drop_classes": drop_classes,
        "mean": options.floats(mean, "--mean"),
        "std": options.floats(std, "--std"),
        "arch": arch,
        "output": output,
        "model_dir": model_dir,
    }
    names = [*(models or []), *(name for name in (model, transfer_from) if name is not None)]
    if model_dir is not None and not any(name.startswith("robustbench:") for name in names):
        raise ModelError("--model-dir is where models robustbench:ID lie; none is asked for.")
    if group and format is Format.CSV:
        raise ProtocolError("--format csv has the classes alone: print groups in another format, or with --json.")
    from fairbench.reports import folder

    if model is None:
        from fairbench.models.loading import refuse_normalised
        from fairbench.models.patterns import matching

        if group:
            raise ProtocolError("--group is for one --model; with --models use --out and `fairbench eou`.")

        def asked(name: str) -> "Protocol":
            if mean is not None:
                refuse_normalised(name)
            return _protocol(options.protocol(protocol, name, dataset), radii, dict(changes))

        def load(name: str) -> "tuple[Model, Dataset, Protocol, Model | None]":
            its = asked(name)
            loaded, data, source = load_all(name, dataset, data_dir, its, dict(loading), transfer_from)
            return loaded, data, its, source

        computing = {"engine": chosen_engine, "device": device, "resume": not fresh, "precision": precision.value}
        named = matching(models or [])
        options.refuse_for_all(asked, named.values())
        evaluate_models(named, load, {**computing, "batch_size": batch_size}, out, format.value, as_json=as_json)
        return
    chosen = _protocol(options.protocol(protocol, model, dataset), radii, changes)
    with folder.claimed(out):
        loaded, data, source = load_all(model, dataset, data_dir, chosen, loading, transfer_from)
        check_attributes(group, data)
        outcomes, cached = run_shown(
            loaded,
            data,
            chosen,
            batch_size,
            device,
            engine=chosen_engine,
            out=out,
            fresh=fresh,
            source=source,
            precision=precision.value,
        )
        summary = summarize(outcomes)
        if out is not None:
            folder.keep(outcomes, summary, out)
    groups = [group_errors(outcomes, attribute, attack) for attribute in group for attack in outcomes.attacks]
    _print(summary, format, as_json, groups)
    if cached:
        run = outcomes.manifest["run"]
        print(f"note: computed before (run {run}); --fresh computes it again", file=sys.stderr)


def _protocol(name: str, radii: dict[str, str | None], changes: dict[str, Any]) -> "Protocol":
    from fairbench.evaluation.protocol import Protocol, parse_fraction

    for key, text in radii.items():
        if text is not None:
            changes[key] = parse_fraction(text, f"--{key.replace('_', '-')}")
    return Protocol.named(name, **changes)


def _engine(name: str, address: str | None, cpus: int | None, gpus: float | None) -> "str | Engine":
    """Return the engine to use: its name, or Ray with the options given."""
    given = {"address": address, "cpus": cpus, "gpus": gpus}
    given = {key: value for key, value in given.items() if value is not None}
    if not given:
        from fairbench.evaluation.engines import ENGINES

        return ENGINES.known(name)
    if name != "ray":
        raise ProtocolError("--address, --cpus-per-task and --gpus-per-task are for --engine ray.")
    from fairbench.evaluation.ray_engine import RayEngine

    return RayEngine(**given)  # type: ignore[arg-type]


def _print(summary: "Summary", format: Format, as_json: bool, groups: "list[GroupErrors]") -> None:
    from rich.console import Console

    from fairbench.cli.terminal import wide_enough
    from fairbench.reports import tables

    stderr = Console(stderr=True, highlight=False)
    if as_json:
        document = summary.to_dict() | ({"groups": [found.to_dict() for found in groups]} if groups else {})
        print(json.dumps(document, indent=2, allow_nan=False))
    elif format is Format.TABLE:
        shown = {name: tables.as_rich(attack) for name, attack in summary.attacks.items()}
        console = wide_enough(*shown.values())
        console.print(tables.headline(summary), markup=False, soft_wrap=True)
        for name, attack in summary.attacks.items():
            console.print(shown[name])
            if attack.least_epsilon is not None:
                console.print(tables.least_epsilon_lines(attack.least_epsilon), markup=False, soft_wrap=True)
            if attack.least_steps is not None:
                console.print(tables.least_steps_lines(attack.least_steps), markup=False, soft_wrap=True)
            console.print(tables.unfairness_line(attack), markup=False, soft_wrap=True)
    else:
        print(tables.as_text(summary, tables.TEXT_FORMATS[format.value]))
    if groups and not as_json:
        print("\n" + "\n\n".join(tables.group_table(found, format.value) for found in groups))
    for note in summary.notes:
        stderr.print(f"note: {note}", markup=False, soft_wrap=True)
    for warning in summary.warnings:
        stderr.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
