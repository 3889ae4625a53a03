"""Does the cost model hold? Evaluations predicted from a short measurement, then done; and what larger ones would take.

    python benchmarks/scaling.py --data-dir DIR --json benchmarks/results/scaling.json
    python benchmarks/scaling.py --plan --json benchmarks/results/scaling_plan.json

Each case is predicted as ``fairbench bench`` does, then evaluated; the time that counts is what the evaluation says its
attack took. Exit code 1: a prediction is off by more than 20 %. ``--plan`` measures no time: it counts FLOPs and bytes,
and divides by rates that are stated. docs/scaling.md quotes both files.
"""

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from peers import exit_with
from tabulate import tabulate

from fairbench import evaluate, load_dataset, load_model, provenance
from fairbench.attacks.autoattack import AutoAttack
from fairbench.attacks.base import ThreatModel
from fairbench.attacks.pgd import PGDAttack
from fairbench.cli.bench import duration
from fairbench.datasets import Dataset
from fairbench.evaluation import Protocol
from fairbench.evaluation.bench import bench
from fairbench.evaluation.costs import SCORING, Survivors, Work, autoattack_work, pgd_work, shares
from fairbench.evaluation.runner import BATCH_SIZE, fitted
from fairbench.evaluation.speed import Flops, count_flops
from fairbench.files import make_folder, write_json
from fairbench.leaderboard.results import read_result, result_names, result_path
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.base import Model
from fairbench.models.prepare import frozen

WITHIN = 0.2
"""What a prediction may be off by."""


@dataclass(frozen=True)
class Case:
    """An evaluation to predict and to do: one attack on the first or spread-out ``images`` of a split."""

    model: str
    attack: str
    images: int
    split: str = "sample"

    def data(self, model: Model, data_dir: str | None) -> Dataset:
        """Return the examples."""
        data = load_dataset(str(model.dataset), self.split, data_dir=data_dir)
        return data.subset(np.linspace(0, len(data) - 1, min(self.images, len(data))).astype(int))

    def protocol(self) -> Protocol:
        """Return the protocol: its name tells sample from test split."""
        return Protocol.named("standard" if self.split == "test" else "quick", attacks=(self.attack,))


CASES = (
    Case("bat_lenet5_fashion_mnist", "pgd20", 10_000, "test"),
    Case("natural_resnet18", "pgd20", 256),
    Case("bat_lenet5_fashion_mnist", "autoattack", 128),
    Case("natural_resnet18", "autoattack", 64),
)
QUICK = (Case("bat_lenet5_fashion_mnist", "pgd20", 100), Case("bat_lenet5_fashion_mnist", "autoattack", 4))


def kept_survivors(model: str) -> Survivors | None:
    """Return the shares of the model's kept AutoAttack result, if there is one."""
    for name in result_names():
        if name.startswith(f"{model}.") and "autoattack" in name:
            return shares(read_result(name).frame["autoattack_broken_by"], f"kept result {name}")
    return None


def predict_and_measure(case: Case, seconds: float, data_dir: str | None) -> dict[str, Any]:
    """Predict a case from a measurement of so many seconds, then do it; return both as plain data."""
    model = load_model(case.model)
    protocol = case.protocol()
    data = fitted(case.data(model, data_dir), model, protocol)
    found = bench(model, data, {protocol: len(data)}, seconds=seconds, survivors=kept_survivors(case.model))
    clean, attack = found.forecasts[protocol.name]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as runs:
        outcomes = evaluate(model, data, protocol, runs=runs)
    whole = time.perf_counter() - start
    took = outcomes.manifest["seconds"][case.attack]
    step = max(one.step.median for one in found.speeds) * found.flops.step
    return {
        "model": case.model,
        "attack": case.attack,
        "images": len(data),
        "tflops": attack.flops / 1e12,
        "peak_gflops": found.peak() / 1e9,
        "step_gflops": step / 1e9,
        "by_flops_alone": attack.flops / step,
        "predicted": attack.seconds,
        "measured": took,
        "off": attack.seconds / took - 1,
        "run_predicted": clean.seconds + attack.seconds,
        "run_measured": whole,
        "survivors": None if found.survivors is None else vars(found.survivors),
        "load_before": found.load,
    }


def measured_table(document: dict[str, Any]) -> str:
    """Return predictions beside measurements as Markdown; docs/scaling.md holds it."""
    rows = [
        [
            row["model"],
            row["attack"],
            f"{row['images']:,}",
            f"{row['tflops']:.2f}",
            f"{row['by_flops_alone']:.1f}",
            f"{row['predicted']:.1f}",
            f"{row['measured']:.1f}",
            f"{100 * row['off']:+.0f} %",
        ]
        for row in document["rows"]
    ]
    heads = ["model", "attack", "images", "TFLOP", "FLOPs alone, s", "predicted, s", "measured, s", "off"]
    align = ("left", "left", *["right"] * 6)
    return tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=align)


@dataclass(frozen=True)
class Plan:
    """An evaluation that is too large to try: what is attacked, and the shares AutoAttack meets."""

    name: str
    models: int
    examples: int
    arch: str
    shape: tuple[int, int, int]
    num_classes: int
    correct: float
    withstanding: float

    def flops(self) -> Flops:
        """Count those of one example."""
        if self.arch.startswith("torchvision:"):
            from torchvision.models import get_model

            module = get_model(self.arch.partition(":")[2], weights=None, num_classes=self.num_classes)
        else:
            module = ARCHITECTURES[self.arch].build(num_classes=self.num_classes)
        return count_flops(frozen(module), torch.rand(1, *self.shape))


PLANS = (
    Plan("ImageNet, one ResNet-50", 1, 50_000, "torchvision:resnet50", (3, 224, 224), 1_000, 0.65, 0.35),
    Plan("CIFAR-10, 200 ResNet-18", 200, 10_000, "resnet18", (3, 32, 32), 10, 0.8, 0.5),
    Plan("CIFAR-10, 200 WideResNet-28-10", 200, 10_000, "wrn_28_10", (3, 32, 32), 10, 0.85, 0.55),
)
"""The shares are assumptions: about what adversarially trained networks reach at 4/255 and 8/255."""
RATES = {"float32": (67e12, 0.5), "bf16": (989e12, 0.3)}
"""An H100 SXM by its data sheet, dense, in FLOP/s, and the share of it that is assumed."""


def plan_row(plan: Plan, stages: dict[str, Work]) -> dict[str, Any]:
    """Return FLOPs, and hours at the stated rates."""
    survivors = Survivors(plan.correct, plan.withstanding, "assumed")
    pgd = pgd_work(PGDAttack(ThreatModel(8 / 255), 2 / 255)) + SCORING * 2
    parts = {"pgd20": pgd}
    parts |= {stage: work * survivors.entering(number) for number, (stage, work) in enumerate(stages.items())}
    one = plan.flops()
    flops = {name: plan.models * plan.examples * work.flops(one) for name, work in parts.items()}
    total = sum(flops.values())
    return {
        "name": plan.name,
        "models": plan.models,
        "examples": plan.examples,
        "gflops_forward": one.forward / 1e9,
        "gflops_step": one.step / 1e9,
        "correct": plan.correct,
        "withstanding": plan.withstanding,
        "pflops": {name: value / 1e15 for name, value in flops.items()},
        "share": {name: value / total for name, value in flops.items()},
        "gpu_hours": {name: total / (peak * share) / 3600 for name, (peak, share) in RATES.items()},
        "outcomes_mb": plan.models * plan.examples * bytes_per_row("autoattack") / 1e6,
        "inputs_gb": plan.examples * int(np.prod(plan.shape)) / 1e9,
    }


def bytes_per_row(attack: str) -> float:
    """Return the bytes of a row in the kept Parquet files that have an attack (median), images alone."""
    sizes = []
    for name in result_names():
        kept = read_result(name)
        if attack in kept.attacks and kept.manifest["dataset"]["name"] != "adult":
            sizes.append(result_path(name).with_suffix(".parquet").stat().st_size / len(kept))
    return median(sizes)


def plan() -> dict[str, Any]:
    """Count everything; no time is measured."""
    counted = autoattack_work((1, 4, 4), 10)
    stages = {name: replace(work, own_seconds=0.0) for name, work in counted.items()}
    targets = AutoAttack(ThreatModel(8 / 255), 10).targets
    return {
        "passes_of_a_survivor": {
            name: {"forwards": round(work.forwards), "backwards": round(work.backwards)}
            for name, work in stages.items()
        },
        "targets": targets,
        "rates": {name: {"peak": peak, "share": share} for name, (peak, share) in RATES.items()},
        "bytes_per_row": {attack: round(bytes_per_row(attack), 1) for attack in ("pgd20", "autoattack")},
        "batch": BATCH_SIZE,
        "rows": [plan_row(one, stages) for one in PLANS],
        "versions": provenance.versions(),
    }


def passes_table(document: dict[str, Any]) -> str:
    """Return AutoAttack's passes for an example that withstands it as Markdown; docs/scaling.md holds it."""
    passes = document["passes_of_a_survivor"]
    total = sum(work["forwards"] + work["backwards"] for work in passes.values())
    rows = [
        [name, f"{w['forwards']:,}", f"{w['backwards']:,}", f"{100 * (w['forwards'] + w['backwards']) / total:.0f} %"]
        for name, w in passes.items()
    ]
    heads = ["stage", "forward passes", "backward passes", "of the FLOPs"]
    return tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 3))


def plan_table(document: dict[str, Any]) -> str:
    """Return the plans as Markdown; docs/scaling.md holds it."""
    rows = [
        [
            row["name"],
            f"{row['examples']:,}",
            f"{row['gflops_step']:.1f}",
            f"{sum(row['pflops'].values()):,.0f}",
            f"{100 * row['share']['square']:.0f} %",
            f"{row['gpu_hours']['float32']:,.0f}",
            f"{row['gpu_hours']['bf16']:,.1f}",
            f"{row['outcomes_mb']:,.1f} MB",
        ]
        for row in document["rows"]
    ]
    heads = ["", "images", "GFLOP a step", "PFLOP", "of them Square", "H100 hours, float32", "bf16", "outcomes"]
    return tabulate(rows, heads, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 7))


def main() -> int:
    """Predict, measure and print, or plan; 0 if every prediction is near enough (or in a rehearsal), else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of measurement before each case (60)")
    parser.add_argument("--data-dir", metavar="DIR", help="folder that holds fashion_mnist (else $FAIRBENCH_DATA)")
    parser.add_argument("--quick", action="store_true", help="a rehearsal on few images; judges nothing")
    parser.add_argument("--plan", action="store_true", help="count what larger evaluations take; measures no time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result")
    options = parser.parse_args()
    if options.json is not None:
        make_folder(options.json.absolute().parent)
    if options.plan:
        document = plan()
        print(f"{passes_table(document)}\n\n{plan_table(document)}\n\n{json.dumps(document['bytes_per_row'])}")
        if options.json is not None:
            write_json(document, options.json)
        return 0
    rows = []
    for case in QUICK if options.quick else CASES:
        rows.append(predict_and_measure(case, 5 if options.quick else options.seconds, options.data_dir))
        row = rows[-1]
        print(
            f"{row['model']}, {row['attack']}, {row['images']:,} images: predicted {duration(row['predicted'])}, "
            f"measured {duration(row['measured'])}",
            flush=True,
        )
    document = {
        "rows": rows,
        "seconds_of_measurement": options.seconds,
        "cores": os.cpu_count(),
        "hardware": provenance.hardware(),
        "versions": provenance.versions(),
    }
    if options.json is not None:
        write_json(document, options.json)
    print("\n" + measured_table(document))
    off = max(abs(row["off"]) for row in rows)
    print(f"\nlargest difference {100 * off:.0f} %, {'within' if off <= WITHIN else 'more than'} {100 * WITHIN:.0f} %")
    return 0 if options.quick or off <= WITHIN else 1


if __name__ == "__main__":
    exit_with(main)
