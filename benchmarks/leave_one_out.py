"""Is training all leave-one-out models at once worth it? The ensemble beside a loop that trains them one by one.

    python benchmarks/leave_one_out.py --json benchmarks/results/leave_one_out.json

The loop is plain PyTorch: a network, ``torch.optim.Adam``, the batch without the sample that is left out. The ensemble
is what ``fairbench luf`` runs. Both take turns on the same batches; seconds are those of one step of one model. First
both train a few steps in float32 and must agree. Exit code 1: less than 4 times faster where the aim is.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from peers import exit_with, positive
from tabulate import tabulate
from torch import Tensor

from fairbench import load_dataset, provenance
from fairbench.errors import FairbenchError
from fairbench.files import make_folder, write_json
from fairbench.memory import keep_freed_memory
from fairbench.models.building import new_module
from fairbench.training.ensemble import Ensemble
from fairbench.training.leave_one_out_trainer import batch_losses
from fairbench.training.methods.standard import Standard
from fairbench.training.network import make_optimizer
from fairbench.training.recipe import OptimizerRecipe

FASTER = 4.0
OPTIMIZER = OptimizerRecipe(name="adam", lr=0.001, weight_decay=0.0)
ADULT = (30_162, 104)


@dataclass(frozen=True)
class Case:
    """What is trained."""

    title: str
    arch: str
    batch_size: int
    aimed: bool


CASES = (
    Case("digits", "small_cnn", 32, True),
    Case("digits", "small_cnn", 250, False),
    Case("adult-like", "mlp", 32, True),
    Case("adult-like", "mlp", 250, False),
)


def data(title: str) -> tuple[Tensor, Tensor, int]:
    """Return images or features, labels and the class count; "adult-like" has Adult's size and random numbers."""
    if title == "digits":
        digits = load_dataset("digits", "train")
        x, y, _ = digits.batch(slice(None))
        return x, y, digits.num_classes
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((ADULT[0], 1, 1, ADULT[1]), generator=generator)
    return x, (x.flatten(1)[:, :8].sum(1) > 4).long(), 2


def one_by_one(case: Case, x: Tensor, y: Tensor, classes: int, samples: list[int], batches: Tensor) -> list[Any]:
    """Train a model without each sample, one after another; return their weights."""
    trained = []
    for sample in samples:
        torch.manual_seed(0)
        module, _ = new_module(case.arch, classes, tuple(x.shape[1:]))
        optimizer = make_optimizer(module, OPTIMIZER, fused=True)
        for rows in batches:
            kept = rows[rows != sample]
            optimizer.zero_grad()
            F.cross_entropy(module(x[kept]), y[kept]).backward()
            optimizer.step()
        trained.append(module.state_dict())
    return trained


def at_once(case: Case, x: Tensor, y: Tensor, classes: int, samples: list[int], batches: Tensor) -> list[Any]:
    """Do the same as an ensemble."""
    torch.manual_seed(0)
    module, _ = new_module(case.arch, classes, tuple(x.shape[1:]))
    ensemble = Ensemble(module, len(samples))
    optimizer = make_optimizer(ensemble, OPTIMIZER, fused=True)
    left, generator = torch.tensor(samples), torch.Generator()
    for rows in batches:
        kept = (rows != left[:, None]).float()
        losses = batch_losses(ensemble, Standard(), x[rows], y[rows], kept=kept, generator=generator)
        optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        optimizer.step()
    return [ensemble.state_of(model) for model in range(len(samples))]


def check(case: Case, x: Tensor, y: Tensor, classes: int, batches: Tensor) -> None:
    """Make sure that both train the same models."""
    samples = [int(batches[0][0]), int(batches[0][1])]
    pairs = zip(*(train(case, x, y, classes, samples, batches[:3]) for train in (one_by_one, at_once)), strict=True)
    for theirs, ours in pairs:
        for key, value in theirs.items():
            if not torch.allclose(value, ours[key], atol=2e-3, rtol=1e-3):  # Adam's first steps are signs times 0.001
                raise FairbenchError(f"{case.arch} on {case.title}: {key} differs between the two.")


def measure(case: Case, asked: argparse.Namespace) -> dict[str, Any]:
    """Let both take turns; return seconds of a step of a model, and their ratios."""
    x, y, classes = data(case.title)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    batches = order[: len(order) // case.batch_size * case.batch_size].view(-1, case.batch_size)
    check(case, x, y, classes, batches)
    samples = np.random.default_rng(0).choice(len(y), asked.models, replace=False).tolist()
    contenders: dict[str, tuple[Callable[..., Any], list[int], int]] = {
        "one by one": (one_by_one, samples[:2], 2 * asked.steps),
        "at once": (at_once, samples, asked.steps),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(asked.rounds):
        for name, (train, left, steps) in contenders.items():
            chosen = batches.repeat(-(-steps // len(batches)), 1)[:steps]
            start = time.perf_counter()
            train(case, x, y, classes, left, chosen)
            seconds[name].append((time.perf_counter() - start) / (len(left) * steps))
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    return {
        "data": case.title,
        "arch": case.arch,
        "batch_size": case.batch_size,
        "aimed": case.aimed,
        "models": asked.models,
        "steps": asked.steps,
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def main() -> int:
    """Run, print and keep; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=positive, default=50, help="in the ensemble")
    parser.add_argument("--steps", type=positive, default=10, help="of an ensemble in a round")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--threads", type=positive, help="default: torch's")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    keep_freed_memory()
    found = [measure(case, asked) for case in CASES]
    table = [
        [
            f"{row['arch']}, {row['data']}",
            str(row["batch_size"]),
            *(f"{1000 * value:.2f}" for value in row["seconds"].values()),
            f"{row['ratio']:.1f} ({min(row['ratios']):.1f} to {max(row['ratios']):.1f})",
        ]
        for row in found
    ]
    headers = ["", "batch", "ms a step, one by one", "at once", "times faster"]
    print(tabulate(table, headers, "github", disable_numparse=True))
    if asked.json is not None:
        make_folder(asked.json.parent)
        environment = {"hardware": provenance.hardware(), "versions": provenance.versions()}
        write_json({"cases": found, "environment": environment}, asked.json)
    return 0 if all(row["ratio"] >= FASTER for row in found if row["aimed"]) else 1


if __name__ == "__main__":
    exit_with(main)
