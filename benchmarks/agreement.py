"""Do four independent implementations of PGD-20 measure the same robust error? If not, one of them has a bug.

    python benchmarks/agreement.py --checkpoint natural.pt adversarial.pt --data-dir DIR --json FILE

Each checkpoint is attacked on the whole test split of Fashion-MNIST by this package (through ``evaluate``, shards and
all), by torchattacks, foolbox and ART, with the same numbers; every proposal is scored by the same model. Random starts
differ, so a few examples in a thousand may.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import PEERS, Craft, Settings, environment, exit_with, require_peers
from tabulate import tabulate

from fairbench import Protocol, evaluate, load_dataset, load_model, summarize
from fairbench.datasets import Dataset
from fairbench.evaluation.protocol import parse_fraction
from fairbench.evaluation.runner import BATCH_SIZE, fitted
from fairbench.files import make_folder, write_json
from fairbench.models.base import Model
from fairbench.models.prepare import frozen

OURS = "fairbench"
TOLERANCE = 0.3
"""Percentage points of average robust error that implementations may differ by."""


def compare(model: Model, dataset: Dataset, protocol: Protocol) -> dict[str, Any]:
    """Attack a model with all of them and return robust errors in percent: by class, on average, and how far apart."""
    settings = Settings(protocol.epsilon, protocol.pgd_step)
    dataset = fitted(dataset, model, protocol)
    with tempfile.TemporaryDirectory() as runs:
        ours = summarize(evaluate(model, dataset, protocol, device="cpu", runs=runs)).attacks["pgd20"]
    classes = {OURS: ours.classes["rob"].tolist()}
    average = {OURS: ours.avg_rob}
    victim = frozen(model.module)  # foolbox would compute gradients of the weights too, and drop them
    for name, build in PEERS.items():
        torch.manual_seed(protocol.seed)
        wrong = misclassified(model, dataset, build(victim, settings))
        average[name] = 100 * float(wrong.mean())
        classes[name] = [100 * float(wrong[dataset.labels == c].mean()) for c in range(dataset.num_classes)]
    difference = max(average.values()) - min(average.values())
    return {
        "model": model.name,
        "dataset": f"{dataset.name} {dataset.split}",
        "n": len(dataset),
        "pgd": settings.to_dict(),
        "class_names": list(dataset.classes),
        "avg_std": ours.avg_std,
        "rob": classes,
        "avg_rob": average,
        "difference": difference,
        "agrees": difference <= TOLERANCE,
    }


def misclassified(model: Model, dataset: Dataset, craft: Craft) -> np.ndarray:
    """Return (N,) bool: wrong under a peer's attack, in batches of the size that an evaluation takes."""
    wrong = []
    for start in range(0, len(dataset), BATCH_SIZE):
        x, y, _ = dataset.batch(slice(start, start + BATCH_SIZE))
        x_adv = craft(x, y)
        with torch.no_grad():
            wrong.append((model.module(x_adv).argmax(1) != y).numpy())
    return np.concatenate(wrong)


def render(comparison: dict[str, Any]) -> str:
    """Return one comparison as a table with a row per class."""
    names = list(comparison["rob"])
    rows = [(c, *(comparison["rob"][n][i] for n in names)) for i, c in enumerate(comparison["class_names"])]
    rows.append(("average", *(comparison["avg_rob"][n] for n in names)))
    pgd = comparison["pgd"]
    return "\n".join(
        [
            f"{comparison['model']} on {comparison['dataset']} ({comparison['n']:,} images), PGD-{pgd['steps']}, "
            f"epsilon {255 * pgd['epsilon']:g}/255, step {255 * pgd['step']:g}/255: robust error in percent",
            "",
            tabulate(rows, ("class", *names), floatfmt=".2f"),
            "",
            f"averages differ by {comparison['difference']:.2f} points: "
            f"{'within' if comparison['agrees'] else 'more than'} {TOLERANCE}",
        ]
    )


def comparisons(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run, print and keep each comparison that was asked for."""
    jobs: list[tuple[str, str, Protocol]] = [
        (path, options.dataset, Protocol.named("standard", epsilon=parse_fraction(options.epsilon, "--epsilon")))
        for path in options.checkpoint
    ]
    if not options.quick:  # at 8/255 nothing is left of it and any attack would agree
        jobs.append(("natural_resnet18", "cifar10", Protocol.named("quick", epsilon=1 / 255)))
    found = []
    for name, data, protocol in jobs:
        split = "sample" if protocol.examples == "sample" else "test"
        dataset = load_dataset(data, split, data_dir=options.data_dir, download=False)
        model = load_model(name, num_classes=dataset.num_classes, shape=dataset.shape)
        found.append(compare(model, dataset, protocol))
        print(render(found[-1]) + "\n", flush=True)
        if options.json is not None:  # after each: one that is interrupted leaves what it has
            agrees = all(comparison["agrees"] for comparison in found)
            kept = {"comparisons": found, "complete": len(found) == len(jobs), "tolerance": TOLERANCE, "agrees": agrees}
            write_json({**kept, **environment()}, options.json)
    return found


def main() -> int:
    """Parse, compare, print; 0 if all agree, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--checkpoint", nargs="+", default=[], metavar="PATH", help="checkpoints of built-in architectures"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="folder that holds the dataset")
    parser.add_argument(
        "--dataset", default="fashion_mnist", help="what the checkpoints are attacked on (fashion_mnist)"
    )
    parser.add_argument("--epsilon", default="8/255", help="for the checkpoints (8/255)")
    parser.add_argument(
        "--quick", action="store_true", help="leave out natural_resnet18 at 1/255 on the CIFAR-10 sample"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result")
    options = parser.parse_args()
    if options.quick and not options.checkpoint:
        parser.error("nothing to compare: give --checkpoint, or leave --quick away")
    require_peers()
    if options.json is not None:
        make_folder(options.json.absolute().parent)
    found = comparisons(options)
    agrees = all(comparison["agrees"] for comparison in found)
    print(
        f"all averages within {TOLERANCE} points" if agrees else f"an average differs by more than {TOLERANCE} points"
    )
    return 0 if agrees else 1


if __name__ == "__main__":
    exit_with(main)
