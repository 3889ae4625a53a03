"""Runs on digits that are over in a second, and the program that trains with several processes."""

import csv
import textwrap

from fairbench.training import Recipe

FAST = {"steps": 2}

DISTRIBUTED = textwrap.dedent("""
    import json, sys
    from fairbench.training import Recipe, train
    from fairbench.training.hardware import Hardware
    chosen = Recipe.model_validate(json.loads(sys.argv[1]))
    train(chosen, sys.argv[2], hardware=Hardware("cpu", int(sys.argv[3])))
""")


def recipe(method="pgd_at", **changes) -> Recipe:
    data = {
        "name": "test",
        "method": method,
        "architecture": "small_cnn",
        "dataset": "digits",
        "optimizer": {"name": "adam", "lr": 0.005, "weight_decay": 0.0},
        "schedule": {"name": "cosine", "epochs": 3},
        "batch_size": 100,
        "validation_per_class": 20,
        "seed": 1,
    }
    return Recipe.model_validate(data | changes)


def read_history(out):
    with (out / "history.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
