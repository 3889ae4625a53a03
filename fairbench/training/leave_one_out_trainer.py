"""How the models of a leave-one-out run are trained: what all of them share, and an epoch of some of them at once.

A model's loss is the mean over the batch without its sample: that sample has weight 0, and so have its repetitions
where classes are balanced.
"""

import math
from collections.abc import Callable
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
from fairbench.memory import free_memory, keep_freed_memory
from fairbench.models.layout import settle_layout
from fairbench.models.loading import load_model
from fairbench.models.prepare import frozen
from fairbench.own_code import own_attribute, sha256_source
from fairbench.registry import is_own_code
from fairbench.training.beginnings import Beginnings
from fairbench.training.data import TrainingData
from fairbench.training.ensemble import Ensemble
from fairbench.training.fit import build_method
from fairbench.training.identity import adversarial_seed
from fairbench.training.method import Context, Method
from fairbench.training.network import prepare
from fairbench.training.recipe import Recipe
from fairbench.training.schedule import learning_rate
from fairbench.training.seeds import epoch_seed

_CHUNK_BYTES, _CHUNK_MODELS = 2**30, 64
"""What a chunk may take of memory, and of models: on two cores, more are no faster."""

_ONE_BY_ONE_BYTES = 8 * 2**20
"""What one model keeps of a batch, above which it fills the processor by itself, and more at once only move memory."""

_TEST_BATCH = 4_000
"""Activations of so many examples at once, all models of the chunk together."""


class Trainer:
    """What all chunks share: data, first weights, method."""

    def __init__(self, recipe: Recipe, training: Dataset, test: Dataset, device: str) -> None:
        keep_freed_memory()
        self.device = _device(device)
        self.method = build_method(recipe)
        typed = {key: getattr(self.method, key) for key in recipe.options}  # a command line gives text
        self.recipe = recipe.model_copy(update={"options": typed})
        self.module, training, size = prepare(recipe, training)
        if size is not None:
            test = test.resized(*size)
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
                seed=self.recipe.seed,
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
        identity |= adversarial_seed(self.recipe)
        if is_own_code(self.recipe.architecture):
            code = own_attribute(self.recipe.architecture, "--arch")
            identity["architecture_sha256"] = sha256_source(code)
        return identity

    def fitting(self, models: int) -> int:
        """Return how many of ``models`` to train at once, so that memory holds and the chunks are even.

        A wide network leaves nothing idle that others could use, and is trained alone.
        """
        if self._activation_bytes() > _ONE_BY_ONE_BYTES:
            return 1
        held = 4 * (4 if self.recipe.optimizer.name == "adam" else 3)
        each = held * sum(p.numel() for p in self.module.parameters()) + 2 * self._activation_bytes()
        most = max(1, min(_CHUNK_MODELS, memory_for_models() // each))
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
        self.generator.manual_seed(epoch_seed(self.recipe.seed, epoch))

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

        Raises
        ------
        RecipeError
            A loss is not finite.
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


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"--device {name} cannot be used: {first_line(error)}") from error


def memory_for_models() -> int:
    """Return the bytes that a chunk may take: a gigabyte, or a quarter of what is free."""
    free = free_memory()
    return _CHUNK_BYTES if free is None else min(_CHUNK_BYTES, free // 4)
