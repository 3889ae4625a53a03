"""The ensemble behind leave-one-out unfairness (``sooksatra2022``, Definition 3): one model of the whole training set,
and one of it without sample i, for every i that is left out.

All models begin with the same weights and see the same batches in the same order, with the same augmentation and noise;
in the model without sample i the batch that holds i is one smaller: i has weight 0 in the mean loss, and so have its
repetitions where classes are balanced. Inputs are normalised by the whole training set. So what differs between two
models is the sample and what follows from it. Models are trained a chunk at a time, all of a chunk at once
(:mod:`fairbench.training.ensemble`); one by one, a model starts where the full one was before it met the sample
(:mod:`fairbench.training.beginnings`).

A run lives in a folder. A finished chunk's confidences are a file of their own, and a long chunk writes its state after
an epoch, so a run that is killed goes on where it was.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairbench.datasets import Dataset
from fairbench.errors import RecipeError
from fairbench.files import user_path
from fairbench.registry import is_own_code
from fairbench.training.beginnings import Beginning, Beginnings
from fairbench.training.ensemble import Ensemble
from fairbench.training.fit import Report
from fairbench.training.leave_one_out_parts import any_part, read_parts, write_part
from fairbench.training.leave_one_out_trainer import Trainer, memory_for_models
from fairbench.training.method import method_class
from fairbench.training.network import make_optimizer
from fairbench.training.recipe import Recipe
from fairbench.training.run_folder import STATE, RunFolder

RUN = "leave_one_out.json"
"""Says which run a folder holds."""

METHODS = ("standard", "pgd_at", "static_augmentation")
"""Methods whose loss is a mean over the examples of a batch, each on its own, so that one of them can have weight 0."""

_NOBODY = -1
"""Stands for the sample that the full model leaves out."""

_SAVE_EVERY = 60.0
"""Seconds of training that a kill may cost, and an epoch."""


@dataclass(frozen=True)
class Predictions:
    """What the models said of the test examples.

    Parameters
    ----------
    full
        (n, K) float32 softmax confidences of the model of the whole training set.
    left
        (L, n, K) float32, those of the models without a sample.
    samples
        (L,) int64, the sample that each of those leaves out: its position in the training set.
    training_images
        How many the full model was trained on.
    seconds
        Time the trainings took, all together.
    chunk
        Models trained at once, at most; rounding, and through it the confidences, may depend on it.
    """

    full: np.ndarray
    left: np.ndarray
    samples: np.ndarray
    training_images: int
    seconds: float
    chunk: int


def draw_samples(dataset: Dataset, count: int, seed: int) -> np.ndarray:
    """Draw the samples to leave out, without replacement; (count,) int64 positions, rising.

    Raises
    ------
    RecipeError
        ``count`` is not 1 to the size of the training set less one.
    """
    if not 1 <= count < len(dataset):
        raise RecipeError(
            f"--leave-out {count}: give 1 to {len(dataset) - 1}; {dataset.name} has {len(dataset)} training images."
        )
    drawn = np.random.default_rng([seed, count]).choice(len(dataset), count, replace=False)
    return np.sort(drawn).astype(np.int64)


def leave_one_out(
    recipe: Recipe,
    training: Dataset,
    test: Dataset,
    samples: np.ndarray,
    out: str | Path,
    *,
    chunk: int | None = None,
    device: str = "cpu",
    report: Report | None = None,
) -> Predictions:
    """Train the full model and one without each sample, and return what they say of the test examples.

    Parameters
    ----------
    recipe
        How to train each of them; ``validation_per_class`` is 0.
    samples
        (L,) positions in ``training``.
    out
        The run's folder; the same run in it goes on.
    chunk
        Models trained at once. Default: as many as a gigabyte holds, 64 at most; wide networks one by one.

    Raises
    ------
    RecipeError
        The recipe asks for what cannot be done for many models at once, the folder holds another run, or a loss is no
        longer finite.
    ModelError
        The architecture has batch norm, or another layer that cannot be computed so.
    """
    _check_recipe(recipe, training)
    if chunk is not None and chunk < 1:
        raise RecipeError(f"--chunk {chunk}: give 1 or more.")
    folder = RunFolder(user_path(out), RUN)
    trainer = Trainer(recipe, training, test, device)
    folder.claim(trainer.identity(samples), begun=any_part(folder.path))
    try:
        return _all_chunks(trainer, samples, folder, chunk or trainer.fitting(len(samples) + 1), report)
    finally:
        folder.release()


def _check_recipe(recipe: Recipe, training: Dataset) -> None:
    """Refuse what would not be the same training for each model."""
    method_class(recipe.method)  # a misspelled one is told the nearest
    if recipe.method not in METHODS:  # a class of one's own can inherit a name
        own = "a method of one's own has a loss of its own"
        others = "the others weigh or choose the examples of a batch by one another"
        raise RecipeError(
            f"--method {recipe.method}: leaving one sample out takes {', '.join(METHODS)}; "
            f"{own if is_own_code(recipe.method) else others}."
        )
    usual = {"ema": None, "select": "last", "precision": "32", "validation_per_class": 0}
    for key, plain in usual.items():
        if (value := getattr(recipe, key)) != plain:
            raise RecipeError(f"{key} {value}: the leave-one-out ensemble trains without it; leave it out.")
    if (parts := recipe.schedule.epochs_per_pass) != 1:
        raise RecipeError(
            f"schedule.epochs_per_pass {parts}: an epoch of the leave-one-out ensemble is a pass; leave it out."
        )
    if recipe.batch_size < 2:
        raise RecipeError("batch size 1: without its sample a batch would be empty; give 2 or more.")
    if recipe.batch_size > len(training) and not recipe.balance:  # balanced there are more, and it is seen later
        raise RecipeError(f"batch size {recipe.batch_size} is larger than the {len(training)} training images.")


def _all_chunks(
    trainer: Trainer, samples: np.ndarray, folder: RunFolder, chunk: int, report: Report | None
) -> Predictions:
    """Train what is not there yet and gather all."""
    report = report or (lambda _row: None)
    members = np.concatenate([[_NOBODY], samples])
    found = read_parts(folder.path, members, len(trainer.test), trainer.test.num_classes)
    missing = [model for model in range(len(members)) if model not in found]
    epochs = trainer.recipe.schedule.epochs
    report(
        {
            "note": f"{folder.path}: {trainer.count} images, {len(members)} models "
            f"({len(missing)} to train, {min(chunk, len(missing))} at once), {epochs} epoch{'s' if epochs > 1 else ''}."
        }
    )
    beginnings = Beginnings(torch.from_numpy(samples), memory_for_models()) if chunk == 1 else None
    while missing:
        ours = _in_a_row(missing)[: _begun(folder, missing, chunk)]
        share = len(ours) / len(members)
        done = 1 - len(missing) / len(members)

        def tick(progress: float, loss: float, start: float = done, part: float = share) -> None:
            report({"progress": start + progress * part, "loss": loss})

        confidence, seconds = _train_chunk(trainer, members, ours, folder, tick, beginnings=beginnings)
        write_part(folder.path, ours, members[ours], confidence, seconds)
        (folder.path / STATE).unlink(missing_ok=True)
        missing = missing[len(ours) :]
        done_now = len(members) - len(missing)
        report({"note": f"{done_now} of {len(members)} models are trained; the last {len(ours)} took {seconds:.0f} s."})
    found = read_parts(folder.path, members, len(trainer.test), trainer.test.num_classes)
    confidences = np.stack([found[model][0] for model in range(len(members))])
    seconds = sum(share for _, share in found.values())
    return Predictions(confidences[0], confidences[1:], samples, trainer.count, seconds, chunk)


def _in_a_row(models: list[int]) -> list[int]:
    """Return the first of the models up to where a number is left out: a file names its first and last."""
    return [model for place, model in enumerate(models) if model == models[0] + place]


def _begun(folder: RunFolder, missing: list[int], chunk: int) -> int:
    """Return the size of the next chunk: that of the one that was interrupted, if there is one."""
    state = folder.load()
    if state is None:
        return chunk
    models = state.get("models")
    if not isinstance(models, list) or models != missing[: len(models)] or not models:
        raise folder.unusable(ValueError("other models"))
    return len(models)


def _train_chunk(
    trainer: Trainer,
    members: np.ndarray,
    ours: list[int],
    folder: RunFolder,
    tick: Callable[[float, float], None],
    *,
    beginnings: Beginnings | None,
) -> tuple[Tensor, float]:
    """Train some models at once, from the state they were left in; return their confidences and the seconds."""
    ensemble = trainer.ensemble(len(ours))
    optimizer = make_optimizer(ensemble, trainer.recipe.optimizer, fused=True)
    samples = torch.from_numpy(members[ours]).to(trainer.device)
    state = folder.load()
    epoch, spent, begin = 0, 0.0, 0
    full = members[ours[0]] == _NOBODY
    if state is None and beginnings is not None and not full:
        begin = _start_from(beginnings.take(int(members[ours[0]])), ensemble, optimizer)
    if state is not None:
        try:
            ensemble.load_state_dict(state["ensemble"])
            optimizer.load_state_dict(state["optimizer"])
            epoch, spent = int(state["epoch"]), float(state["seconds"])
        except Exception as error:  # a whole file, but of something else
            raise folder.unusable(error) from error
    begun = saved = time.monotonic()
    for number in range(epoch, trainer.recipe.schedule.epochs):
        met = beginnings if full and number == 0 else None
        trainer.epoch(ensemble, optimizer, samples, number, tick, begin=begin if number == 0 else 0, met=met)
        if time.monotonic() - saved > _SAVE_EVERY and number + 1 < trainer.recipe.schedule.epochs:
            folder.save(
                {
                    "models": ours,
                    "epoch": number + 1,
                    "seconds": spent + time.monotonic() - begun,
                    "ensemble": ensemble.state_dict(),
                    "optimizer": optimizer.state_dict(),
                }
            )
            saved = time.monotonic()
    return trainer.confidences(ensemble), spent + time.monotonic() - begun


def _start_from(beginning: Beginning | None, ensemble: Ensemble, optimizer: torch.optim.Optimizer) -> int:
    """Take over the full model's state, if there is one; return how many steps are done."""
    if beginning is None:
        return 0
    ensemble.load_state_dict(beginning.network)
    optimizer.load_state_dict(copy.deepcopy(beginning.optimizer))  # it keeps the tensors, and others start here too
    return beginning.step


__all__ = ["METHODS", "Predictions", "draw_samples", "leave_one_out"]
