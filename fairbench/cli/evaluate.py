"""``fairbench evaluate``: from a checkpoint to a per-class robustness report."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairbench.cli import evaluate_options as own
from fairbench.cli import options, shared_options
from fairbench.cli.evaluate_models import evaluate_models
from fairbench.cli.evaluate_options import Format, Precision
from fairbench.cli.running import Computing, check_attributes, run_shown
from fairbench.errors import ModelError, ProtocolError

if TYPE_CHECKING:
    from fairbench.evaluation import Protocol
    from fairbench.evaluation.engines import Engine
    from fairbench.evaluation.inputs import Inputs
    from fairbench.metrics import Summary
    from fairbench.metrics.groups import GroupErrors


def evaluate(
    model: own.Model = None,
    models: own.ManyModels = None,
    arch: own.Arch = None,
    dataset: own.Dataset = None,
    data_dir: shared_options.DataDirOrCache = None,
    protocol: own.ProtocolName = None,
    attacks: own.Attacks = None,
    epsilon: own.Epsilon = None,
    max_epsilon: own.MaxEpsilon = None,
    resolution: own.Resolution = None,
    max_steps: shared_options.MaxSteps = None,
    step: own.Step = None,
    steps: own.Steps = None,
    restarts: own.Restarts = None,
    score: own.CountedIterate = None,
    seed: shared_options.Seed = None,
    protect: own.Protect = None,
    in_range: own.InRange = False,
    transfer_from: own.TransferFrom = None,
    group: own.Groups = None,
    mean: shared_options.Mean = None,
    std: shared_options.Std = None,
    output: own.Output = None,
    resize: own.Resize = None,
    drop_classes: own.DropClasses = None,
    model_dir: own.ModelDir = None,
    batch_size: own.BatchSize = None,
    device: shared_options.Device = None,
    precision: own.OfGradients = Precision.FP32,
    engine: own.EngineName = "local",
    address: own.Address = None,
    cpus_per_task: own.CpusPerTask = None,
    gpus_per_task: own.GpusPerTask = None,
    out: own.Out = None,
    as_json: shared_options.AsJsonAlone = False,
    format: own.Printed = Format.TABLE,
    union: own.Union = False,
    fresh: own.Fresh = False,
) -> None:
    """Attack a model and report, class by class, what breaks."""
    from fairbench.files import user_path

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
    radii = {"epsilon": epsilon, "max_epsilon": max_epsilon, "resolution": resolution, "step": step}
    group = list(dict.fromkeys(group or []))
    _refuse_contradictions(model, models, transfer_from, model_dir, group, format, as_json=as_json, union=union)
    chosen_engine = _engine(engine, address, cpus_per_task, gpus_per_task)
    computing = Computing(batch_size, device, precision.value, chosen_engine, fresh)
    loading: dict[str, Any] = {
        "dataset": dataset,
        "data_dir": data_dir,
        "transfer_from": transfer_from,
        "resize": options.size(resize),
        "drop_classes": drop_classes,
        "mean": options.floats(mean, "--mean"),
        "std": options.floats(std, "--std"),
        "arch": arch,
        "output": output,
        "model_dir": model_dir,
    }
    out = None if out is None else user_path(out)
    protocol_of = partial(_protocol, protocol, dataset, radii, changes)
    if model is None:
        _evaluate_all(models or [], protocol_of, loading, computing, out, format, as_json=as_json)
    else:
        asked = protocol_of(model)
        if union and len(asked.together) < 2:
            raise ProtocolError(f"--union is for two attacks or more, such as --attacks {asked.attacks[0]},autoattack.")
        _evaluate_one(model, asked, loading, computing, out, group, format, as_json=as_json, union=union)


def _refuse_contradictions(
    model: str | None,
    models: list[str] | None,
    transfer_from: str | None,
    model_dir: str | None,
    group: list[str],
    format: Format,
    *,
    as_json: bool,
    union: bool,
) -> None:
    """Refuse options that do not go together, whatever their values."""
    if as_json and format is not Format.TABLE:
        raise ProtocolError(f"--json and --format {format.value}: give one of them.")
    if (model is None) == (not models):
        what = "not both --model and --models" if models else "--model, or --models for many"
        raise ModelError(f"give {what}, such as --models 'zoo:cifar10/*'.")
    names = [*(models or []), *(name for name in (model, transfer_from) if name is not None)]
    if model_dir is not None and not any(name.startswith("robustbench:") for name in names):
        raise ModelError("--model-dir is where models robustbench:ID lie; none is asked for.")
    if group and format is Format.CSV:
        raise ProtocolError("--format csv has the classes alone: print groups in another format, or with --json.")
    if union and model is None:
        raise ProtocolError("--union is for one --model; of kept tables fairbench.metrics.with_union.")
    if group and model is None:
        raise ProtocolError("--group is for one --model; with --models use --out and `fairbench eou`.")


def _evaluate_all(
    models: list[str],
    protocol_of: "Callable[[str], Protocol]",
    loading: dict[str, Any],
    computing: Computing,
    out: Path | None,
    format: Format,
    *,
    as_json: bool,
) -> None:
    from fairbench.models.loading import refuse_normalised, takes_architecture
    from fairbench.models.patterns import matching

    def asked(name: str) -> "Protocol":
        if loading["mean"] is not None:
            refuse_normalised(name)
        return protocol_of(name)

    def load(name: str) -> "tuple[Inputs, Protocol]":
        protocol = asked(name)
        own = loading if takes_architecture(name) or not for_some else {**loading, "arch": None}
        return _load(name, protocol, own), protocol

    named = matching(models)
    for_some = any(map(takes_architecture, named.values()))  # then --arch is theirs, and others bring their own
    options.refuse_for_all(asked, named.values())
    evaluate_models(named, load, computing, out, format.value, as_json=as_json)


def _evaluate_one(
    model: str,
    protocol: "Protocol",
    loading: dict[str, Any],
    computing: Computing,
    out: Path | None,
    group: list[str],
    format: Format,
    *,
    as_json: bool,
    union: bool,
) -> None:
    from fairbench.metrics import summarize, with_union
    from fairbench.metrics.groups import group_errors
    from fairbench.reports import folder

    with folder.claimed(out):
        inputs = _load(model, protocol, loading)
        check_attributes(group, inputs.dataset)
        outcomes, cached = run_shown(inputs, protocol, computing, out=out)
        summary = summarize(outcomes)
        if out is not None:
            folder.keep(outcomes, summary, out)
    shown = with_union(outcomes) if union else outcomes
    groups = [group_errors(shown, attribute, attack) for attribute in group for attack in shown.attacks]
    _print(summarize(shown) if union else summary, format, as_json, groups)
    if cached:
        run = outcomes.manifest["run"]
        print(f"note: computed before (run {run}); --fresh computes it again", file=sys.stderr)


def _load(name: str, protocol: "Protocol", loading: dict[str, Any]) -> "Inputs":
    from fairbench.evaluation.inputs import load_inputs

    return load_inputs(name, protocol, **{**loading, "drop_classes": options.classes(loading["drop_classes"])})


def _protocol(
    name: str | None, dataset: str | None, radii: dict[str, str | None], changes: dict[str, Any], model: str
) -> "Protocol":
    """Return the protocol of a model: the one named, or its data's, with what the options change."""
    from fairbench.evaluation.protocol import Protocol, parse_fraction

    named = options.protocol(name, model, dataset)
    given = {key: parse_fraction(text, f"--{key.replace('_', '-')}") for key, text in radii.items() if text is not None}
    return Protocol.named(named, **(changes | given))


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
