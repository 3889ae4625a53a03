"""Runs on digits that are over in a second, what they left, and the program that trains with several processes."""

import csv
import os
import subprocess
import sys
import textwrap

import torch
from safetensors.torch import load_file

from fairbench.training import Recipe

FAST = {"steps": 2}
THREE_CLASSES = {"drop_classes": tuple(range(3, 10))}  # 370 images: for what is slow a step

DISTRIBUTED = textwrap.dedent("""
    import json, sys
    from fairbench.training import Recipe, train
    from fairbench.training.hardware import Hardware
    for out, chosen in zip(*[iter(sys.argv[1:])] * 2):
        train(Recipe.model_validate(json.loads(chosen)), out, hardware=Hardware("cpu", 2))
""")


def train_on_two(runs, folder, before="", check=True):
    """Train ``runs``, recipes by their folder, with two processes of a program that first does what ``before`` says.

    It can import what lies in ``folder``.
    """
    (folder / "run.py").write_text(before + DISTRIBUTED)
    words = [word for out, chosen in runs.items() for word in (str(out), chosen.model_dump_json())]
    return subprocess.run(
        [sys.executable, str(folder / "run.py"), *words],
        check=check,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )


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


def weights(out):
    return load_file(out / "model.safetensors")


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[k], two[k]) for k in one)


class Stop(Exception):
    """Raised by a report to play a crash."""


def crash_after(epoch):
    def report(row):
        if "progress" in row and row["epoch"] > epoch:
            raise Stop

    return report
