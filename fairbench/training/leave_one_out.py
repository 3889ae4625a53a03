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
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairbench import provenance
from fairbench.attacks.base import PIXELS, UNBOUNDED, Space
from fairbench.attacks.pgd import pgd
from fairbench.datasets import Dataset
from fairbench.errors import RecipeError, first_line
from fairbench.files import user_path
from fairbench.memory import free_memory, keep_freed_memory
from fairbench.models.building import new_module, users_attribute
from fairbench.models.layout import settle_layout
from fairbench.models.loading import load_model
from fairbench.models.prepare import frozen
from fairbench.registry import is_own_code
from fairbench.training.beginnings import Beginning, Beginnings
from fairbench.training.data import TrainingData
from fairbench.training.ensemble import Ensemble
from fairbench.training.fit import Report, build_method
from fairbench.training.method import Context, Method, method_class
from fairbench.training.network import make_optimizer, normalized
from fairbench.training.recipe import Recipe
from fairbench.training.run_folder import STATE, RunFolder, write_weights
from fairbench.training.schedule import learning_rate

RUN = "leave_one_out.json"
"""Says which run a folder holds."""

METHODS = ("standard", "pgd_at", "static_augmentation")
"""Methods whose loss is a mean over the examples of a batch, each on its own, so that one of them can have weight 0."""

_NOBODY = -1
"""Stands for the sample that the full model leaves out."""

_SAVE_EVERY = 60.0
"""Seconds of training that a kill may cost, and an epoch."""

_CHUNK_BYTES, _CHUNK_MODELS = 2**30, 64
"""What a chunk may take of memory, and of models: on two cores, more are no faster."""

_ONE_BY_ONE_BYTES = 8 * 2**20
"""What one model keeps of a batch, above which it fills the processor by itself, and more at once only move memory."""

_TEST_BATCH = 4_000
"""Activations of so many examples at once, all models of the chunk together."""


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
    trainer = _Trainer(recipe, training, test, device)
    folder.claim(trainer.identity(samples), begun=any(folder.path.glob("models_*")))
    try:
        return _all_chunks(trainer, samples, folder, chunk or trainer.fitting(len(samples) + 1), report)
    finally:
        folder.release()


def _check_recipe(recipe: Recipe, training: Dataset) -> None:
    """Refuse what would not be the same training for each model."""
    if method_class(recipe.method).name not in METHODS:
        raise RecipeError(
            f"--method {recipe.method}: leaving one sample out takes {', '.join(METHODS)}; the others weigh or choose "
            "the examples of a batch by one another."
        )
    usual = {"ema": None, "select": "last", "precision": "32", "validation_per_class": 0}
    for key, plain in usual.items():
        if (value := getattr(recipe, key)) != plain:
            raise RecipeError(f"{key} {value}: the leave-one-out ensemble trains without it; leave it out.")
    if recipe.batch_size < 2:
        raise RecipeError("batch size 1: without its sample a batch would be empty; give 2 or more.")
    if recipe.batch_size > len(training) and not recipe.balance:  # balanced there are more, and it is seen later
        raise RecipeError(f"batch size {recipe.batch_size} is larger than the {len(training)} training images.")


class _Trainer:
    """What all chunks share: data, first weights, method."""

    def __init__(self, recipe: Recipe, training: Dataset, test: Dataset, device: str) -> None:
        keep_freed_memory()
        self.device = _device(device)
        self.method = build_method(recipe)
        typed = {key: getattr(self.method, key) for key in recipe.options}  # a command line gives text
        self.recipe = recipe.model_copy(update={"options": typed})
        torch.manual_seed(recipe.seed)
        self.module, size = new_module(recipe.architecture, training.num_classes, training.shape)
        if size is not None:
            training, test = training.resized(*size), test.resized(*size)
        if recipe.normalize:
            self.module = normalized(self.module, training)
        self.test = test
        self.space = PIXELS if training.features is None else UNBOUNDED
        self.hashes = {"data_sha256": training.sha256, "test_sha256": test.sha256}
        layout = self._probe(training)
        self.generator = torch.Generator()
        plain = TrainingData.of(training, self.device, layout)
        origin = torch.arange(len(plain), device=self.device)
        if recipe.balance:
            origin = plain.balanced_rows()
            plain = plain.taken(origin)
        data = self._training_set(plain, training)
        self.labels, self.count = data.labels, len(training)
        self.origin = origin.repeat(len(data) // len(origin))  # an adversarial image goes with its clean one
        rows = torch.arange(len(data), device=self.device)
        self.data = TrainingData(data.inputs, rows, layout)  # its "labels" tell which images a batch holds

    def _probe(self, training: Dataset) -> torch.memory_format:
        """Return the layout to train in; make sure that the ensemble computes what the network does."""
        x, _, _ = training.batch(slice(0, 2))
        try:
            layout, logits = settle_layout(self.module, x)
            with torch.no_grad():
                both = Ensemble(self.module, 2, self.recipe.architecture).common(x.contiguous(memory_format=layout))
            apart = float((both - logits).abs().max())
        except RuntimeError as error:
            shape = "x".join(map(str, training.shape))
            raise RecipeError(
                f"{self.recipe.architecture} cannot take images of {shape}: {first_line(error)}"
            ) from error
        if logits.shape != (len(x), training.num_classes) or not apart <= 1e-4 * float(logits.abs().max()) + 1e-6:
            raise RecipeError(f"{self.recipe.architecture} cannot be computed for many models at once.")
        return layout

    def _training_set(self, data: TrainingData, training: Dataset) -> TrainingData:
        """Return the images, and after them the adversarial ones where the method adds them."""
        if not self.method.needs_start:
            if self.recipe.start is not None:
                raise RecipeError(
                    f"--from {self.recipe.start}: all models start from the same new weights; leave it out."
                )
            return data
        if self.recipe.start is None:
            raise RecipeError(
                f"method {self.method.name} makes its examples for a trained model: name one with --from."
            )
        source = load_model(self.recipe.start, num_classes=training.num_classes, shape=training.shape).module
        self.hashes["start_sha256"] = provenance.sha256_state(source.state_dict())
        self.method.setup(
            Context(
                num_classes=training.num_classes,
                space=self.space,
                device=self.device,
                generator=self.generator,
                attack_copy=frozen,
                source=frozen(source.to(self.device)),
            )
        )
        return self.method.training_set(data)

    def identity(self, samples: np.ndarray) -> dict[str, Any]:
        """Return what determines the run."""
        identity = self.recipe.model_dump(mode="json") | self.hashes | {"samples": samples.tolist()}
        if is_own_code(self.recipe.architecture):
            code = users_attribute(self.recipe.architecture, "--arch")
            identity["architecture_sha256"] = provenance.sha256_source(code)
        return identity

    def fitting(self, models: int) -> int:
        """Return how many of ``models`` to train at once, so that memory holds and the chunks are even.

        A wide network leaves nothing idle that others could use, and is trained alone.
        """
        if self._activation_bytes() > _ONE_BY_ONE_BYTES:
            return 1
        held = 4 * (4 if self.recipe.optimizer.name == "adam" else 3)
        each = held * sum(p.numel() for p in self.module.parameters()) + 2 * self._activation_bytes()
        most = max(1, min(_CHUNK_MODELS, _memory() // each))
        return math.ceil(models / math.ceil(models / most))

    def _activation_bytes(self) -> int:
        """Return what one model keeps of a batch for its gradient."""
        kept: dict[int, int] = {}
        ensemble = Ensemble(self.module, 1)
        weights = {p.data_ptr() for p in ensemble.parameters()}

        def count(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in weights:
                kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        x, _ = self.data.batch(torch.zeros(2, dtype=torch.int64, device=self.device))
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            logits = ensemble.to(self.device)(x)
        del logits
        return sum(kept.values()) * self.recipe.batch_size // 2

    def ensemble(self, models: int) -> Ensemble:
        """Return models that all have the first weights."""
        return Ensemble(self.module, models, self.recipe.architecture).to(self.device)

    def seed(self, epoch: int) -> None:
        """Seed what an epoch draws, as a training of one model does."""
        self.generator.manual_seed((self.recipe.seed << 20) + epoch + 1)

    def epoch(
        self,
        ensemble: Ensemble,
        optimizer: torch.optim.Optimizer,
        samples: Tensor,
        epoch: int,
        tick: Callable[[float, float], None],
        *,
        begin: int = 0,
        met: Beginnings | None = None,
    ) -> None:
        """Train an epoch; ``samples`` (L,) are left out, and ``tick`` hears the progress and the mean loss.

        The steps before ``begin`` are done; ``met`` hears what each batch holds.
        """
        self.seed(epoch)
        steps = len(self.data) // self.recipe.batch_size
        batches = self.data.batches(self.recipe.batch_size, self.recipe.augmentation, self.generator)
        for step, (x, rows) in enumerate(batches):
            if step < begin:
                _drawn_noise(self.method, x, self.generator)
                continue
            if met is not None:
                met.meet(step, self.origin[rows], ensemble, optimizer)
            progress = (epoch + step / steps) / self.recipe.schedule.epochs
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(self.recipe.schedule, self.recipe.optimizer.lr, progress)
            kept = (self.origin[rows] != samples[:, None]).float()
            y = self.labels[rows]
            losses = batch_losses(ensemble, self.method, x, y, kept=kept, generator=self.generator, space=self.space)
            if not bool(losses.isfinite().all()):
                raise RecipeError(
                    f"the loss is not finite at epoch {epoch}, step {step}: lower --lr (now "
                    f"{self.recipe.optimizer.lr:g})."
                )
            optimizer.zero_grad(set_to_none=True)
            losses.sum().backward()
            optimizer.step()
            tick(progress, float(losses.detach().mean()))

    @torch.no_grad()
    def confidences(self, ensemble: Ensemble) -> Tensor:
        """Return (L, n, K) float32 softmax confidences of the test examples."""
        found, size = [], max(1, _TEST_BATCH // ensemble.models)
        for start in range(0, len(self.test), size):
            x, _, _ = self.test.batch(slice(start, start + size))
            x = x.to(self.device).contiguous(memory_format=self.data.layout)
            found.append(F.softmax(ensemble.common(x), dim=-1).cpu())
        return torch.cat(found, dim=1)


def batch_losses(
    ensemble: Ensemble,
    method: Method,
    x: Tensor,
    y: Tensor,
    *,
    kept: Tensor,
    generator: torch.Generator,
    space: Space = PIXELS,
) -> Tensor:
    """Return (L,) mean cross-entropies of a batch that all models share.

    Parameters
    ----------
    x, y
        (B, ...) and (B,).
    kept
        (L, B), 1 for the examples that count for a model and 0 for those that it leaves out.
    generator
        Noise of an attack comes from it, the same for all models.
    space
        What inputs may be when they are attacked.
    """
    if method.name == "pgd_at":
        adversarial = _attacked(ensemble, method, x, y, generator=generator, space=space)
        logits = ensemble(adversarial).view(*kept.shape, -1)
    else:
        logits = ensemble.common(x)
    losses = F.cross_entropy(logits.flatten(0, 1), y.repeat(ensemble.models), reduction="none").view_as(kept)
    return (losses * kept).sum(1) / kept.sum(1).clamp(min=1)  # a batch of repetitions of the one left out: no step


def _attacked(
    ensemble: Ensemble, method: Any, x: Tensor, y: Tensor, *, generator: torch.Generator, space: Space
) -> Tensor:
    """Return (L * B, ...): the batch as PGD leaves it for each model."""
    models = ensemble.models
    noise = _drawn_noise(method, x, generator)
    assert noise is not None
    ensemble.requires_grad_(False)
    try:
        found = pgd(
            ensemble,
            _for_each(x, models),
            y.repeat(models),
            epsilon=method.epsilon,
            step=method.step,
            steps=method.steps,
            noise=_for_each(noise, models),
            space=space,
        )
    finally:
        ensemble.requires_grad_(True)
    return found.last


def _drawn_noise(method: Method, x: Tensor, generator: torch.Generator) -> Tensor | None:
    """Return what the generator draws for a batch that is attacked, in [-1, 1]; None for other methods."""
    return (torch.rand(x.shape, generator=generator) * 2 - 1).to(x) if method.name == "pgd_at" else None


def _for_each(x: Tensor, models: int) -> Tensor:
    return x.repeat(models, *[1] * (x.ndim - 1))


def _all_chunks(
    trainer: _Trainer, samples: np.ndarray, folder: RunFolder, chunk: int, report: Report | None
) -> Predictions:
    """Train what is not there yet and gather all."""
    report = report or (lambda _row: None)
    members = np.concatenate([[_NOBODY], samples])
    found = _finished(folder, members, len(trainer.test), trainer.test.num_classes)
    missing = [model for model in range(len(members)) if model not in found]
    epochs = trainer.recipe.schedule.epochs
    report(
        {
            "note": f"{folder.path}: {trainer.count} images, {len(members)} models "
            f"({len(missing)} to train, {min(chunk, len(missing))} at once), {epochs} epoch{'s' if epochs > 1 else ''}."
        }
    )
    beginnings = Beginnings(torch.from_numpy(samples), _memory()) if chunk == 1 else None
    while missing:
        ours = _in_a_row(missing)[: _begun(folder, missing, chunk)]
        share = len(ours) / len(members)
        done = 1 - len(missing) / len(members)

        def tick(progress: float, loss: float, start: float = done, part: float = share) -> None:
            report({"progress": start + progress * part, "loss": loss})

        confidence, seconds = _train_chunk(trainer, members, ours, folder, tick, beginnings=beginnings)
        path = folder.path / f"models_{ours[0]:05d}-{ours[-1]:05d}.safetensors"
        held = {"confidence": confidence, "seconds": torch.tensor(seconds, dtype=torch.float64)}
        write_weights(held | {"digest": _digest(confidence, members[ours])}, path)
        (folder.path / STATE).unlink(missing_ok=True)
        missing = missing[len(ours) :]
        done_now = len(members) - len(missing)
        report({"note": f"{done_now} of {len(members)} models are trained; the last {len(ours)} took {seconds:.0f} s."})
    found = _finished(folder, members, len(trainer.test), trainer.test.num_classes)
    confidences = np.stack([found[model][0] for model in range(len(members))])
    seconds = sum(share for _, share in found.values())
    return Predictions(confidences[0], confidences[1:], samples, trainer.count, seconds, chunk)


def _in_a_row(models: list[int]) -> list[int]:
    """Return the first of the models up to where a number is left out: a file names its first and last."""
    return [model for place, model in enumerate(models) if model == models[0] + place]


def _begun(folder: RunFolder, missing: list[int], chunk: int) -> int:
    """Return the size of the next chunk: that of the one that was interrupted, if there is one."""
    state = folder.load(torch.device("cpu"))
    if state is None:
        return chunk
    models = state.get("models")
    if not isinstance(models, list) or models != missing[: len(models)] or not models:
        raise folder.unusable(ValueError("other models"))
    return len(models)


def _train_chunk(
    trainer: _Trainer,
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
    state = folder.load(trainer.device)
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


def _digest(confidence: Tensor, samples: np.ndarray) -> Tensor:
    """Return (32,) uint8 what tells the confidences of these models from damaged ones, and from those of others."""
    made = hashlib.sha256(confidence.contiguous().numpy().tobytes() + samples.astype("<i8").tobytes())
    return torch.tensor(list(made.digest()), dtype=torch.uint8)


def _finished(
    folder: RunFolder, members: np.ndarray, examples: int, classes: int
) -> dict[int, tuple[np.ndarray, float]]:
    """Return by model its confidences, and its share of the seconds, as far as they are there."""
    from safetensors.torch import load_file

    found: dict[int, tuple[np.ndarray, float]] = {}
    for path in sorted(folder.path.glob("models_*.safetensors")):
        try:
            first, last = map(int, path.stem.partition("_")[2].split("-"))
            held = load_file(path)
            values, seconds = held["confidence"], float(held["seconds"])
            if values.shape != (last - first + 1, examples, classes) or last >= len(members):
                raise ValueError("of another run")
            if not torch.equal(held["digest"], _digest(values, members[first : last + 1])):
                raise ValueError("changed since, or of other models")
        except Exception as error:  # damaged bytes make the reader raise anything
            raise RecipeError(
                f"{path} is not a whole file of this run ({type(error).__name__}); remove it to train those models "
                "again."
            ) from error
        for offset, value in enumerate(values.numpy()):
            found[first + offset] = value, seconds / len(values)
    return found


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"--device {name} cannot be used: {first_line(error)}") from error


def _memory() -> int:
    """Return the bytes that a chunk may take: a gigabyte, or a quarter of what is free."""
    free = free_memory()
    return _CHUNK_BYTES if free is None else min(_CHUNK_BYTES, free // 4)


__all__ = ["METHODS", "Predictions", "batch_losses", "draw_samples", "leave_one_out"]
