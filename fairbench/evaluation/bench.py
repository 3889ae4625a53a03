"""``bench``: what this machine reaches with a model, and how long each protocol would take it."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench import provenance
from fairbench.attacks.base import Attack, ThreatModel, logits_of, run_attack
from fairbench.attacks.pgd import PGDAttack
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ModelError, first_line
from fairbench.evaluation import costs, speed
from fairbench.evaluation.costs import Cost, Survivors, Work
from fairbench.evaluation.device import checked_device
from fairbench.evaluation.protocol import Protocol
from fairbench.evaluation.speed import BatchSpeed, Flops
from fairbench.models.base import Model
from fairbench.models.prepare import frozen, prepare

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ASSUMED = Survivors(
    0.8, 0.5, "assumed, for it was not measured: 80 % are classified correctly and 50 % withstand the first stage"
)
"""Of a model that nothing is known of; about what adversarially trained networks reach on CIFAR-10 at 8/255."""
_PROBE = 32
_FEWEST, _MOST = 16, 200
"""Examples that PGD-20 attacks to tell how many withstand it."""

Batches = Callable[[int], tuple[Tensor, Tensor, np.ndarray]]
"""Returns ``x`` (B, ...), ``y`` (B,) and their positions in the split (B,) for a B."""
Tell = Callable[[float, float], None]
"""Called with (seconds of the budget spent, seconds in all)."""


@dataclass(frozen=True)
class Bench:
    """What was measured, and what follows from it.

    Parameters
    ----------
    peaks
        FLOP/s by precision and kind, :data:`~fairbench.evaluation.speed.PEAKS`.
    flops
        Of one example.
    speeds, best, memory
        Rates by batch size, the best one, and the bound in bytes.
    survivors, stages
        What AutoAttack is expected to find, and its work by stage; None where no protocol has it.
    forecasts
        The cost of each attack of each protocol, "clean" first.
    """

    model: str
    architecture: str
    dataset: str
    shape: tuple[int, ...]
    prepared: tuple[str, ...]
    peaks: dict[str, dict[str, float]]
    flops: Flops
    speeds: list[BatchSpeed]
    best: BatchSpeed
    memory: float
    survivors: Survivors | None
    stages: dict[str, Work] | None
    forecasts: dict[str, list[Cost]]
    hardware: dict[str, Any]
    load: float | None
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=provenance.versions)

    def peak(self, precision: str = "float32") -> float:
        """Return the machine's peak in FLOP/s: the larger of the rates measured."""
        return max(self.peaks[precision].values())

    def share(self, rate: float, flops: int) -> float:
        """Return which share of the float32 peak so many examples per second are, 0..1."""
        return rate * flops / self.peak()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data: FLOP/s, FLOPs an example, images per second, bytes, seconds."""
        return {**asdict(self), "best": self.best.batch, "peak": {name: self.peak(name) for name in self.peaks}}


def bench(
    model: Model,
    data: Dataset,
    protocols: Mapping[Protocol, int],
    *,
    seconds: float = 60.0,
    memory: float | None = None,
    survivors: Survivors | None = None,
    device: str | None = None,
    tell: Tell = lambda _done, _total: None,
) -> Bench:
    """Measure the machine and a model on it, and predict the time of protocols.

    Parameters
    ----------
    data
        Examples to measure with; fewer than a batch are taken again and again.
    protocols
        The number of examples that each would attack.
    seconds
        About how long to measure; the least that is needed can take longer.
    memory
        Bytes that a batch may take; default: half of what is free.
    device
        Default: the GPU if there is one.
    survivors
        For AutoAttack; default: what PGD-20 says on as many examples as a sixth of the time allows.

    Raises
    ------
    FairbenchError
        The model cannot take the data, or memory does not hold the smallest batch.
    """
    device = checked_device(device)
    limit = memory if memory is not None else (speed.free_memory(device) or math.inf) / 2
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    original = frozen(model.module).to(device)
    batch = _batches(data, device)
    x, _, index = batch(_PROBE)
    try:
        logits_of(original, x, index, data.num_classes)
        flops = speed.count_flops(original, x[:1])
        prepared = prepare(original, x)
        speeds = speed.measure_batches(
            prepared.module,
            lambda size: batch(size)[:2],
            budget=seconds / 2,
            memory=limit,
            tell=lambda share: tell(share * seconds / 2, seconds),
        )
    except FairbenchError:
        raise
    except Exception as error:  # a user's own forward can raise anything
        raise ModelError(f"{model.name} cannot take {data.described_shape}: {first_line(error)}") from error
    peaks = {}
    for number, (name, dtype) in enumerate(PRECISIONS.items()):
        peaks[name] = speed.peak(dtype, device, budget=seconds / 20)
        tell(seconds * (0.5 + 0.1 * (number + 1)), seconds)
    stages = None
    if any("autoattack" in protocol.attacks for protocol in protocols):
        modules = original, prepared.module
        survivors = survivors or _survivors(modules, batch, data.num_classes, speeds, seconds / 6)
        tell(seconds * 0.85, seconds)
        stages = costs.autoattack_work(data.shape, data.num_classes, device=device)
    tell(seconds, seconds)
    forecasts = {
        protocol.name: forecast(protocol, examples, data.num_classes, speeds, flops, survivors=survivors, stages=stages)
        for protocol, examples in protocols.items()
    }
    return Bench(
        model=model.name,
        architecture=model.architecture,
        dataset=data.name,
        shape=data.shape,
        prepared=prepared.steps,
        peaks=peaks,
        flops=flops,
        speeds=speeds,
        best=speed.best_batch(speeds, limit),
        memory=limit,
        survivors=survivors if stages else None,
        stages=stages,
        forecasts=forecasts,
        hardware=provenance.hardware(device),
        load=load,
        notes=(prepared.warning,) if prepared.warning else (),
    )


def forecast(
    protocol: Protocol,
    examples: int,
    num_classes: int,
    speeds: list[BatchSpeed],
    flops: Flops,
    *,
    survivors: Survivors | None,
    stages: Mapping[str, Work] | None,
) -> list[Cost]:
    """Return what the predictions and each attack of a protocol cost on so many examples."""
    attacks: list[Attack] = protocol.build_attacks(num_classes)
    return [
        costs.clean_cost(examples, speeds, flops),
        *(costs.cost(attack, examples, speeds, flops, survivors=survivors, stages=stages) for attack in attacks),
    ]


def _batches(data: Dataset, device: str) -> Batches:
    """Return what makes batches: examples spread over the data, so that all classes are in a small one too."""
    order = np.random.default_rng(0).permutation(len(data))

    def batch(size: int) -> tuple[Tensor, Tensor, np.ndarray]:
        x, y, index = data.batch(order[np.arange(size) % len(order)])
        return x.to(device), y.to(device), index

    return batch


def _survivors(
    modules: tuple[nn.Module, nn.Module],
    batch: Batches,
    num_classes: int,
    speeds: list[BatchSpeed],
    seconds: float,
) -> Survivors:
    """Return the share that PGD-20 leaves of a few examples: AutoAttack's first stage leaves a little less."""
    attack = PGDAttack(ThreatModel(8 / 255), 2 / 255)
    fit = int(max(one.step.median for one in speeds) * seconds / attack.cost)
    if fit < _FEWEST:
        return ASSUMED
    x, y, index = batch(min(fit, _MOST))
    original, prepared = modules
    right = logits_of(original, x, index, num_classes).argmax(1) == y
    found = run_attack(attack, original, prepared, (x, y, index), num_classes=num_classes, tick=lambda _: None)
    withstanding = float((found[f"{attack.name}_pred"] == y.cpu().numpy()).mean())
    return Survivors(float(right.float().mean()), withstanding, f"PGD-20 on {len(x)} examples, measured now")
