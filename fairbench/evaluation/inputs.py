"""``load_inputs``: the model, the data and the source of attacks that an evaluation takes, so that they fit together.

The data come first: a checkpoint's architecture may need to know their shape and class count. A model that was trained
without some classes is evaluated without them, and so is the one that its attacks are made for.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fairbench.datasets import Dataset, load_dataset
from fairbench.datasets.named import NAMED, has_features
from fairbench.errors import ModelError
from fairbench.evaluation.class_count import asked_for_classes
from fairbench.evaluation.protocol import Protocol
from fairbench.models import Model, load_model
from fairbench.models.loading import Floats, dropped_classes, own_dataset, refuse_normalised


class Inputs(NamedTuple):
    """What :func:`~fairbench.evaluation.evaluate` takes beside a protocol.

    Parameters
    ----------
    model
        The model that is evaluated.
    dataset
        Its data: the protocol's split, without the classes that are left out.
    transfer_from
        The model that attacks are made for, or None if that is ``model``.
    """

    model: Model
    dataset: Dataset
    transfer_from: Model | None


def load_inputs(
    model: str | Path,
    protocol: Protocol | str,
    *,
    dataset: str | Path | None = None,
    data_dir: str | Path | None = None,
    transfer_from: str | Path | None = None,
    drop_classes: Iterable[int] | None = None,
    resize: tuple[int, int] | None = None,
    arch: str | None = None,
    mean: Floats | None = None,
    std: Floats | None = None,
    output: str | int | None = None,
    model_dir: str | Path | None = None,
) -> Inputs:
    """Load a model with the data its protocol asks for, as ``fairbench evaluate`` does.

    Parameters
    ----------
    model
        As ``name`` of :func:`~fairbench.models.load_model`.
    protocol
        Says which split is loaded, and whether images or features are attacked; the name of one will do.
    dataset
        As ``name`` of :func:`~fairbench.datasets.load_dataset`. Default: the model's own.
    data_dir
        Folder that holds the data, before ``$FAIRBENCH_DATA`` and the user cache.
    transfer_from
        A model that attacks are made for instead, as ``model``; ``arch``, ``mean``, ``std`` and ``output`` are not its.
    drop_classes
        Numbers of the classes to leave out. Default: those that ``model`` was trained without.
    resize
        (height, width) to bring the images to. Default: what the model demands.
    arch, mean, std, output, model_dir
        As of :func:`~fairbench.models.load_model`.

    Raises
    ------
    ModelError, CheckpointError
        A model cannot be loaded, has no dataset of its own where none is named, or was trained without other classes.
    DatasetError
        The data cannot be loaded, or have no such classes.
    ProtocolError
        The protocol is not for what the dataset holds.

    Examples
    --------
    >>> inputs = load_inputs("standard_lenet5_fashion_mnist", Protocol.named("quick"))
    >>> inputs.model.architecture, inputs.dataset.name, len(inputs.dataset)
    ('lenet5', 'fashion_mnist', 1000)
    """
    for given in (model, *([] if dataset is None else [dataset])):
        if not isinstance(given, str | Path):
            raise ModelError(
                f"load_inputs loads by names and paths, and was given a {type(given).__name__}; what is loaded already "
                "goes to evaluate."
            )
    if isinstance(protocol, str):
        protocol = Protocol.named(protocol)
    if mean is not None or std is not None:
        refuse_normalised(str(model))  # before data are looked for, or downloaded
    named = own_dataset(str(model)) if dataset is None else str(dataset)
    protocol.check_inputs(named, "features" if has_features(named) else "images")
    data = load_dataset(named, split_of(protocol), data_dir=data_dir, resize=resize)
    models = [str(model), *([] if transfer_from is None else [str(transfer_from)])]
    data = data.without_classes(_left_out(models, drop_classes))
    common: dict[str, Any] = {
        "shape": data.shape,
        "dataset": named if named in NAMED else None,
        "input_size": resize,
        "model_dir": model_dir,
    }
    own: dict[str, Any] = {"arch": arch, "mean": mean, "std": std, "output": output}
    loaded = asked_for_classes(data, lambda count: load_model(model, num_classes=count, **common, **own))
    source = None if transfer_from is None else load_model(transfer_from, num_classes=data.num_classes, **common)
    return Inputs(loaded, data, source)


def split_of(protocol: Protocol) -> str:
    """Return the split that has a protocol's examples: "sample", which may ship with the package, or "test"."""
    return "sample" if protocol.examples == "sample" else "test"


def _left_out(models: list[str], drop: Iterable[int] | None) -> tuple[int, ...]:
    """Return the classes to leave out: those named, or the first model's; all models must have been without them."""
    left_out = dropped_classes(models[0]) if drop is None else tuple(drop)
    for name in models:
        its = dropped_classes(name)
        if its and set(left_out) != set(its):
            listed = ", ".join(map(str, its))
            raise ModelError(f"{name} was trained without classes {listed}; leave out the same ones.")
    return left_out
