"""``fairbench bench``: what this machine reaches, and how long each protocol would take."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import shared_options
from fairbench.cli.progress import progress_bar
from fairbench.errors import ProtocolError

if TYPE_CHECKING:
    from fairbench.datasets import Dataset
    from fairbench.evaluation.bench import Bench
    from fairbench.evaluation.costs import Survivors
    from fairbench.evaluation.protocol import Protocol
    from fairbench.models import Model

DEFAULT_MODEL, DEFAULT_DATASET = "natural_resnet18", "cifar10"
_SHORTEST, _LONGEST = 1.0, 3600.0
_BUSY = 0.3
"""Load a thread before the measurement from which others are worth a warning."""


def bench(
    model: Annotated[
        str | None, typer.Option(help=f"A model of the zoo, or a checkpoint file. Default: {DEFAULT_MODEL}.")
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(help="Without --model: an architecture with fresh weights. With a checkpoint: its architecture."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help=f"Data to measure with. Default: the model's own, {DEFAULT_DATASET} for --arch.")
    ] = None,
    data_dir: shared_options.DataDir = None,
    seconds: Annotated[float, typer.Option(help="About how long to measure.")] = 60.0,
    memory: Annotated[
        float | None, typer.Option(help="Most memory a batch may take, in GB. Default: half of what is free.")
    ] = None,
    survivors: Annotated[
        float | None,
        typer.Option(
            help="Percent of the examples that withstand AutoAttack's first stage. Default: of the kept result, else "
            "measured with PGD-20."
        ),
    ] = None,
    device: shared_options.Device = None,
    as_json: shared_options.AsJson = False,
    out: Annotated[Path | None, typer.Option(help="JSON file to keep the result in.")] = None,
) -> None:
    """Measure FLOP/s, images per second and the best batch size, and predict the time of each protocol."""
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ProtocolError(f"--seconds {seconds:g}: give {_SHORTEST:g} to {_LONGEST:,.0f}.")
    if memory is not None and not 0 < memory < math.inf:
        raise ProtocolError(f"--memory {memory:g}: give GB, more than 0.")
    if survivors is not None and not 0 <= survivors <= 100:
        raise ProtocolError(f"--survivors {survivors:g}: a percentage is 0 to 100.")
    from fairbench.evaluation.bench import bench as measure
    from fairbench.files import make_folder, user_path, write_json

    target = None if out is None else user_path(out)
    if target is not None:
        if target.is_dir():
            raise ProtocolError(f"--out {out} is a folder: name a JSON file.")
        make_folder(target.absolute().parent)
    loaded, data, protocols = _load(model, arch, dataset, data_dir)
    with progress_bar(f"{loaded.name} on {data.name}: measuring", []) as progress:
        found = measure(
            loaded,
            data,
            protocols,
            seconds=seconds,
            memory=None if memory is None else memory * 1e9,
            survivors=_survivors(loaded, survivors),
            device=device,
            tell=progress,
        )
    if target is not None:
        write_json(found.to_dict(), target)
    print(json.dumps(found.to_dict(), indent=2, allow_nan=False) if as_json else _text(found))


def _load(
    model: str | None, arch: str | None, dataset: str | None, data_dir: str | None
) -> "tuple[Model, Dataset, dict[Protocol, int]]":
    """Return the model, the examples to measure with, and how many each protocol would attack."""
    from fairbench.evaluation.inputs import load_inputs
    from fairbench.evaluation.protocol import NAMED, default_protocol
    from fairbench.evaluation.runner import fitted
    from fairbench.models.loading import own_dataset

    name = model or (None if arch else DEFAULT_MODEL)
    dataset = dataset or (DEFAULT_DATASET if name is None else own_dataset(name))
    quick = NAMED[default_protocol(dataset)]
    if name is None:
        loaded, data = _fresh(str(arch), dataset, data_dir, quick)
    else:
        loaded, data, _ = load_inputs(name, quick, dataset=dataset, data_dir=data_dir, arch=arch)
    data = fitted(data, loaded, quick)
    counts = {
        protocol: len(data) if protocol.examples == quick.examples else _test_size(dataset, data_dir)
        for protocol in NAMED.values()
        if protocol.inputs == quick.inputs
    }
    return loaded, data, counts


def _fresh(arch: str, dataset: str, data_dir: str | None, protocol: "Protocol") -> "tuple[Model, Dataset]":
    """Build an architecture for a dataset."""
    import torch

    from fairbench.datasets import load_dataset
    from fairbench.evaluation.inputs import split_of
    from fairbench.models.base import Model
    from fairbench.models.building import new_module

    data = load_dataset(dataset, split_of(protocol), data_dir=data_dir)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, size = new_module(arch, data.num_classes, data.shape)
    return Model(module, f"{arch}, fresh weights", arch, input_size=size), data


def _test_size(dataset: str, data_dir: str | None) -> int:
    """Return how many test examples there are, without loading them where that is known."""
    from fairbench.datasets import load_dataset
    from fairbench.datasets.named import NAMED

    return NAMED[dataset].test_size if dataset in NAMED else len(load_dataset(dataset, "test", data_dir=data_dir))


def _survivors(model: "Model", percent: float | None) -> "Survivors | None":
    """Return the share given, or that of a kept result of these weights; None: it is to be measured or assumed."""
    from fairbench.evaluation.bench import ASSUMED
    from fairbench.evaluation.costs import Survivors, shares
    from fairbench.leaderboard.results import read_result, result_names

    if percent is not None:
        return Survivors(max(percent / 100, ASSUMED.correct), percent / 100, "as given with --survivors")
    if model.name.endswith(", fresh weights"):
        return ASSUMED
    found = {name: read_result(name) for name in result_names() if name.startswith(f"{model.name}.")}
    fitting = {
        name: kept
        for name, kept in found.items()
        if "autoattack" in kept.attacks
        and "epsilon" not in kept.manifest["protocol"]["modified"]
        and "transfer_from" not in kept.manifest
        and kept.manifest["model"]["sha256"] == model.sha256
    }
    if not fitting:
        return None
    name, most = max(fitting.items(), key=lambda item: len(item[1]))
    return shares(most.frame["autoattack_broken_by"], f"the kept result {name}, {len(most)} examples")


def _text(found: "Bench") -> str:
    """Return the report."""
    machine = found.hardware
    busy = "" if found.load is None else f"; load before {found.load:.1f}"
    totals = [f"{name} {duration(sum(cost.seconds for cost in costs))}" for name, costs in found.forecasts.items()]
    lines = [
        f"{found.model} ({found.architecture}) on {found.dataset}, {'x'.join(map(str, found.shape))}; attacked copy: "
        f"{', '.join(found.prepared)}",
        f"{machine.get('gpu', machine['processor'])}, {machine['threads']} threads{busy}",
        "",
        _peaks(found),
        "",
        _rates(found),
        f"an example is {found.flops.forward / 1e9:.3g} GFLOP forward, {found.flops.step / 1e9:.3g} an attack step; "
        "medians, and in brackets the slowest and the fastest run",
        f"* the best batch size: --batch-size {found.best.batch} (of those up to {found.memory / 1e9:.1f} GB)",
        "",
        _forecasts(found),
        f"predicted, at batches of 128, without start-up: {', '.join(totals)}",
    ]
    if found.survivors is not None:
        share = found.survivors
        lines.append(
            f"AutoAttack: {100 * share.correct:.1f} % are attacked by its first stage and "
            f"{100 * share.withstanding:.1f} % by the others ({share.source})"
        )
    if found.load is not None and found.load > _BUSY * machine["threads"]:
        lines.append(f"warning: other work shared the cores (load {found.load:.1f}); these are a busy machine's rates")
    return "\n".join([*lines, *(f"warning: {note}" for note in found.notes)])


def _peaks(found: "Bench") -> str:
    from fairbench.evaluation.speed import PEAKS

    rows = [[kind, *(f"{rates[kind] / 1e9:,.0f}" for rates in found.peaks.values())] for kind in PEAKS]
    return _plain(rows, ["peak, GFLOP/s", *found.peaks], left=(0,))


def _rates(found: "Bench") -> str:
    rows = [
        [
            f"{one.batch}{' *' if one is found.best else ''}",
            _rate(one.forward),
            _share(found, one.forward.median, found.flops.forward),
            _rate(one.step),
            f"{one.step.median * found.flops.step / 1e9:,.0f}",
            _share(found, one.step.median, found.flops.step),
            "n/a" if one.memory is None else f"{one.memory / 1e9:.2f}",
        ]
        for one in found.speeds
    ]
    heads = ["batch", "forward img/s", "of peak", "attack step img/s", "GFLOP/s", "of peak", "GB"]
    return _plain(rows, heads)


def _forecasts(found: "Bench") -> str:
    rows = [
        [
            protocol,
            f"{cost.examples:,}",
            cost.attack,
            f"{cost.forwards:,.0f}",
            f"{cost.backwards:,.0f}",
            f"{cost.flops / 1e12:,.1f}",
            duration(cost.seconds),
        ]
        for protocol, costs in found.forecasts.items()
        for cost in costs
    ]
    return _plain(rows, ["protocol", "examples", "attack", "forwards", "backwards", "TFLOP", "time"], left=(0, 2))


def _plain(rows: list[list[str]], heads: list[str], left: tuple[int, ...] = ()) -> str:
    from tabulate import tabulate

    align = ["left" if column in left else "right" for column in range(len(heads))]
    return tabulate(rows, heads, tablefmt="plain", disable_numparse=True, colalign=align)


def _rate(rate: Any) -> str:
    return f"{_number(rate.median)} [{_number(rate.low)}, {_number(rate.high)}]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _share(found: "Bench", rate: float, flops: int) -> str:
    return f"{100 * found.share(rate, flops):.0f} %"


def duration(seconds: float) -> str:
    """Return seconds in the unit a reader would choose.

    Examples
    --------
    >>> [duration(value) for value in (4.25, 90, 4000, 200_000)]
    ['4.2 s', '90 s', '67 min', '56 h']
    """
    for limit, size, unit in ((10, 1, "s"), (120, 1, "s"), (7_200, 60, "min")):
        if seconds < limit:
            return f"{seconds / size:.{int(limit == 10)}f} {unit}"
    return f"{seconds / 3600:,.0f} h"
