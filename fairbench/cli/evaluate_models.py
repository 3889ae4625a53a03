"""``fairbench evaluate --models``: many models in one queue, and a table of them all."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairbench.cli.progress import progress_bar
from fairbench.cli.running import Computing, say_narrow, say_warnings

if TYPE_CHECKING:
    from fairbench.evaluation import Protocol
    from fairbench.evaluation.inputs import Inputs
    from fairbench.evaluation.many import Asked, Evaluated
    from fairbench.outcomes import Outcomes

Load = Callable[[str], "tuple[Inputs, Protocol]"]


def evaluate_models(
    named: Mapping[str, str],
    load: Load,
    computing: Computing,
    out: Path | None,
    format: str,
    *,
    as_json: bool,
) -> None:
    """Evaluate all that are named, print a table, and end with 1 if one failed.

    Parameters
    ----------
    named
        Short name, as files and tables have it, to what ``--model`` takes.
    load
        Loads a model by its name, with its data, source of attacks, and protocol.
    computing
        How all of them are computed.
    out
        Folder for a folder a model and the table of all.
    """
    from fairbench.evaluation.many import evaluate_many
    from fairbench.metrics import summarize
    from fairbench.reports import folder
    from fairbench.reports import models as report

    loaders = {
        short: partial(_load_checked, load, name, computing, None if out is None else out / short)
        for short, name in named.items()
    }
    worked: list[float] = []
    with folder.claimed(out), progress_bar(f"{len(named)} models", worked) as progress:
        if out is not None:
            report.refuse_other_models(named, out)
        found = evaluate_many(loaders, progress=progress, finished=partial(_keep, out), **computing.options)
        summaries = {one.name: summarize(one.outcomes) for one in found if one.outcomes is not None}
        failed = {one.name: one.failed for one in found if one.failed is not None}
        if out is not None and summaries:
            report.keep(summaries, failed, out)
    if as_json:
        print(json.dumps(report.to_dict(summaries, failed), indent=2, allow_nan=False))
    elif summaries:
        print(report.as_text(summaries, format))
    for one in found:
        print(_line(one), file=sys.stderr)
        if one.outcomes is not None:
            say_warnings(one.outcomes)
            say_narrow(one.outcomes, computing.precision)
    if failed:
        raise typer.Exit(1)


def _load_checked(load: Load, name: str, computing: Computing, folder: Path | None) -> "Asked":
    """Load a model, and refuse a folder that holds another run before anything is computed."""
    inputs, protocol = load(name)
    computing.refuse_another_run(folder, inputs, protocol)
    return inputs.model, inputs.dataset, protocol, inputs.transfer_from


def _keep(out: Path | None, name: str, outcomes: "Outcomes") -> None:
    from fairbench.metrics import summarize
    from fairbench.reports import folder

    if out is not None:
        with folder.claimed(out / name):
            folder.keep(outcomes, summarize(outcomes), out / name)


def _line(one: "Evaluated") -> str:
    if one.failed is not None:
        return f"{one.name}: failed: {one.failed}"
    return f"{one.name}: {'computed before; --fresh computes it again' if one.cached else 'done'}"
