"""What commands that evaluate share: how they compute, a run behind a progress bar, and what it warns of."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fairbench.cli import options
from fairbench.cli.progress import progress_bar
from fairbench.errors import DatasetError
from fairbench.registry import suggest

if TYPE_CHECKING:
    from fairbench.datasets import Dataset
    from fairbench.evaluation import Protocol
    from fairbench.evaluation.engines import Engine
    from fairbench.evaluation.inputs import Inputs
    from fairbench.outcomes import Outcomes

Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Computing:
    """How a command's runs are computed.

    Parameters
    ----------
    batch_size
        Examples attacked at once; None for the default.
    device, precision, engine
        As of :func:`~fairbench.evaluation.runner.evaluate`.
    fresh
        Whether what a finished run has is computed again.
    """

    batch_size: int | None = None
    device: str | None = None
    precision: str = "fp32"
    engine: "str | Engine" = "local"
    fresh: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What ``evaluate`` and ``evaluate_many`` take."""
        return {**self._identifying, "engine": self.engine, "resume": not self.fresh}

    @property
    def _identifying(self) -> dict[str, Any]:
        """Those of the options that a run is named after."""
        from fairbench.evaluation.runner import BATCH_SIZE

        size = BATCH_SIZE if self.batch_size is None else self.batch_size
        return {"batch_size": size, "device": self.device, "precision": self.precision}

    def refuse_another_run(self, folder: Path | None, inputs: "Inputs", protocol: "Protocol") -> None:
        """Refuse a folder that holds another run than this one would be, before anything is computed.

        Raises
        ------
        OutcomesError
            It does.
        """
        from fairbench.evaluation.runner import identify
        from fairbench.reports.folder import refuse_another_run

        if folder is not None:
            run = identify(
                inputs.model, inputs.dataset, protocol, transfer_from=inputs.transfer_from, **self._identifying
            )
            refuse_another_run(folder, run)


def check_attributes(names: Iterable[str], data: "Dataset") -> None:
    """Refuse an attribute that the data lack, before anything is computed.

    Raises
    ------
    DatasetError
        There is no such attribute.
    """
    for name in names:
        if name not in data.attributes:
            known = list(data.attributes)
            has = suggest(name, known) if known else " It has none."
            raise DatasetError(f"{data.name} has no attribute '{name}'.{has}")


def run_shown(
    inputs: "Inputs", protocol: "Protocol", computing: Computing, *, out: Path | None = None
) -> "tuple[Outcomes, bool]":
    """Evaluate behind a progress bar; also say whether nothing had to be computed.

    Raises
    ------
    OutcomesError
        The folder ``out`` holds another run.
    """
    from fairbench.evaluation.runner import evaluate

    computing.refuse_another_run(out, inputs, protocol)
    worked: list[float] = []
    with progress_bar(f"{inputs.model.name}: {', '.join(protocol.attacks)}", worked) as progress:
        outcomes = evaluate(
            inputs.model,
            inputs.dataset,
            protocol,
            progress=progress,
            transfer_from=inputs.transfer_from,
            **computing.options,
        )
    say_narrow(outcomes, computing.precision)
    return outcomes, not worked


def side_by_side(
    models: Iterable[str],
    protocol_of: "Callable[[str], Protocol]",
    measure: "Callable[[Outcomes], Measured]",
    *,
    loading: Mapping[str, Any],
    computing: Computing,
    out: Path | None,
    attributes: Iterable[str] = (),
) -> dict[str, Measured]:
    """Evaluate models one after the other, and return what is measured of each, by the name that reports call it.

    Parameters
    ----------
    models
        What ``--model`` takes; one that is given twice counts once.
    protocol_of
        The protocol of a model, by what ``--model`` takes.
    measure
        Reads what the command shows off a table of outcomes.
    loading
        Options of :func:`~fairbench.evaluation.inputs.load_inputs`, the same for all.
    out
        Folder of the command's files, held meanwhile.
    attributes
        What the data must have.

    Raises
    ------
    ProtocolError
        Two models have one name.
    DatasetError
        There is no such attribute.
    """
    from fairbench.evaluation.inputs import load_inputs
    from fairbench.reports import folder

    found: dict[str, Measured] = {}
    with folder.claimed(out):
        for name in dict.fromkeys(models):
            protocol = protocol_of(name)
            inputs = load_inputs(name, protocol, **loading)
            check_attributes(attributes, inputs.dataset)
            outcomes, _ = run_shown(inputs, protocol, computing)
            say_warnings(outcomes)
            options.one_of_a_name(inputs.model.name, found)
            found[inputs.model.name] = measure(outcomes)
    return found


def say_warnings(outcomes: "Outcomes") -> None:
    """Print to stderr what the evaluation of a model warns of, where its report is not printed."""
    for text in outcomes.manifest.get("warnings", ()):
        print(f"warning: {outcomes.manifest['model']['name']}: {text}", file=sys.stderr)


def say_narrow(outcomes: "Outcomes", precision: str) -> None:
    """Print to stderr that a model was attacked in float32 where bf16 was asked for."""
    from fairbench.outcomes.schema import PRECISIONS

    if outcomes.manifest["precision"] != PRECISIONS[precision]:
        name = outcomes.manifest["model"]["name"]
        print(
            f"note: {name}: a network of such narrow layers is slower in bf16: gradients are float32", file=sys.stderr
        )
