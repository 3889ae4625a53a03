"""``evaluate``: shards to rows, resumable.

A run lives in a folder named after the hash of all that determines its rows: asking again is a cache hit, and a killed
run goes on where it stopped. A shard is a fixed set of examples attacked as one batch and written in one step, so
neither the order of shards nor a resume can change a byte of the table.
"""

import shutil
from pathlib import Path
from typing import Any

from torch import nn

from fairbench.datasets import Dataset
from fairbench.errors import DatasetError, ModelError, OutcomesError, ProtocolError
from fairbench.evaluation.device import checked_device
from fairbench.evaluation.engines import ENGINES, Engine
from fairbench.evaluation.execution import Execution, Progress
from fairbench.evaluation.protocol import QUICK, Protocol
from fairbench.evaluation.run import Run
from fairbench.files import cache_folder
from fairbench.models.base import Model, as_model
from fairbench.models.layout import is_narrow
from fairbench.outcomes import Outcomes
from fairbench.outcomes.schema import PRECISIONS, is_search
from fairbench.registry import suggest

BATCH_SIZE = 128
"""Examples in a shard, and so in memory at once."""


def evaluate(
    model: Model | nn.Module,
    dataset: Dataset,
    protocol: Protocol | str = QUICK,
    *,
    batch_size: int = BATCH_SIZE,
    device: str | None = None,
    engine: str | Engine = "local",
    runs: str | Path | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    transfer_from: Model | nn.Module | None = None,
    precision: str = "fp32",
) -> Outcomes:
    """Attack a model and return one row per example.

    Parameters
    ----------
    model
        What ``load_model`` returns, or a module from (B, C, H, W) float32 in [0, 1], or from (B, F) float32, to (B, K)
        logits.
    dataset
        What ``load_dataset`` returns. Under a protocol for the sample, a full split is cut to it.
    protocol
        Examples and attacks; ``Protocol.named("standard", epsilon=4 / 255)``, or the name of one as it is.
    batch_size
        Examples attacked at once; it bounds memory, and moves results only by floating-point order.
    device
        Such as "cpu" or "cuda:0"; default: the GPU if there is one.
    engine
        "local", "ray", or a function as :class:`~fairbench.evaluation.engines.Engine` describes.
    runs
        Folder the run's own folder is kept in; default: the user cache, or ``$FAIRBENCH_CACHE``.
    resume
        False computes everything again.
    transfer_from
        A model that the attacks are made for, instead of the one that is evaluated.
    precision
        What attacks compute gradients in, "fp32" or "bf16"; every verdict is the float32 model's. A network of narrow
        layers alone, such as LeNet-5, is slower in bf16 and always attacked in float32, as its manifest says.

    Raises
    ------
    FairbenchError
        With what is wrong, where, and what to try. A batch that fails is an error, never "robust".
    """
    run = plan(
        model,
        dataset,
        protocol,
        batch_size=batch_size,
        device=device,
        transfer_from=transfer_from,
        precision=precision,
    )
    execution = begin(run, runs=runs, resume=resume, progress=progress)
    if isinstance(execution, Outcomes):
        return execution
    chosen = ENGINES[engine] if isinstance(engine, str) else engine
    found = chosen(execution.compute, execution.missing)
    try:
        for number, shard in found:
            execution.add(number, shard)
    finally:  # a disk that is full must not leave tasks running
        getattr(found, "close", lambda: None)()
    return execution.finish()


def begin(
    run: Run, *, runs: str | Path | None = None, resume: bool = True, progress: Progress | None = None
) -> Outcomes | Execution:
    """Return the table of a run that is finished, or else the run under way; arguments as for :func:`evaluate`."""
    folder = Path(runs or cache_folder("runs")) / run.identity
    if resume:
        finished = _finished(folder, len(run.dataset))
        if finished is not None:
            return finished
    else:
        _remove(folder)
    return Execution(run, folder, progress)


def identify(
    model: Model | nn.Module,
    dataset: Dataset,
    protocol: Protocol | str = QUICK,
    *,
    batch_size: int = BATCH_SIZE,
    device: str | None = None,
    transfer_from: Model | nn.Module | None = None,
    precision: str = "fp32",
) -> str:
    """Return the name of the run that :func:`evaluate` would do, without doing it."""
    options: dict[str, Any] = {"transfer_from": transfer_from, "precision": precision}
    return plan(model, dataset, protocol, batch_size=batch_size, device=device, **options).identity


def plan(
    model: Model | nn.Module,
    dataset: Dataset,
    protocol: Protocol | str,
    *,
    batch_size: int,
    device: str | None,
    transfer_from: Model | nn.Module | None,
    precision: str,
) -> Run:
    """Return the run that :func:`evaluate` would do: its name, and how to compute it; arguments as there.

    Raises
    ------
    FairbenchError
        As :func:`evaluate`, for all that is known before a batch is attacked.
    """
    if precision not in PRECISIONS:
        raise ProtocolError(f"unknown precision '{precision}'.{suggest(precision, list(PRECISIONS))}")
    if isinstance(protocol, str):
        protocol = Protocol.named(protocol)
    if not isinstance(dataset, Dataset):
        raise DatasetError(
            f"the data are a {type(dataset).__name__}: give what load_dataset returns, or fairbench.datasets.Dataset "
            "with a name, inputs, labels and classes."
        )
    model = as_model(model)
    source = None if transfer_from is None else as_model(transfer_from)
    data = fitted(dataset, model, protocol)
    if source is not None:
        _check_source(source, model, data, protocol)
    device = checked_device(device)
    if is_narrow((source or model).module):
        precision = "fp32"  # bf16 would be slower, so this is the float32 run
    return Run(model, data, protocol, batch_size, device=device, source=source, precision=precision)


def _check_source(source: Model, model: Model, dataset: Dataset, protocol: Protocol) -> None:
    """Refuse a source whose examples would not be ones for the model."""
    searches = [attack for attack in protocol.attacks if is_search(attack)]
    if searches:
        raise ProtocolError(f"{searches[0]} searches the model itself: leave --transfer-from {source.name} out.")
    _check_kind(source, dataset)
    if source.input_size is not None and source.input_size != dataset.shape[1:]:
        took = "x".join(map(str, source.input_size))
        raise ModelError(f"{source.name} takes images of {took}, but {model.name} {dataset.described_shape}.")


def _check_kind(model: Model, dataset: Dataset) -> None:
    """Refuse a model whose card says that it takes something else than the dataset holds."""
    if model.card is None:
        return
    wanted = model.card.in_features
    if wanted is None and dataset.features is None:
        return
    if wanted is None or dataset.shape != (wanted,):
        takes = "images" if wanted is None else f"rows of {wanted} features"
        raise ModelError(
            f"{model.name} takes {takes}, but {dataset.name} holds {dataset.described_shape}; it was trained on "
            f"{model.card.dataset}."
        )


def fitted(dataset: Dataset, model: Model, protocol: Protocol) -> Dataset:
    """Cut a dataset to the protocol's examples and bring its images to the size the model demands.

    Raises
    ------
    ProtocolError
        The protocol wants the whole test split, and this is a sample; or it is not for what the dataset holds.
    """
    protocol.check_inputs(dataset.name, "images" if dataset.features is None else "features")
    _check_kind(model, dataset)
    if protocol.examples == "test" and dataset.split == "sample":
        raise ProtocolError(f"protocol {protocol.name} needs the whole test split of {dataset.name}, not the sample.")
    if dataset.split not in ("test", "sample"):
        raise ProtocolError(
            f"{dataset.name}: a protocol attacks test {dataset.kind}, and these are of the {dataset.split} split."
        )
    if protocol.examples == "sample":
        dataset = dataset.quick_sample()
    return dataset if model.input_size is None else dataset.resized(*model.input_size)


def _finished(folder: Path, examples: int) -> Outcomes | None:
    """Return the table of a finished run; None where there is none or it is damaged (it is computed again)."""
    try:
        outcomes = Outcomes.read(folder)
    except OutcomesError:
        return None
    return outcomes if outcomes.manifest.get("run") == folder.name and len(outcomes) == examples else None


def _remove(folder: Path) -> None:
    """Remove a run's folder, or the link or file in its place."""
    try:
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
    except OSError as error:
        raise OutcomesError(f"cannot remove the old run {folder}: {error.strerror or error}.") from error
