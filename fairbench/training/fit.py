"""The one loop: any method, any architecture, one process or many (Lightning Fabric).

A run lives in a folder. After each epoch everything that the next one depends on is written there in one step, and all
randomness is seeded by (seed, epoch), so a run that is killed and started again ends with the weights of one that was
not.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairbench import provenance
from fairbench.attacks.base import PIXELS, UNBOUNDED
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, RecipeError, first_line
from fairbench.guessing import collapsed
from fairbench.memory import keep_freed_memory
from fairbench.models.bfloat16 import emulated
from fairbench.models.prepare import frozen
from fairbench.training.attack_copy import AttackCopy
from fairbench.training.chosen_weights import ChosenWeights
from fairbench.training.data import TrainingData, split_validation
from fairbench.training.hardware import Hardware, launch
from fairbench.training.history import History
from fairbench.training.identity import training_identity
from fairbench.training.method import ClassErrors, Context, Method, method_class
from fairbench.training.network import make_optimizer, probe
from fairbench.training.processes import Processes
from fairbench.training.recipe import Recipe
from fairbench.training.run_folder import LAST, RunFolder, write_weights
from fairbench.training.schedule import Clock, learning_rate
from fairbench.training.seeds import epoch_seed, pass_seed
from fairbench.training.validation import class_errors

_COMPARED = 8
"""Examples on which the attacked copy is compared with the network before the first step."""

Report = Callable[[dict[str, Any]], None]
"""Called with a row of the history after each epoch, with {"epoch", "progress", "loss"} during it, with {"note": text}
and the hashes of data and start when it begins, and with {"warning": text} when something looks wrong."""


@dataclass(frozen=True)
class Fitted:
    """A finished run: the module with the chosen weights, and what happened.

    ``chosen_epoch`` is the epoch at whose end they were these, None for a running average over all epochs;
    ``training_images`` counts examples once, however often the recipe repeats them.
    """

    module: nn.Module
    history: list[dict[str, Any]]
    chosen_epoch: int | None
    training_images: int
    validation_images: int
    warnings: tuple[str, ...]
    made_with: tuple[dict[str, Any], ...]
    """Hardware, versions and commit that the run began with, then those it was resumed with, where they differ."""
    start_sha256: str | None
    """Hash of the weights it started from, or learned beside."""
    is_whole: bool
    """Whether it is trained to the end, not stopped before."""
    is_writer: bool
    """Whether this process, of several, writes the files."""


def fit(
    recipe: Recipe,
    dataset: Dataset,
    out: str | Path,
    *,
    module: nn.Module,
    source: nn.Module | None = None,
    hardware: Hardware | None = None,
    time_budget: float | None = None,
    report: Report | None = None,
    tensorboard: bool = False,
    stop_after: int | None = None,
) -> Fitted:
    """Train ``module`` in place by a recipe and return it with the chosen weights.

    Parameters
    ----------
    recipe
        What to do; see :class:`~fairbench.training.recipe.Recipe`.
    dataset
        The training split, at the size the module takes.
    out
        The run's folder. A run of the same recipe goes on where it stopped; another recipe's is refused.
    module
        The network, initialised or trained (``start``).
    source
        The trained model beside it, for methods with ``trains_start`` False.
    hardware
        Devices, processes, compiled or not; default: one process on the GPU if there is one.
    time_budget
        Seconds; the schedule follows the clock and the training ends on it.
    report
        Hears what happens; see :data:`Report`.
    tensorboard
        Write the history to ``out/tensorboard`` too.
    stop_after
        Stop once this many epochs are done; the schedule stays that of all, and the run goes on from there later.

    Raises
    ------
    RecipeError
        The folder holds another run, the recipe does not fit the data, or the loss is no longer finite.
    OutcomesError
        The folder cannot be written; the last whole state stays.
    """
    if recipe.select != "last" and not recipe.validation_per_class:
        raise RecipeError(f"select {recipe.select} needs held-out training images: set validation_per_class above 0.")
    run = _Fit(
        recipe,
        dataset,
        Path(out),
        module,
        source=source,
        hardware=hardware or Hardware(),
        time_budget=time_budget,
        report=report,
    )
    if tensorboard:
        run.history.ask_for_board(run.folder, writes=run.processes.is_writer)
    try:
        return run.run(stop_after)
    finally:
        run.folder.release()


def build_method(recipe: Recipe) -> Method:
    """Build the recipe's method.

    Raises
    ------
    RecipeError
        Unknown method, variant or option.
    """
    return method_class(recipe.method).configured(recipe.options, recipe.variant, pixels=not recipe.has_features)


class _Fit:
    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        out: Path,
        module: nn.Module,
        *,
        source: nn.Module | None,
        hardware: Hardware,
        time_budget: float | None,
        report: Report | None,
    ) -> None:
        self.recipe, self.folder, self.report = recipe, RunFolder(out), report or (lambda _row: None)
        self.budget = time_budget
        self.fabric = launch(hardware, recipe.precision)
        self.processes = Processes(self.fabric)
        if not self.processes.is_writer:
            self.report = lambda _row: None
        self.present = {
            "hardware": provenance.hardware(self.fabric.device.type),
            "versions": provenance.versions(),
            "git_revision": provenance.source_revision(),
            "processes": self.processes.count,
            "compiled": hardware.compile,
        }
        self.made_with: list[dict[str, Any]] = []
        keep_freed_memory()
        self.module = module
        self.start_sha256 = None
        if recipe.start is not None:  # a model trained again under the same name is another start
            self.start_sha256 = provenance.sha256_state((source or module).state_dict())
        self.generator = torch.Generator()
        self._take_data(dataset)
        self.method = self._fitting_method()
        self.history = History(dataset.classes)
        self.weights = ChosenWeights(module, recipe.select)
        self._place_network(hardware)
        with self._methods_own("in setup"):
            self.method.setup(self._context(source))

    def _take_data(self, dataset: Dataset) -> None:
        """Put the examples, and those held out, where the run computes, in the network's layout."""
        layout = probe(self.module, dataset, self.recipe.architecture)
        training, held = split_validation(dataset, self.recipe.validation_per_class)
        self.classes, self.kind, self.no_first_class = dataset.classes, dataset.kind, dataset.no_first_class
        self.data_sha256 = dataset.sha256
        self.count = len(training)
        self.space = PIXELS if dataset.features is None else UNBOUNDED
        self.data = TrainingData.of(training, self.fabric.device, layout)
        if self.recipe.balance:
            self.data = self.data.balanced()
        self.held = None if held is None else TrainingData.of(held, self.fabric.device, layout)
        self.held_index = np.empty(0, dtype=np.int64) if held is None else held.index

    def _fitting_method(self) -> Method:
        """Build the method; refuse a recipe that lacks what it needs, or does what it does itself."""
        method = build_method(self.recipe)
        if self.recipe.ema is not None and type(method).average_decay is not Method.average_decay:
            raise RecipeError(f"method {method.name} averages the weights by a rule of its own: leave ema out.")
        if method.needs_validation and self.held is None:
            raise RecipeError(
                f"method {method.name} adapts to held-out training images: set validation_per_class above 0."
            )
        return method

    def _place_network(self, hardware: Hardware) -> None:
        """Put network and optimizer where the run computes, and beside them the copy that is attacked."""
        optimizer = make_optimizer(self.module, self.recipe.optimizer)
        compiled: Any = torch.compile(self.module) if hardware.compile else self.module
        self.model, self.optimizer = self.fabric.setup(compiled, optimizer)
        some, _ = self.data.batch(torch.arange(min(_COMPARED, len(self.data))))
        self.attacked = AttackCopy(
            self.module,
            some,
            self.recipe.precision,
            compiled=hardware.compile,
            batch_size=self.recipe.batch_size // self.processes.count,
            warn=lambda text: self.report({"warning": text}),
        )

    def _context(self, source: nn.Module | None) -> Context:
        """Return what the method may use of the run."""
        own = (self.model, self.module)
        return Context(
            num_classes=len(self.classes),
            device=self.fabric.device,
            generator=self.generator,
            attack_copy=lambda asked: self.attacked.now() if asked in own else frozen(asked),
            held=self.held,
            source=None if source is None else frozen(source.to(self.fabric.device)),
            rank=self.processes.rank,
            world=self.processes.count,
            mean=self.processes.mean,
            seed=self.recipe.seed,
            space=self.space,
        )

    def run(self, stop_after: int | None = None) -> Fitted:
        """Train to the end, or for so many epochs, and leave the chosen weights in the module."""
        identity = training_identity(
            self.recipe, time_budget=self.budget, data_sha256=self.data_sha256, start_sha256=self.start_sha256
        )
        self.processes.let_writer(lambda: self.folder.claim(identity))
        first_epoch, spent = self._resume()
        self.history.open_board(first_epoch)
        with self._methods_own("in training_set"):
            self.data = self.method.training_set(self.data)
            steps = len(self.data) // self.recipe.batch_size // self.recipe.schedule.epochs_per_pass
        self.clock = Clock(self.recipe.schedule.epochs, max(steps, 1), self.budget, spent)
        hashes = {"data_sha256": self.data_sha256, "start_sha256": self.start_sha256}
        self.report({"note": self._beginning(first_epoch), **hashes})
        slow = emulated(self.fabric.device) if self.recipe.precision == "bf16" else None
        if slow is not None and not self.clock.over(first_epoch):
            self.report({"warning": f"{slow} Pass --precision 32, or train on another machine."})
        if first_epoch == 0 and self.no_first_class is not None:
            self.report({"warning": f"{self.no_first_class}."})
        if first_epoch == 0:
            self._seed(-1)
            with self._methods_own("in begin"):
                self.method.begin(cache(self._validate))
        epoch = first_epoch
        stop = math.inf if stop_after is None else stop_after
        while not (is_over := self.processes.any(self.clock.over(epoch))) and epoch < stop:
            self._epoch(epoch)
            epoch += 1
        if not self.history.rows:
            raise RecipeError(f"the time budget of {self.budget:g} s was over before the first step; give it more.")
        self.history.close_board()
        return self._fitted(is_over)

    def _beginning(self, first_epoch: int) -> str:
        """Return what a person waits for now."""
        if first_epoch and self.clock.over(first_epoch):
            return f"{self.folder.path}: trained before, up to epoch {first_epoch - 1}; nothing is left to do."
        if first_epoch:
            return f"{self.folder.path}: goes on at epoch {first_epoch}, after {self.clock.seconds:.0f} s."
        held = 0 if self.held is None else len(self.held)
        epochs = self.recipe.schedule.epochs
        until = f"{epochs} epoch{'s' if epochs > 1 else ''}" if self.budget is None else f"{self.budget:g} s"
        return (
            f"{self.folder.path}: {len(self.data)} {self.kind}, {held} more held out, {until} on {self.fabric.device}."
        )

    def _fitted(self, is_whole: bool) -> Fitted:
        """Leave the chosen weights in the module, and say what happened."""
        warnings = self._warnings()
        for text in warnings:
            self.report({"warning": text})
        if self.weights.best is not None and self.processes.is_writer:  # the last beside the chosen ones
            write_weights(self.weights.last(), self.folder.path / LAST)
        self.module.load_state_dict(self.weights.chosen())
        held = 0 if self.held is None else len(self.held)
        return Fitted(
            self.module,
            self.history.rows,
            self.weights.epoch(self.history.rows[-1]["epoch"]),
            self.count,
            held,
            warnings,
            tuple(self.made_with),
            self.start_sha256,
            is_whole,
            self.processes.is_writer,
        )

    def _warnings(self) -> tuple[str, ...]:
        """Say where the result is no classifier: its errors are those of guessing."""
        error = self.history.rows[-1]["avg_std"]
        warning = None if error is None else collapsed(error, len(self.classes), "held-out images")
        return () if warning is None else (warning,)

    def _epoch(self, epoch: int) -> None:
        self._seed(epoch)
        with self._methods_own(f"in start_epoch of epoch {epoch}"):
            self.method.start_epoch(epoch, self.clock.progress(epoch, 0))
        self.model.train()
        total, count, rate = 0.0, 0, 0.0
        parts = self.data.batches(
            self.recipe.batch_size,
            self.recipe.augmentation,
            self.generator,
            rank=self.processes.rank,
            world=self.processes.count,
            order=self._part_of_pass(epoch),
        )
        for step, (x, y) in enumerate(parts):
            progress = self.clock.progress(epoch, step)
            if self.budget is not None and self.processes.any(progress >= 1):
                break
            rate = learning_rate(self.recipe.schedule, self.recipe.optimizer.lr, progress)
            total += self._step(x, y, rate, where=f"epoch {epoch}, step {step}")
            count += 1
            self.report({"epoch": epoch, "progress": progress, "loss": total / count})
        if not count:
            return
        self.processes.share_buffers(self.module)
        if not all(bool(torch.isfinite(weights).all()) for weights in self.module.parameters()):
            raise self._not_finite(f"a weight is NaN or infinite after epoch {epoch}")
        validate = cache(self._validate)
        self.method.progress = self.clock.progress(epoch + 1, 0)
        with self._methods_own(f"at the end of epoch {epoch}"):
            self.method.end_epoch(validate)
            decay = self.method.average_decay(validate)
            if decay is not None:
                self.weights.enter_average(decay)
        self._record(epoch, total / count, rate, validate)
        self._save(epoch + 1)

    def _part_of_pass(self, epoch: int) -> Tensor | None:
        """Return the rows of an epoch that is one part of a pass over the data; None where it is a whole pass."""
        parts = self.recipe.schedule.epochs_per_pass
        if parts == 1:
            return None
        whole, part = divmod(epoch, parts)
        generator = torch.Generator().manual_seed(pass_seed(self.recipe.seed, whole))
        return self.data.part_of_pass(part, parts, self.recipe.batch_size, generator)

    def _step(self, x: Tensor, y: Tensor, rate: float, where: str) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        place = f"at {where} on {tuple(x.shape)} images"
        with self._methods_own(place):
            loss = self.method.loss(self.model, x, y)
            if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
                raise TypeError("the loss must be a scalar tensor with a gradient")
        value = float(self.processes.mean(loss))
        if not math.isfinite(value):
            raise self._not_finite(f"the loss is {value} at {where}")
        with self._methods_own(place):
            self.fabric.backward(loss)
        self.optimizer.step()
        if self.recipe.ema is not None:
            self.weights.enter_average(self.recipe.ema)
        return value

    @contextmanager
    def _methods_own(self, where: str) -> Iterator[None]:
        """Say in a line what code that can be the user's own, of a method or an architecture, raised."""
        try:
            yield
        except FairbenchError:
            raise
        except (Exception, SystemExit) as error:  # no method ends the program
            raise RecipeError(f"method {self.recipe.method} failed {where}: {first_line(error)}") from error

    def _not_finite(self, what: str) -> RecipeError:
        return RecipeError(
            f"{what}: lower optimizer.lr (now up to {self.recipe.optimizer.lr:g}), or use precision 32; the last whole "
            f"epoch is in {self.folder.path}."
        )

    def _validate(self) -> ClassErrors:
        """Return the held-out errors of the weights of this moment."""
        if self.held is None:
            raise RecipeError("this recipe needs held-out training images: set validation_per_class above 0.")
        self.module.eval()
        found = class_errors(
            self.attacked.now(),
            self.module,
            self.held,
            self.held_index,
            num_classes=len(self.classes),
            epsilon=self.recipe.validation_epsilon,
            space=self.space,
        )
        if not bool((torch.isfinite(found.rob_loss) | torch.isnan(found.std)).all()):  # NaN: a class without an example
            raise self._not_finite("the loss on held-out examples is NaN or infinite")
        return found

    def _validate_average(self) -> ClassErrors:
        """Return those of the running average, which is the result."""
        now = {k: v.detach().clone() for k, v in self.module.state_dict().items()}
        self.module.load_state_dict(self.weights.last())
        try:
            return self._validate()
        finally:
            self.module.load_state_dict(now)

    def _record(self, epoch: int, loss: float, rate: float, validate: Callable[[], ClassErrors]) -> None:
        errors = None
        if self.held is not None:
            errors = validate() if self.weights.average is None else self._validate_average()
        row = self.history.add(epoch, seconds=self.clock.seconds, lr=rate, loss=loss, errors=errors)
        if errors is not None:
            self.weights.remember(row)
        self.report(row)

    def _seed(self, epoch: int) -> None:
        """Seed all that an epoch draws; layers with dropout draw from torch's own generators."""
        seed = epoch_seed(self.recipe.seed, epoch)
        self.generator.manual_seed(seed)
        torch.manual_seed(seed)

    def _save(self, next_epoch: int) -> None:
        """Write the state and the history, each whole or not at all; only the first process does."""
        if self.present not in self.made_with:
            self.made_with.append(self.present)
        self.processes.let_writer(lambda: self._write(next_epoch))

    def _write(self, next_epoch: int) -> None:
        with self._methods_own("in state"):
            methods_state = self.method.state()
        state = {
            "epoch": next_epoch,
            "seconds": self.clock.seconds,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": methods_state,
            "average": self.weights.average,
            "best": self.weights.best,
            **self.history.state(),
            "made_with": json.dumps(self.made_with),
        }
        named = ", ".join(self.method.state_fields) or "state()"
        self.folder.save(state, check=f"method {self.method.name}: its state ({named})" if next_epoch == 1 else None)
        self.history.write(self.folder)

    def _resume(self) -> tuple[int, float]:
        """Load the last whole state; return the epoch that comes next and the seconds spent."""
        state = self.folder.load()
        if state is None:
            return 0, 0.0
        try:
            self.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.method.load_state(state["method"])
            self.weights.load(state["average"], state["best"], self.fabric.device)
            self.history.load_state(state)
            self.made_with = json.loads(state["made_with"])
            if not self.made_with:
                raise ValueError("it holds no epoch")
            epoch, seconds = int(state["epoch"]), float(state["seconds"])
        except Exception as error:  # a whole file, but of something else
            raise self.folder.unusable(error) from error
        if self.processes.is_writer:
            self.history.write(self.folder)
        return epoch, seconds
