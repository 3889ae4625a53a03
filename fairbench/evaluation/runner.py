"""``evaluate``: shards to rows, resumable.

A run lives in a folder named after the hash of all that determines its rows: asking again is a cache hit, and a killed
run goes on where it stopped. A shard is a fixed set of examples attacked as one batch and written in one step, so
neither the order of shards nor a resume can change a byte of the table.
"""

import math
import shutil
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from fairbench import provenance
from fairbench.attacks.base import PIXELS, Attack, Space, Tick, label_confidence, logits_of, run_attack
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ModelError, OutcomesError, ProtocolError, first_line
from fairbench.evaluation import diagnostics
from fairbench.evaluation.device import checked_device, exact
from fairbench.evaluation.engines import ENGINES, Engine, Shard
from fairbench.evaluation.protocol import QUICK, Protocol
from fairbench.files import cache_folder, make_folder
from fairbench.memory import keep_freed_memory
from fairbench.metrics import summarize
from fairbench.models.base import Model, as_model
from fairbench.models.layout import settle_layout
from fairbench.models.prepare import frozen, prepare
from fairbench.outcomes import Outcomes
from fairbench.outcomes.identity import run_identity
from fairbench.outcomes.schema import FORMAT_VERSION, PRECISIONS
from fairbench.outcomes.table import read_table_and_metadata, write_table
from fairbench.registry import suggest

BATCH_SIZE = 128
"""Examples in a shard, and so in memory at once."""
_FINGERPRINT = 32
"""Examples whose logits tell one model from another."""

Progress = Callable[[float, float], None]
"""Called with (work done, work in all)."""


def evaluate(
    model: Model | nn.Module,
    dataset: Dataset,
    protocol: Protocol = QUICK,
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
        Examples and attacks; ``Protocol.named("standard")``.
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
        What attacks compute gradients in, "fp32" or "bf16"; every verdict is the float32 model's.

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
    for number, shard in chosen(execution.compute, execution.missing):
        execution.add(number, shard)
    return execution.finish()


def begin(
    run: "Run", *, runs: str | Path | None = None, resume: bool = True, progress: Progress | None = None
) -> "Outcomes | Execution":
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
    protocol: Protocol = QUICK,
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
    protocol: Protocol,
    *,
    batch_size: int,
    device: str | None,
    transfer_from: Model | nn.Module | None,
    precision: str,
) -> "Run":
    """Return the run that :func:`evaluate` would do: its name, and how to compute it."""
    if precision not in PRECISIONS:
        raise ProtocolError(f"unknown precision '{precision}'.{suggest(precision, list(PRECISIONS))}")
    model = as_model(model)
    source = None if transfer_from is None else as_model(transfer_from)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    data = fitted(dataset, model, protocol)
    if source is not None:
        _check_source(source, model, data, protocol)
    device = checked_device(device)
    return Run(model, data, protocol, batch_size, device=device, source=source, precision=precision)


def _check_source(source: Model, model: Model, dataset: Dataset, protocol: Protocol) -> None:
    """Refuse a source whose examples would not be ones for the model."""
    searches = [attack for attack in protocol.attacks if attack.startswith("least-epsilon")]
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


class Run:
    """One evaluation: what determines it, how a shard is computed, how shards become a table."""

    def __init__(
        self,
        model: Model,
        dataset: Dataset,
        protocol: Protocol,
        batch_size: int,
        *,
        device: str,
        source: Model | None,
        precision: str,
    ) -> None:
        if batch_size < 1:
            raise ProtocolError(f"batch size {batch_size}: it must be 1 or more.")
        self.model, self.dataset, self.protocol = model, dataset, protocol
        self.batch_size, self.device, self.precision = batch_size, device, precision
        self.attacks: list[Attack] = protocol.build_attacks(dataset.num_classes, _space(dataset, protocol))
        self.original = frozen(model.module).to(device)  # the caller's module stays as it is
        self.source = source
        self.attacked = self.original if source is None else frozen(source.module).to(device)
        self.prepared: nn.Module = self.attacked

    @property
    def determinants(self) -> dict[str, Any]:
        """All that a row depends on, as plain data."""
        source = {} if self.source is None else {"transfer_from": _named(self.source)}
        return {
            "format": FORMAT_VERSION,
            "model": _named(self.model),
            **source,
            "dataset": {"name": self.dataset.name, "split": self.dataset.split, "sha256": self.dataset.sha256},
            "protocol": {
                "name": self.protocol.name,
                "modified": self.protocol.modified,
                "seed": self.protocol.seed,
            },
            "attacks": {attack.name: attack.parameters() for attack in self.attacks},
            "behaviour": self.behaviour,
            "batch_size": self.batch_size,
            "precision": PRECISIONS[self.precision],
            "device": self.device.partition(":")[0],
            "versions": provenance.versions(),
        }

    @cached_property
    @exact()
    def behaviour(self) -> str:
        """Hash of what the model says of the first examples, to four decimals: what no look at its code can miss.

        A model that cannot answer has none; :meth:`inspect` says why.
        """
        x = self.dataset.batch(self.rows(0)[:_FINGERPRINT])[0].to(self.device)
        try:
            with torch.no_grad():
                logits = self.original(x)
            return provenance.sha256_array(np.round(logits.float().cpu().numpy(), 4) + 0.0)  # no negative zeros
        except Exception:
            return "unknown"

    @property
    def identity(self) -> str:
        """Name of the run's folder."""
        return run_identity(self.determinants)

    @exact()
    def compute(self, number: int, tick: Tick) -> Shard:
        """Attack one shard and return its columns and seconds."""
        x, y, index = self._batch(number)
        logits = logits_of(self.original, x, index, self.dataset.num_classes)
        confidence, prediction = logits.softmax(1).max(1)
        columns: dict[str, Any] = {"index": index, "label": y.cpu().numpy().astype(np.int16)}
        columns.update({name: _column(v[self.rows(number)]) for name, v in self.dataset.attributes.items()})
        columns["clean_pred"] = prediction.cpu().numpy().astype(np.int16)
        columns["clean_confidence"] = confidence.cpu().numpy()
        grouped = bool(self.dataset.attributes)  # EOU wants to know; tables of images alone stay as small as they are
        if grouped:
            columns["clean_label_confidence"] = label_confidence(logits, y)
        seconds = {}
        for attack in self.attacks:
            start = time.perf_counter()
            found = run_attack(
                attack,
                self.attacked,
                self.prepared,
                (x, y, index),
                num_classes=self.dataset.num_classes,
                tick=tick,
                judge=None if self.source is None else self.original,
                confidences=grouped,
            )
            seconds[attack.name] = time.perf_counter() - start
            columns.update({name: _nullable(values) for name, values in found.items()})
        return columns, seconds

    def rows(self, number: int) -> np.ndarray:
        """Return the rows of the dataset in a shard."""
        start = number * self.batch_size
        return np.arange(start, min(start + self.batch_size, len(self.dataset)))

    def _batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
        x, y, index = self.dataset.batch(self.rows(number))
        return x.to(self.device), y.to(self.device), index

    @exact()
    def inspect(self) -> list[str]:
        """Check the model on the first shard, prepare the copy that is attacked, and return warnings."""
        batch = self._batch(0)
        try:
            pixels = self.dataset.features is None
            warnings = diagnostics.check_model(self.original, batch, self.dataset.num_classes, pixels=pixels)
            if self.source is not None:
                logits_of(self.attacked, batch[0], batch[2], self.dataset.num_classes)
        except FairbenchError:
            raise
        except Exception as error:  # a user's own forward can raise anything
            if _is_out_of_memory(error):
                raise _out_of_memory(self.batch_size) from error
            names = " and ".join(m.name for m in (self.model, self.source) if m is not None)
            advice = ", or pass --resize." if self.dataset.features is None else "."
            raise ModelError(
                f"{names} cannot take {self.dataset.described_shape}: {first_line(error)} "
                f"Check --arch and --dataset{advice}"
            ) from error
        prepared = prepare(self.attacked, batch[0], self.precision)
        settle_layout(self.original, batch[0])  # the verdict's pass, too, is faster channels-last
        self.prepared = prepared.module
        found = [*diagnostics.check_dataset(self.dataset), *warnings]
        return found + ([prepared.warning] if prepared.warning else [])

    def manifest(self, warnings: list[str], shard_metadata: list[dict[str, str]]) -> dict[str, Any]:
        """Return what goes beside the table."""
        manifest = self.determinants
        manifest["model"] |= {"architecture": self.model.architecture}
        manifest["dataset"] |= {"n": len(self.dataset), "classes": list(self.dataset.classes)}
        manifest["dataset"] |= {"shape": list(self.dataset.shape), "attributes": sorted(self.dataset.attributes)}
        if self.dataset.features is not None:
            manifest["dataset"] |= {"features": list(self.dataset.features.names), "scale": self.dataset.features.scale}
        manifest["run"] = self.identity
        manifest["hardware"] = provenance.hardware(self.device)
        manifest["seconds"] = {
            attack.name: round(sum(float(m.get(f"seconds_{attack.name}", "nan")) for m in shard_metadata), 3)
            for attack in self.attacks
        }
        manifest["notes"] = [*self.model.notes, *self.dataset.notes, *self._protocol_notes()]
        manifest["warnings"] = warnings
        return manifest

    def _protocol_notes(self) -> list[str]:
        notes = []
        if self.source is not None:
            notes.append(f"transfer: every attack was made for {self.source.name}, which {self.model.name} then met")
        if self.precision != "fp32":
            notes.append(f"gradients in {self.precision}: attacks computed so; every verdict is the float32 model's")
        if "autoattack" in self.protocol.attacks and self.dataset.num_classes <= 3:
            notes.append(
                f"AutoAttack for {self.dataset.num_classes} classes is APGD-CE, FAB and Square: the targeted DLR loss "
                "needs four"
            )
        return notes


class Execution:
    """A run under way: which shards are missing, how to compute one, and where it goes."""

    def __init__(self, run: Run, folder: Path, progress: Progress | None) -> None:
        self._run, self._folder = run, folder
        self._shards = make_folder(folder / "shards")
        keep_freed_memory()
        self._warnings = run.inspect()
        self._count = -(-len(run.dataset) // run.batch_size)
        kept = ((number, _read_shard(_shard_path(self._shards, number))) for number in range(self._count))
        self._done = {number: shard for number, shard in kept if shard}
        self._work = _Work(run, progress, self._examples())

    @property
    def compute(self) -> Callable[[int], Shard]:
        """What computes a shard by its number; it can be pickled."""
        return self._work.compute

    @property
    def missing(self) -> list[int]:
        """The numbers of the shards that are not there yet."""
        return [number for number in range(self._count) if number not in self._done]

    def add(self, number: int, shard: Shard) -> None:
        """Write a shard, in one step."""
        columns, seconds = shard
        metadata = {f"seconds_{name}": repr(value) for name, value in seconds.items()}
        frame = pd.DataFrame(columns)
        write_table(frame, _shard_path(make_folder(self._shards), number), metadata)
        self._done[number] = frame, metadata
        self._work.settle(self._examples())

    def finish(self) -> Outcomes:
        """Write the table and remove the shards, all of which are there."""
        done = [self._done[number] for number in range(self._count)]
        frame = pd.concat([shard for shard, _ in done], ignore_index=True)
        outcomes = Outcomes(frame, self._run.manifest(self._warnings, [metadata for _, metadata in done]))
        outcomes.manifest["warnings"] += diagnostics.check_results(summarize(outcomes))
        outcomes.write(self._folder)
        shutil.rmtree(self._shards, ignore_errors=True)
        return outcomes

    def _examples(self) -> int:
        return sum(len(self._run.rows(number)) for number in self._done)


class _Work:
    """Computes shards and keeps the progress bar's sum."""

    def __init__(self, run: Run, progress: Progress | None, examples_done: int) -> None:
        self._run = run
        self._progress = progress
        self._cost = sum(attack.cost for attack in run.attacks)
        self._total = self._cost * len(run.dataset)
        self._done = self._cost * examples_done

    def compute(self, number: int) -> Shard:
        """Compute one shard.

        Raises
        ------
        ModelError
            The machine's memory does not hold the batch.
        """
        try:
            return self._run.compute(number, self._tick)
        except FairbenchError:
            raise
        except Exception as error:  # a user's own forward can raise anything
            if _is_out_of_memory(error):
                raise _out_of_memory(self._run.batch_size) from error
            first = (str(error).splitlines() or [""])[0]
            raise ModelError(
                f"{self._run.model.name} failed on shard {number} (batches of {self._run.batch_size}): "
                f"{type(error).__name__}: {first}"
            ) from error

    def settle(self, examples_done: int) -> None:
        """Report what other processes did: they do not tick here."""
        self._tick(max(self._cost * examples_done - self._done, 0.0))

    def _tick(self, work: float) -> None:
        self._done += work
        if self._progress is not None:
            self._progress(self._done, self._total)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the progress bar here when a copy goes to another process."""
        return self.__dict__ | {"_progress": None}


def _named(model: Model) -> dict[str, Any]:
    return {"name": model.name, "sha256": model.sha256, "code_sha256": model.code_sha256}


def _space(dataset: Dataset, protocol: Protocol) -> Space:
    """Return what an attack may make of the inputs."""
    features = dataset.features
    if features is None:
        return PIXELS
    free = features.free(protocol.protect)
    facts = {
        "scale": features.scale,
        "protected": sorted({c for c, may in zip(features.columns, free, strict=True) if not may}),
        "range": "of the training split" if protocol.in_range else "none",
    }
    return Space(
        torch.from_numpy(features.low) if protocol.in_range else -math.inf,
        torch.from_numpy(features.high) if protocol.in_range else math.inf,
        None if free.all() else torch.from_numpy(free),
        facts,
    )


def _column(values: np.ndarray) -> Any:
    """Return an attribute in the type it has once it was written and read."""
    return pd.Series(values, dtype="string") if values.dtype.kind in "UO" else values


def _is_out_of_memory(error: Exception) -> bool:
    """CUDA has a class for it; the CPU's allocator has only words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _out_of_memory(batch_size: int) -> ModelError:
    return ModelError(f"out of memory at batch size {batch_size}; pass a smaller --batch-size.")


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


def _shard_path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.parquet"


def _read_shard(path: Path) -> tuple[pd.DataFrame, dict[str, str]] | None:
    try:
        return read_table_and_metadata(path) if path.is_file() else None
    except OutcomesError:
        return None


def _nullable(values: Any) -> Any:
    """Turn a masked array into a column with missing values."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    known = [None if missing else value for value, missing in zip(values.data, np.ma.getmaskarray(values), strict=True)]
    return pd.Series(known, dtype="string" if values.dtype == object else "Int16")
