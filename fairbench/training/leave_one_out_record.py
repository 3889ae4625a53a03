"""What is kept of a leave-one-out run: the manifest that says what was trained, and the folder where none is named."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from fairbench import provenance
from fairbench.datasets import Dataset
from fairbench.files import cache_folder
from fairbench.models import load_model
from fairbench.training.fit import build_method
from fairbench.training.leave_one_out import Predictions
from fairbench.training.recipe import Recipe


def run_manifest(
    recipe: Recipe,
    training: Dataset,
    test: Dataset,
    found: Predictions,
    left_out: pd.DataFrame,
    *,
    device: str = "cpu",
) -> dict[str, Any]:
    """Return what was trained, on what and where, as plain data: the manifest that ``write_luf`` takes.

    Parameters
    ----------
    recipe, training, test, device
        What :func:`~fairbench.training.leave_one_out.leave_one_out` was given.
    found
        What it returned.
    left_out
        What :func:`fairbench.metrics.luf.sample_table` makes of that: a row per left-out sample.
    """
    method = build_method(recipe)
    plain = recipe.model_dump(mode="json")
    return {
        "name": recipe.name,
        "method": recipe.method,
        "options": {f.name: getattr(method, f.name) for f in fields(method) if f.init},
        "architecture": recipe.architecture,
        "dataset": recipe.dataset,
        "classes": list(test.classes),
        "data_sha256": training.sha256,
        "test_sha256": test.sha256,
        "training_images": found.training_images,
        "epochs": recipe.schedule.epochs,
        "seed": recipe.seed,
        "recipe": plain,
        "run": provenance.sha256_json([plain, training.sha256, found.samples.tolist()]),
        "left_out": left_out.to_dict("records"),
        "chunk": found.chunk,
        "seconds": round(found.seconds, 1),
        "hardware": provenance.hardware(device),
        "versions": provenance.versions(),
        "git_revision": provenance.source_revision(),
    }


def cached_folder(recipe: Recipe, training: Dataset, count: int) -> Path:
    """Return the folder of the cache that is named after a run which leaves ``count`` samples out.

    Raises
    ------
    ModelError
        The recipe starts from a model that cannot be loaded.
    """
    run = [recipe.model_dump(mode="json"), training.sha256, count]
    if recipe.start is not None:  # a model trained again under the same name is another start
        start = load_model(recipe.start, num_classes=training.num_classes, shape=training.shape)
        run.append(provenance.sha256_state(start.module.state_dict()))
    return cache_folder("luf") / f"{recipe.name}-{provenance.sha256_json(run)[:16]}"
