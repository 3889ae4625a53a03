"""What commands that evaluate share: load what is named, run it behind a progress bar, say what it warns of."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairbench.cli.options import classes
from fairbench.cli.progress import progress_bar
from fairbench.errors import DatasetError, ModelError
from fairbench.registry import suggest

if TYPE_CHECKING:
    from fairbench.datasets import Dataset
    from fairbench.evaluation import Protocol
    from fairbench.evaluation.engines import Engine
    from fairbench.models import Model
    from fairbench.outcomes import Outcomes


def load_both(
    model: str, dataset: str | None, data_dir: str | None, protocol: "Protocol", options: dict[str, Any]
) -> "tuple[Model, Dataset]":
    """Load data and model, as :func:`load_all` does."""
    loaded, data, _ = load_all(model, dataset, data_dir, protocol, options, None)
    return loaded, data


def load_all(
    model: str,
    dataset: str | None,
    data_dir: str | None,
    protocol: "Protocol",
    options: dict[str, Any],
    transfer_from: str | None,
) -> "tuple[Model, Dataset, Model | None]":
    """Load data, model, and the model that attacks are made for if that is another one.

    The data come first: a checkpoint's architecture may need to know their shape and class count.
    """
    from fairbench.datasets import load_dataset
    from fairbench.datasets.named import NAMED, has_features
    from fairbench.models import load_model
    from fairbench.models.loading import dropped_classes, own_dataset, refuse_normalised

    if options.get("mean") is not None or options.get("std") is not None:
        refuse_normalised(model)  # before data are looked for, or downloaded
    resize, drop = options.pop("resize"), options.pop("drop_classes")
    dataset = dataset or own_dataset(model)
    protocol.check_inputs(dataset, "features" if has_features(dataset) else "images")
    split = "sample" if protocol.examples == "sample" else "test"
    data = load_dataset(dataset, split, data_dir=data_dir, resize=resize)
    drop = dropped_classes(model) if drop is None else classes(drop)
    names = [model, *([] if transfer_from is None else [transfer_from])]
    for name in names:
        left_out = dropped_classes(name)
        if left_out and set(drop) != set(left_out):
            listed = ", ".join(map(str, left_out))
            raise ModelError(f"{name} was trained without classes {listed}; leave out the same ones.")
    data = data.without_classes(drop)
    common: dict[str, Any] = {"num_classes": data.num_classes, "shape": data.shape}
    common["dataset"] = dataset if dataset in NAMED else None
    common |= {"input_size": resize, "model_dir": options.pop("model_dir", None)}
    loaded = load_model(model, **common, **options)
    return loaded, data, None if transfer_from is None else load_model(transfer_from, **common)


def check_attributes(names: list[str], data: "Dataset") -> None:
    """Refuse an attribute that the data lack, before anything is computed.

    Raises
    ------
    DatasetError
        There is no such attribute.
    """
    for name in names:
        if name not in data.attributes:
            known = list(data.attributes)
            has = suggest(name, known) if known else " It has none."
            raise DatasetError(f"{data.name} has no attribute '{name}'.{has}")


def run_shown(
    model: "Model",
    data: "Dataset",
    protocol: "Protocol",
    batch_size: int | None,
    device: str | None,
    *,
    engine: "str | Engine" = "local",
    out: Path | None = None,
    fresh: bool = False,
    source: "Model | None" = None,
    precision: str = "fp32",
) -> "tuple[Outcomes, bool]":
    """Evaluate behind a progress bar; also say whether nothing had to be computed."""
    from fairbench.evaluation import runner
    from fairbench.reports import folder

    size = runner.BATCH_SIZE if batch_size is None else batch_size
    if out is not None:
        asked: dict[str, Any] = {"batch_size": size, "device": device, "transfer_from": source, "precision": precision}
        folder.refuse_another_run(out, runner.identify(model, data, protocol, **asked))
    worked: list[float] = []
    with progress_bar(f"{model.name}: {', '.join(protocol.attacks)}", worked) as progress:
        outcomes = runner.evaluate(
            model,
            data,
            protocol,
            batch_size=size,
            device=device,
            engine=engine,
            resume=not fresh,
            progress=progress,
            transfer_from=source,
            precision=precision,
        )
    say_narrow(outcomes, precision)
    return outcomes, not worked


def say_warnings(outcomes: "Outcomes") -> None:
    """Print to stderr what the evaluation of a model warns of, where its report is not printed."""
    for text in outcomes.manifest.get("warnings", ()):
        print(f"warning: {outcomes.manifest['model']['name']}: {text}", file=sys.stderr)


def say_narrow(outcomes: "Outcomes", precision: str) -> None:
    """Print to stderr that a model was attacked in float32 where bf16 was asked for."""
    from fairbench.outcomes.schema import PRECISIONS

    if outcomes.manifest["precision"] != PRECISIONS[precision]:
        name = outcomes.manifest["model"]["name"]
        print(
            f"note: {name}: a network of such narrow layers is slower in bf16: gradients are float32", file=sys.stderr
        )
