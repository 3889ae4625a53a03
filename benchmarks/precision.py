"""What bf16 gradients gain, and what they cost: fp32 and bf16 in turn, by attack and model.

    python benchmarks/precision.py --images 200 --rounds 5 --json benchmarks/results/precision.json

Each evaluation is what ``fairbench evaluate`` does, preparing the copies and all verdicts included, in a fresh folder.
The two precisions take turns in one process; ratios are taken within a round. ``only fp32`` and ``only bf16`` count the
examples that one of them alone breaks; ``weaker by`` is their difference in points. ``--model`` takes a model of the
zoo, a run's folder or a checkpoint (then with ``--arch`` and ``--dataset``); one that was trained to be robust
tells most: AutoAttack is soon done with another. All of a test split: ``--split test --images 10000``.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from peers import environment, exit_with, positive
from tabulate import tabulate

from fairbench import Outcomes, Protocol, evaluate, load_dataset, load_model
from fairbench.datasets import Dataset
from fairbench.evaluation.protocol import parse_fraction
from fairbench.files import write_json
from fairbench.metrics.intervals import paired_difference, wilson
from fairbench.models import Model
from fairbench.models.loading import own_dataset

MODELS = ("bat_resnet18", "natural_resnet18")
"""One robust, one not; networks too narrow for bf16 are attacked in float32 whatever is asked."""
PRECISIONS = ("fp32", "bf16")
BOUND = 0.1
"""Points of robust accuracy that the attack may lose in bf16."""


def timed(model: Model, data: Dataset, protocol: Protocol, precision: str, batch_size: int) -> tuple[float, Outcomes]:
    """Evaluate afresh; return the seconds it took and the table."""
    with tempfile.TemporaryDirectory() as runs:
        start = time.perf_counter()
        outcomes = evaluate(model, data, protocol, precision=precision, runs=runs, batch_size=batch_size)
        return time.perf_counter() - start, outcomes


def broken(outcomes: Outcomes, attack: str) -> np.ndarray:
    """Return (N,) bool: misclassified under attack."""
    frame = outcomes.frame
    return frame[f"{attack}_pred"].to_numpy(dtype=np.int64) != frame["label"].to_numpy()


def compare(name: str, attack: str, options: argparse.Namespace) -> dict[str, Any]:
    """Evaluate one model under one attack in both precisions, round after round."""
    dataset = options.dataset or own_dataset(name)
    data = load_dataset(dataset, options.split, data_dir=options.data_dir)
    data = data.first_per_class(-(-options.images // data.num_classes))
    arch = options.arch if options.dataset else None
    model = load_model(name, arch=arch, num_classes=data.num_classes, shape=data.shape)
    protocol = Protocol.named("quick", attacks=(attack,), epsilon=parse_fraction(options.epsilon, "--epsilon"))
    rounds, found = [], {}
    for number in range(options.rounds):
        order = PRECISIONS if number % 2 == 0 else PRECISIONS[::-1]
        took = {}
        for precision in order:
            took[precision], found[precision] = timed(model, data, protocol, precision, options.batch_size)
        rounds.append(took)
        print(f"{model.name}, {attack}, round {number + 1}: {took}", flush=True)
    exact, half = (broken(found[precision], attack) for precision in PRECISIONS)
    pairs = np.array([[~exact & ~half, ~exact & half], [exact & ~half, exact & half]]).sum(axis=2)
    weaker = [-end for end in reversed(paired_difference(pairs))]
    ratios = [took["fp32"] / took["bf16"] for took in rounds]
    return {
        "model": model.name,
        "architecture": model.architecture,
        "attack": attack,
        "epsilon": protocol.epsilon,
        "images": len(exact),
        "seconds": {precision: median(took[precision] for took in rounds) for precision in PRECISIONS},
        "ratio": {"median": median(ratios), "low": min(ratios), "high": max(ratios)},
        "robust_accuracy": {"fp32": float(100 * (~exact).mean()), "bf16": float(100 * (~half).mean())},
        "interval": {
            p: [100 * v for v in wilson(int((~b).sum()), len(b))]
            for p, b in zip(PRECISIONS, (exact, half), strict=True)
        },
        "only_fp32_breaks": int(pairs[1, 0]),
        "only_bf16_breaks": int(pairs[0, 1]),
        "weaker_by": {"points": float(100 * (pairs[1, 0] - pairs[0, 1]) / len(exact)), "interval": weaker},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = []
    for row in rows:
        ratio, robust = row["ratio"], row["robust_accuracy"]
        lines.append(
            [
                row["model"],
                row["attack"],
                row["images"],
                *(f"{row['seconds'][precision]:.1f}" for precision in PRECISIONS),
                f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
                *(f"{robust[precision]:.2f}" for precision in PRECISIONS),
                row["only_fp32_breaks"],
                row["only_bf16_breaks"],
                "{:+.2f} [{:+.2f}, {:+.2f}]".format(row["weaker_by"]["points"], *row["weaker_by"]["interval"]),
            ]
        )
    heads = ["model", "attack", "n", "s fp32", "s bf16", "fp32 / bf16", "robust % fp32", "robust % bf16"]
    return tabulate(lines, [*heads, "only fp32", "only bf16", "weaker by"], tablefmt="github", disable_numparse=True)


def main() -> int:
    """Run, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", help=f"default: {' and '.join(MODELS)}")
    parser.add_argument("--arch")
    parser.add_argument("--dataset")
    parser.add_argument("--data-dir")
    parser.add_argument("--attack", action="append", help="default: pgd20 and autoattack")
    parser.add_argument("--epsilon", default="8/255")
    parser.add_argument("--split", choices=("sample", "test"), default="sample")
    parser.add_argument("--images", type=positive, default=200, help="of the split, as many of each class")
    parser.add_argument("--batch-size", type=positive, default=128)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    attacks = options.attack or ["pgd20", "autoattack"]
    rows = [compare(name, attack, options) for name in options.model or MODELS for attack in attacks]
    print(table(rows))
    if options.json:
        write_json({"environment": environment(), "rounds": options.rounds, "rows": rows}, options.json)
    worse = [f"{row['model']} under {row['attack']}" for row in rows if row["weaker_by"]["interval"][0] > BOUND]
    if worse:
        print(f"bf16 is weaker by more than {BOUND} points, whatever images are drawn: {', '.join(worse)}")
    return 1 if worse else 0


if __name__ == "__main__":
    exit_with(main)
