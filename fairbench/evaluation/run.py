"""One evaluation: what determines its rows, how a shard of them is computed, and what is said beside them."""

import json
import math
import re
import time
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import fairbench
from fairbench import provenance
from fairbench.attacks.base import PIXELS, Attack, Space, Tick, label_confidence, logits_of, run_attack
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ModelError, ProtocolError, first_line
from fairbench.evaluation import diagnostics
from fairbench.evaluation.class_count import asked_for_classes
from fairbench.evaluation.engines import Shard
from fairbench.evaluation.protocol import Protocol
from fairbench.float32 import exact
from fairbench.memory import is_out_of_memory
from fairbench.models.base import Model
from fairbench.models.layout import settle_layout
from fairbench.models.prepare import frozen, gradient_kind, prepare
from fairbench.outcomes.identity import run_identity
from fairbench.outcomes.schema import FORMAT_VERSION, PRECISIONS

_FINGERPRINT = 32
"""Examples whose logits tell one model from another."""


_CODE = ("attacks/*.py", "evaluation/run.py", "float32.py", "models/*.py")
"""Where the code lies that moves a row."""

_OF_SHAPES = re.compile(r"size|shape|dimension|channel|multiplied|broadcast|stack|concatenate", re.IGNORECASE)
"""What PyTorch says of images that do not fit."""


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
        self._names = {"model": _named(model)} | ({} if source is None else {"transfer_from": _named(source)})
        self.attacked = self.original if source is None else frozen(source.module).to(device)
        self.prepared: nn.Module = self.attacked

    @property
    def determinants(self) -> dict[str, Any]:
        """All that a row depends on, as plain data."""
        return {
            "format": FORMAT_VERSION,
            **{key: dict(named) for key, named in self._names.items()},
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
            "attack_code": _code(),
        }

    @cached_property
    @exact()
    def behaviour(self) -> str:
        """Hash of what models say of some examples, and of how they pass gradients: no look at code sees all.

        A model that cannot answer has none; :meth:`inspect` says why.
        """
        few = np.linspace(0, len(self.dataset) - 1, min(_FINGERPRINT, len(self.dataset))).astype(np.int64)
        x = self.dataset.batch(few)[0].to(self.device)  # spread: the first of a folder are of one class
        try:
            said = [_said(self.original, x)] + ([] if self.source is None else [_said(self.attacked, x)])
            return provenance.sha256_json([*said, gradient_kind(self.attacked, x)])
        except (Exception, SystemExit):
            return "unknown"

    @property
    def identity(self) -> str:
        """Name of the run's folder."""
        return run_identity(self.determinants)

    @exact()
    def compute(self, number: int, tick: Tick) -> Shard:
        """Attack one shard and return its columns, its seconds, and this machine."""
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
        return columns, seconds, provenance.hardware(self.device)

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
            warnings = asked_for_classes(
                self.dataset,
                lambda count: diagnostics.check_model(self.original, batch, count, pixels=pixels),
                lambda count: logits_of(self.original, batch[0], batch[2], count),
            )
            if self.source is not None:
                diagnostics.refuse_in_place(self.attacked, batch[0])
                logits_of(self.attacked, batch[0], batch[2], self.dataset.num_classes)
        except FairbenchError:
            raise
        except (Exception, SystemExit) as error:  # a user's own forward can raise anything
            if is_out_of_memory(error):
                raise out_of_memory(self.batch_size) from error
            raise self._refused(error) from error
        prepared = prepare(self.attacked, batch[0], self.precision)
        settle_layout(self.original, batch[0])  # the verdict's pass, too, is faster channels-last
        self.prepared = prepared.module
        found = [*diagnostics.check_dataset(self.dataset), *warnings]
        return found + ([prepared.warning] if prepared.warning else [])

    def _refused(self, error: BaseException) -> ModelError:
        """Return what to say of a model that raised at the first batch: that its shape is wrong, where that is it."""
        names = " and ".join(m.name for m in (self.model, self.source) if m is not None)
        shapes = isinstance(error, RuntimeError | ValueError) and _OF_SHAPES.search(str(error))
        if not shapes and not isinstance(error, AssertionError):  # mostly one of the shape
            return ModelError(f"{names} fails on {self.dataset.described_shape}: {first_line(error)}")
        advice = ", or pass --resize." if self.dataset.features is None else "."
        return ModelError(
            f"{names} cannot take {self.dataset.described_shape}: {first_line(error)} "
            f"Check --arch and --dataset{advice}"
        )

    def manifest(self, warnings: list[str], shard_metadata: list[dict[str, str]]) -> dict[str, Any]:
        """Return what goes beside the table."""
        manifest = self.determinants
        manifest["model"] |= {"architecture": self.model.architecture}
        manifest["dataset"] |= {"n": len(self.dataset), "classes": list(self.dataset.classes)}
        manifest["dataset"] |= {"shape": list(self.dataset.shape), "attributes": sorted(self.dataset.attributes)}
        if self.dataset.features is not None:
            manifest["dataset"] |= {"features": list(self.dataset.features.names), "scale": self.dataset.features.scale}
        manifest["run"] = self.identity
        manifest["hardware"] = provenance.machines([json.loads(m["machine"]) for m in shard_metadata])
        manifest["seconds"] = {
            attack.name: round(sum(float(m[f"seconds_{attack.name}"]) for m in shard_metadata), 3)
            for attack in self.attacks
        }
        manifest["notes"] = [*self.model.notes, *self.dataset.notes, *self._protocol_notes()]
        manifest["warnings"] = warnings
        return manifest

    def _protocol_notes(self) -> list[str]:
        notes = []
        if self.source is not None:
            notes.append(f"transfer: every attack was made for {self.source.name}, which {self.model.name} then met")
            if "autoattack" in self.protocol.attacks:
                notes.append(f"AutoAttack leaves an example as it is that {self.source.name} misclassifies")
        if self.precision != "fp32":
            notes.append(f"gradients in {self.precision}: attacks computed so; every verdict is the float32 model's")
            if own := [attack.name for attack in self.attacks if getattr(attack, "foreign", False)]:
                notes.append(f"gradients of {', '.join(own)} are in float32 all the same")
        if "autoattack" in self.protocol.attacks and self.dataset.num_classes <= 3:
            notes.append(
                f"AutoAttack for {self.dataset.num_classes} classes is APGD-CE, FAB and Square: the targeted DLR loss "
                "needs four"
            )
        return notes


@cache
def _code() -> str:
    """Return a hash of the code that attacks, prepares and judges: between two releases versions do not tell."""
    package = Path(fairbench.__file__).parent
    sources = (source for place in _CODE for source in package.glob(place))
    return provenance.sha256_bytes(*(source.read_bytes() for source in sorted(sources)))


def _said(module: nn.Module, x: torch.Tensor) -> str:
    """Return a hash of the logits to four decimals."""
    with torch.no_grad():
        logits = module(x)
    return provenance.sha256_array(np.round(logits.float().cpu().numpy(), 4) + 0.0)  # no negative zeros


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


def out_of_memory(batch_size: int) -> ModelError:
    """Return what to say then."""
    return ModelError(f"out of memory at batch size {batch_size}; pass a smaller --batch-size.")


def _nullable(values: Any) -> Any:
    """Turn a masked array into a column with missing values."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    known = [None if missing else value for value, missing in zip(values.data, np.ma.getmaskarray(values), strict=True)]
    return pd.Series(known, dtype="string" if values.dtype == object else "Int16")
