"""``load_model``: one entry for the zoo, checkpoints, RobustBench and one's own architectures."""

from dataclasses import replace
from pathlib import Path

from torch import nn

from fairbench.errors import CheckpointError, ModelError
from fairbench.files import user_path
from fairbench.models.architectures import ARCHITECTURES
from fairbench.models.base import Model, Normalize, PickOutput
from fairbench.models.building import build, fitting
from fairbench.models.cards import CARD_FILE, RUN_FILE, ModelCard, card_names, load_card, read_card
from fairbench.models.checkpoints import SUFFIXES, read_checkpoint, read_state, refuse_other_files
from fairbench.models.weights import weights_path

_RESULT = "manifest.json"
"""A file that the folder of an evaluation has."""

Floats = tuple[float, ...]


def load_model(
    name: str | Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    shape: tuple[int, ...] | None = None,
    mean: Floats | None = None,
    std: Floats | None = None,
    output: str | int | None = None,
    dataset: str | None = None,
    model_dir: str | Path | None = None,
    input_size: tuple[int, int] | None = None,
) -> Model:
    """Load a model by zoo name, from a checkpoint, or through RobustBench.

    Parameters
    ----------
    name
        A name of ``fairbench models``; the folder of a training run; a path to a checkpoint (.pt, .pth, .ckpt, .tar,
        .safetensors); or ``robustbench:ID``.
    arch
        For a checkpoint, and for a folder whose card names one's own code: a built-in architecture,
        ``torchvision:NAME``, or ``package.module:function`` that returns the module. Default: the one
        built-in architecture that the weights fit.
    num_classes, shape
        Class count and (C, H, W) or (F,) of the data, for builders that take them; a built-in architecture reads them
        off the weights and disagreement about the class count is an error.
    mean, std
        Per-channel normalisation to put inside the model, in [0, 1] pixel units.
    output
        Which output holds the logits, where the module returns a tuple or a dict.
    dataset, model_dir
        For RobustBench: the dataset whose model is meant (cifar10 for None or a path), and its download folder
        (default ``./models``, as RobustBench has it).
    input_size
        (height, width) images are brought to, instead of what the architecture demands.

    Raises
    ------
    ModelError, CheckpointError
        With what is wrong, where, and what to try.

    Examples
    --------
    >>> load_model("natural_resnet18").architecture
    'resnet18'
    """
    _check_text(name, arch)
    if (mean is None) != (std is None):
        raise ModelError("--mean and --std go together: give both or neither.")
    text = str(name)
    if mean is not None:
        refuse_normalised(text)
    if text.startswith("robustbench:"):
        from fairbench.models.robustbench import load_robustbench

        if arch is not None:
            raise ModelError(f"--arch goes with a checkpoint file; {text} brings its own architecture.")
        own_data = dataset is None or len(Path(dataset).parts) > 1 or Path(dataset).suffix != ""
        trained_on = "cifar10" if own_data else str(dataset)
        model = load_robustbench(text.removeprefix("robustbench:"), trained_on, model_dir)
    elif text.startswith("torchvision:"):
        raise ModelError(f"{text} is an architecture: pass --model CHECKPOINT --arch {text}.")
    elif _is_model_folder(text):
        folder = user_path(text)
        model = _load_card(read_card(folder / CARD_FILE), folder, num_classes, arch, shape)
    elif arch is not None and not takes_architecture(text):
        raise ModelError(f"--arch goes with a checkpoint file; '{text}' is none and brings its own architecture.")
    elif _is_path(text):
        model = _load_checkpoint(user_path(name), arch, num_classes, shape)
    else:
        model = _load_zoo(text, num_classes)
    of_features = shape is not None and len(shape) == 1
    return _wrapped(model, mean, std, output, input_size, of_features=of_features)


def _check_text(name: object, arch: object) -> None:
    """Refuse a network, or what builds one, where its name belongs."""
    if not isinstance(name, str | Path):
        given = type(name).__name__
        raise ModelError(f"load_model takes a name or a path, not a {given}; a network of your own goes to evaluate.")
    if arch is None or isinstance(arch, str):
        return
    home, own = getattr(arch, "__module__", None), getattr(arch, "__qualname__", None)
    given = f"{own} itself" if own and home else f"a {type(arch).__name__}"
    spelled = f"{home}:{own}" if own and home and home != "__main__" else "package.module:function"
    raise ModelError(f"arch is text that says where the function or class is: arch='{spelled}', not {given}.")


def refuse_normalised(name: str) -> None:
    """Refuse a normalisation for a model that brings its own.

    Raises
    ------
    ModelError
        It is no checkpoint file.
    """
    if name.startswith("robustbench:") or _is_model_folder(name) or name in card_names():
        raise ModelError(f"--mean and --std are for a checkpoint file; {name} brings its own normalisation.")


def takes_architecture(name: str) -> bool:
    """Whether an architecture has to be named, or may be, for a model: a file, or a folder whose card is no code."""
    return not name.startswith(("robustbench:", "torchvision:")) and (_is_model_folder(name) or _is_path(name))


def own_dataset(name: str) -> str:
    """Return the dataset a model is evaluated on when none is named.

    Raises
    ------
    ModelError
        It has none of its own: a checkpoint does not say.
    """
    if name.startswith("robustbench:"):
        return "cifar10"
    if _is_model_folder(name):
        return read_card(user_path(name) / CARD_FILE).dataset
    if _is_path(name) and not user_path(name).exists():
        raise CheckpointError(f"checkpoint {user_path(name)} does not exist.")
    if _is_path(name) and user_path(name).is_dir() and (user_path(name) / _RESULT).is_file():
        raise ModelError(f"{name} is the result of an evaluation, not a model: fairbench compare reads it.")
    if _is_path(name) and user_path(name).is_dir():
        raise ModelError(f"{name} is a folder, not a file, and no training run that has ended: it has no {CARD_FILE}.")
    if _is_path(name):
        refuse_other_files(user_path(name))
        raise ModelError(f"{name}: a checkpoint does not say what it was trained on; pass --dataset.")
    return load_card(name).dataset


def dropped_classes(name: str) -> tuple[int, ...]:
    """Return the classes that a trained run, or a model of the zoo, was made without; empty for any other model."""
    if _is_model_folder(name):
        card = read_card(user_path(name) / CARD_FILE)
    elif name in card_names():
        card = load_card(name)
    else:
        return ()
    recipe = (card.training or {}).get("recipe")
    dropped = recipe.get("drop_classes", []) if isinstance(recipe, dict) else []
    if not isinstance(dropped, list) or not all(type(c) is int and c >= 0 for c in dropped):
        raise ModelError(f"card of {name}: training.recipe.drop_classes: {dropped!r} is not a list of class numbers.")
    return tuple(dropped)


def _is_model_folder(text: str) -> bool:
    """Whether this is a finished run's folder; a name of the zoo is the zoo's, whatever lies in the folder."""
    if text in card_names():
        return False
    finished = (user_path(text) / CARD_FILE).is_file()
    if not finished and (user_path(text) / RUN_FILE).is_file():
        raise ModelError(f"{text} holds a training that is not finished; run its `fairbench train` command again.")
    return finished


def _is_path(text: str) -> bool:
    path = user_path(text)
    if path.is_file() or path.suffix in SUFFIXES or len(path.parts) > 1:
        return True
    return path.exists() and text not in card_names()


def _load_zoo(name: str, num_classes: int | None) -> Model:
    return _load_card(load_card(name), None, num_classes)


def _load_card(
    card: ModelCard,
    weights_folder: Path | None,
    num_classes: int | None,
    arch: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> Model:
    name = card.name
    if arch is not None and arch != card.architecture:
        raise ModelError(f"{name} is a {card.architecture}, its card says; leave --arch {arch} out.")
    known = card.architecture in ARCHITECTURES or card.architecture.startswith("torchvision:")
    if not known and arch is None:
        raise ModelError(
            f"the card of {name} names the architecture '{card.architecture}': a card runs no code of one's own; "
            f"say so with --arch {card.architecture}."
        )
    path = weights_path(card, weights_folder)
    module, size = build(card.architecture, read_state(path), name, num_classes=card.num_classes, shape=shape)
    _check_classes(name, card.num_classes, num_classes)
    if card.normalization is not None:
        of_features = card.in_features is not None
        module = nn.Sequential(Normalize(card.normalization.mean, card.normalization.std, of_features), module)
    return Model(module, name, card.architecture, size, card.dataset, card)


def _load_checkpoint(path: Path, arch: str | None, num_classes: int | None, shape: tuple[int, ...] | None) -> Model:
    state, notes = read_checkpoint(path)
    if arch is None:
        fits = fitting(state)
        if len(fits) != 1:
            which = f"fits {', '.join(fits)}" if fits else "fits no built-in architecture"
            raise CheckpointError(f"checkpoint {path} {which}; say which with --arch.")
        arch = fits[0]
        notes += (f"architecture {arch} recognised by its weights",)
    module, size = build(arch, state, f"checkpoint {path}", num_classes=num_classes, shape=shape)
    if arch in ARCHITECTURES:  # elsewhere the last dense layer need not be the output; the logits are checked anyway
        _check_classes(str(path), _last_width(module), num_classes)
    return Model(module, path.stem, arch, size, notes=notes)


def _last_width(module: nn.Module) -> int | None:
    """Return the outputs of the last dense layer, where there is one."""
    dense = [m for m in module.modules() if isinstance(m, nn.Linear)]
    return dense[-1].out_features if dense else None


def _check_classes(name: str, has: int | None, wanted: int | None) -> None:
    if has is not None and wanted is not None and has != wanted:
        raise ModelError(f"{name} has {has} outputs, but the dataset has {wanted} classes; they must be the same.")


def _wrapped(
    model: Model,
    mean: Floats | None,
    std: Floats | None,
    output: str | int | None,
    input_size: tuple[int, int] | None,
    *,
    of_features: bool,
) -> Model:
    module = model.module
    if mean is not None and std is not None:
        module = nn.Sequential(Normalize(mean, std, of_features), module)
    if output is not None:
        module = PickOutput(module, str(output))
    return replace(model, module=module.eval(), input_size=input_size or model.input_size)
