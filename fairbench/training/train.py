"""``train``: from a recipe to a folder that is a model.

A finished run's folder holds ``model.safetensors`` and ``card.yaml``, so that ``fairbench evaluate --model FOLDER``
works, and ``history.csv``. The card says what really happened: recipe, data, epochs, seconds, hardware, seed, code
revision.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from fairbench import __version__, provenance
from fairbench.datasets import Dataset, load_dataset
from fairbench.errors import RecipeError
from fairbench.files import replacing, user_path
from fairbench.models.base import Model, Normalize
from fairbench.models.cards import CARD_FILE, WEIGHTS_FILE, card_names
from fairbench.models.loading import load_model
from fairbench.plain_yaml import dump_yaml
from fairbench.registry import is_own_code
from fairbench.training.fit import Fitted, Report, build_method, fit
from fairbench.training.hardware import Hardware
from fairbench.training.method import Method
from fairbench.training.network import prepare
from fairbench.training.recipe import Recipe, load_recipe, recipe_names
from fairbench.training.run_folder import write_weights


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    dataset: Dataset | None = None,
    data_dir: str | Path | None = None,
    hardware: Hardware | None = None,
    time_budget: float | None = None,
    report: Report | None = None,
    tensorboard: bool = False,
) -> Model:
    """Train by a recipe and return the model; ``out`` becomes a model folder.

    Parameters
    ----------
    recipe
        What to do.
    out
        The run's folder; a run of the same recipe in it goes on where it stopped.
    dataset
        Training images; default: the training split of the recipe's dataset, from ``data_dir``.
    time_budget
        Seconds; the schedule follows the clock.
    tensorboard
        Write the history to ``out/tensorboard`` too.

    Raises
    ------
    FairbenchError
        With what is wrong, where, and what to try.
    """
    data = dataset if dataset is not None else load_dataset(recipe.dataset, "train", data_dir=data_dir)
    _, model = train_epochs(
        recipe,
        out,
        data,
        hardware=hardware,
        time_budget=time_budget,
        report=report,
        tensorboard=tensorboard,
        own_data=dataset is not None,
    )
    return model


def train_epochs(
    recipe: Recipe,
    out: str | Path,
    data: Dataset,
    *,
    hardware: Hardware | None = None,
    time_budget: float | None = None,
    report: Report | None = None,
    tensorboard: bool = False,
    stop_after: int | None = None,
    own_data: bool = False,
) -> tuple[Fitted, Model]:
    """Train by a recipe on ``data``, to the end or for ``stop_after`` epochs of it; return what happened and the model.

    ``out`` becomes a model folder at the end; stopped before, it is a run that goes on. ``own_data`` says that ``data``
    may be others than the recipe's name stands for, so that no command trains this again.

    Raises
    ------
    FairbenchError
        As :func:`train`.
    """
    out, hardware = user_path(out), hardware or Hardware()
    method = build_method(recipe)
    recipe = _validated_at_own_radius(_typed(recipe, method), method)
    data = data.without_classes(recipe.drop_classes)
    module, data, size = prepare(recipe, data)
    source, unseen = _start(recipe, method, module, data)
    fitted = fit(
        recipe,
        data,
        out,
        module=module,
        source=source,
        hardware=hardware,
        time_budget=time_budget,
        report=report,
        tensorboard=tensorboard,
        stop_after=stop_after,
    )
    if not (fitted.is_writer and fitted.is_whole):
        return fitted, Model(module, recipe.name, recipe.architecture, size, recipe.dataset)
    command = None if own_data else _command(recipe, hardware, time_budget, len(fitted.history))
    _finish(recipe, method, fitted, data, unseen, out=out, command=command, time_budget=time_budget)
    arch = recipe.architecture if is_own_code(recipe.architecture) else None
    return fitted, load_model(out.absolute(), arch=arch, shape=data.shape)


def _typed(recipe: Recipe, method: Method) -> Recipe:
    """Return the recipe with its options as the method reads them: a command line gives text."""
    return recipe.model_copy(update={"options": {key: getattr(method, key) for key in recipe.options}})


def _validated_at_own_radius(recipe: Recipe, method: Method) -> Recipe:
    """Return the recipe with the method's radius for held-out examples, where features have one and none was named."""
    if not recipe.has_features or "validation_epsilon" in recipe.model_fields_set:
        return recipe
    epsilon = getattr(method, "epsilon", None)
    return recipe if epsilon is None else recipe.model_copy(update={"validation_epsilon": float(epsilon)})


def _start(recipe: Recipe, method: Method, module: nn.Module, data: Dataset) -> tuple[nn.Module | None, int | None]:
    """Give the network the weights of the model the recipe starts from, or return that model where it stays beside.

    Also return how many held-out images a class no model up to here was trained on; None where nobody knows.
    """
    if recipe.start is None:
        if method.needs_start:
            raise RecipeError(f"method {method.name} starts from a trained model: name one with --from.")
        return None, recipe.validation_per_class
    start = _load_start(recipe.start, recipe.architecture, data)
    unseen = _unseen(recipe, start)
    _check_held_out(recipe, method, unseen)
    if not method.trains_start:
        if start.card is not None and start.card.num_classes != data.num_classes:
            raise RecipeError(f"--from {recipe.start} has {start.card.num_classes} classes, not {data.num_classes}.")
        if start.input_size is not None and start.input_size != data.shape[1:]:
            raise RecipeError(
                f"--from {recipe.start} takes images of {start.input_size}, but {recipe.architecture} is trained on "
                f"{data.shape[1:]}; start from a model of that size."
            )
        return start.module, recipe.validation_per_class  # a new network has seen nothing
    try:
        module.load_state_dict(start.module.state_dict())
    except RuntimeError as error:
        brings = isinstance(start.module, nn.Sequential) and isinstance(start.module[0], Normalize)
        if brings != recipe.normalize:
            has, to = ("no normalisation", "false") if recipe.normalize else ("a normalisation of its own", "true")
            raise RecipeError(f"--from {recipe.start} has {has}: pass --set normalize={to}.") from error
        raise RecipeError(
            f"--from {recipe.start}: it is a {start.architecture}, and its weights do not fit {recipe.architecture} "
            f"with {data.num_classes} classes."
        ) from error
    return None, unseen


def _unseen(recipe: Recipe, start: Model) -> int | None:
    """Return how many held-out images a class neither the start nor what it came from was trained on, if it is known.

    Each model holds out the last of a class, so the least number of them counts.
    """
    if start.card is not None and start.card.dataset != recipe.dataset:
        return recipe.validation_per_class
    made_by = {} if start.card is None else (start.card.training or {})
    kept = made_by.get("unseen_per_class", made_by.get("recipe", {}).get("validation_per_class"))
    return min(kept, recipe.validation_per_class) if isinstance(kept, int) else None


def _check_held_out(recipe: Recipe, method: Method, unseen: int | None) -> None:
    """Refuse to adapt to, or choose by, held-out images that the start was trained on.

    ``xu2021`` keeps them out of training; what a model has seen it resists more often.
    """
    adapts = method.needs_validation or recipe.select != "last"
    if adapts and unseen is not None and recipe.validation_per_class > unseen:
        raise RecipeError(
            f"validation_per_class {recipe.validation_per_class}: {recipe.start}, or a model it came from, was trained "
            f"on some of these images, as it held out {unseen} a class, and this run would adapt to them; hold out as "
            "many, or train the start anew."
        )


def _load_start(name: str, architecture: str, data: Dataset) -> Model:
    """Load the model to start from; one that a recipe would make is not there until it is trained."""
    if name in recipe_names() and name not in card_names() and not Path(name).exists():
        raise RecipeError(
            f"this recipe starts from {name}, which is not trained yet: fairbench train --recipe {name} --out DIR, "
            "then pass --from DIR."
        )
    own = is_own_code(architecture) and name not in card_names()  # a card runs no code: the recipe's user names it
    arch = architecture if own or Path(name).is_file() else None
    return load_model(name, arch=arch, num_classes=data.num_classes, shape=data.shape)


def _finish(
    recipe: Recipe,
    method: Method,
    fitted: Fitted,
    data: Dataset,
    unseen: int | None,
    *,
    out: Path,
    command: str | None,
    time_budget: float | None,
) -> None:
    """Write weights and card, each whole or not at all."""
    module, normalization = fitted.module, {}
    if recipe.normalize and isinstance(module, nn.Sequential):
        layer, module = module
        normalization = {"normalization": {k: v.flatten().tolist() for k, v in layer.state_dict().items()}}
    write_weights(module.state_dict(), out / WEIGHTS_FILE)
    epsilon = float(getattr(method, "epsilon", 0.0))
    card = {
        "name": recipe.name,
        "title": recipe.title or f"{recipe.architecture}, {recipe.method}",
        "architecture": recipe.architecture,
        "dataset": recipe.dataset,
        "num_classes": data.num_classes,
        **({"in_channels": data.shape[0]} if data.features is None else _of_features(data)),
        "method": recipe.method,
        "weights": {"file": WEIGHTS_FILE, "sha256": provenance.sha256_file(out / WEIGHTS_FILE)},
        **normalization,
        "threat_model": {"norm": "Linf" if epsilon else "none", "epsilon": epsilon},
        "training": _training_facts(recipe, method, fitted, data, unseen, command=command, time_budget=time_budget),
        "provenance": f"trained by fairbench {__version__} with the recipe above",
        "licence": "not stated",
    }
    with replacing(out / CARD_FILE) as temporary:
        temporary.write_text(dump_yaml(card), encoding="utf-8")


def _of_features(data: Dataset) -> dict[str, Any]:
    return {"in_channels": None, "in_features": data.shape[0]}


def _training_facts(
    recipe: Recipe,
    method: Method,
    fitted: Fitted,
    data: Dataset,
    unseen: int | None,
    *,
    command: str | None,
    time_budget: float | None,
) -> dict[str, Any]:
    """Say what really happened."""
    return {
        "command": command,
        "recipe": recipe.model_dump(mode="json"),
        "options": {f.name: getattr(method, f.name) for f in fields(method) if f.init},
        "training_images": fitted.training_images,
        "validation_images": fitted.validation_images,
        **({} if recipe.start is None else {"unseen_per_class": unseen}),
        "data_sha256": data.sha256,
        **({} if fitted.start_sha256 is None else {"start_sha256": fitted.start_sha256}),
        "epochs": len(fitted.history),
        "chosen_epoch": fitted.chosen_epoch,
        "seconds": round(fitted.history[-1]["seconds"], 1),
        "time_budget": time_budget,
        **fitted.made_with[0],
        "resumed_with": list(fitted.made_with[1:]),
        "warnings": list(fitted.warnings),
    }


def _command(recipe: Recipe, hardware: Hardware, time_budget: float | None, epochs: int) -> str | None:
    """Return the command that trains this again; None where it takes one's own code, the clock, or several machines."""
    shipped = load_recipe(recipe.name) if recipe.name in recipe_names() else None
    if shipped is None or _typed(shipped, build_method(shipped)) != recipe:
        own = ":" in recipe.method or is_own_code(recipe.architecture)
        if own or time_budget or hardware.nodes > 1:
            return None
        return f"fairbench reproduce RUN --epochs {epochs} --out DIR{_on(hardware)}"
    options = [f"--recipe {recipe.name} --out DIR{_on(hardware)}"]
    options += [f"--devices {hardware.devices}"] if hardware.devices not in (1, "1") else []
    options += [f"--nodes {hardware.nodes}"] if hardware.nodes > 1 else []
    options += ["--compile"] if hardware.compile else []
    options += [f"--time-budget {time_budget:.15g}s"] if time_budget is not None else []
    return " ".join(["fairbench train", *options])


def _on(hardware: Hardware) -> str:
    return "" if hardware.accelerator == "auto" else f" --device {hardware.accelerator}"
