"""``fairbench luf``: how far one training sample moves what a model says."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli.train import chosen_recipe, progress_bar, settings_of

if TYPE_CHECKING:
    from fairbench.datasets import Dataset
    from fairbench.training import Recipe
    from fairbench.training.leave_one_out import Predictions

_PAPER: dict[str, Any] = {
    "optimizer.name": "adam",
    "optimizer.weight_decay": 0.0,
    "schedule.name": "constant",
    "validation_per_class": 0,
}
"""How ``sooksatra2022`` trains, beside batch size, epochs and learning rate; ``--set`` changes it."""


def luf(
    method: Annotated[str, typer.Option(help="standard, pgd_at or static_augmentation.")],
    arch: Annotated[str, typer.Option(help="Architecture without batch norm: small_cnn, lenet5, mlp.")],
    dataset: Annotated[str, typer.Option(help="Dataset by name, .npz or folder.")],
    leave_out: Annotated[int, typer.Option(help="Training samples to leave out, one a model; drawn with the seed.")],
    epochs: Annotated[int, typer.Option(help="Epochs of each training.")] = 20,
    batch_size: Annotated[int, typer.Option(help="Images of a batch.")] = 250,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Seed of weights, order, noise and of the samples.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE of the method or the recipe (epsilon=8/255).")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Model that static_augmentation makes its examples for.")
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(help="Models trained at once. Default: what a gigabyte holds, 64 at most; one if wide."),
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; the same run in it goes on. Default: in the cache.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder of another run on the same data, or its luf.json: how much more unfair this is."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
    ] = False,
) -> None:
    """Train a model on all samples and one without each of some, and report leave-one-out unfairness."""
    own: dict[str, Any] = {"schedule.epochs": epochs, "batch_size": batch_size, "optimizer.lr": lr, "seed": seed}
    own |= {} if start is None else {"start": start}
    plain = chosen_recipe(None, method, arch, dataset)
    recipe = plain.changed(_PAPER | own | settings_of(set_ or []))

    from fairbench.datasets import load_dataset
    from fairbench.files import user_path
    from fairbench.leaderboard.luf import LUF_FILE, read_luf, write_luf
    from fairbench.reports import luf as report
    from fairbench.training.leave_one_out import draw_samples, leave_one_out

    training = load_dataset(recipe.dataset, "train", data_dir=data_dir).without_classes(recipe.drop_classes)
    test = load_dataset(recipe.dataset, "test", data_dir=data_dir).without_classes(recipe.drop_classes)
    samples = draw_samples(training, leave_out, recipe.seed)
    other = None
    if against is not None:
        path = user_path(against)
        other = read_luf(path if path.is_file() else path / LUF_FILE)
        report.refuse_unlike(other[2], (training.sha256, test.sha256), samples.tolist())
    folder = _folder(out, recipe, training, leave_out)
    with progress_bar(f"{recipe.name}, leaving out {leave_out}") as shown:
        found = leave_one_out(recipe, training, test, samples, folder, chunk=chunk, device=device, report=shown)
    examples, manifest = _result(recipe, training, test, found, device)
    document = write_luf(folder / LUF_FILE, examples, manifest)
    kept = read_luf(folder / LUF_FILE)
    if as_json:
        if other is not None:
            document["minus"] = report.minus(kept, other)
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    print(report.lines(*kept))
    if other is not None:
        print(report.against(kept, other))
    print(f"written: {folder / LUF_FILE}, and beside it luf.parquet with a row per test image")


def _folder(out: Path | None, recipe: "Recipe", training: "Dataset", leave_out: int) -> Path:
    """Return the run's folder: the one that was named, or one of the cache that is named after the run."""
    from fairbench.files import cache_folder, user_path
    from fairbench.models import load_model
    from fairbench.provenance import sha256_json, sha256_state

    if out is not None:
        return user_path(out)
    run = [recipe.model_dump(mode="json"), training.sha256, leave_out]
    if recipe.start is not None:  # a model trained again under the same name is another start
        start = load_model(recipe.start, num_classes=training.num_classes, shape=training.shape)
        run.append(sha256_state(start.module.state_dict()))
    return cache_folder("luf") / f"{recipe.name}-{sha256_json(run)[:16]}"


def _result(
    recipe: "Recipe", training: "Dataset", test: "Dataset", found: "Predictions", device: str
) -> tuple[Any, dict[str, Any]]:
    """Return the table of test examples and the manifest."""
    from dataclasses import fields

    from fairbench import provenance
    from fairbench.metrics.luf import example_table, sample_table
    from fairbench.training.fit import build_method

    examples = example_table(test.index, test.labels, found.full, found.left)
    left_out = sample_table(found.samples, training.labels[found.samples], found.full, found.left)
    method = build_method(recipe)
    manifest = {
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
        "recipe": recipe.model_dump(mode="json"),
        "run": provenance.sha256_json([recipe.model_dump(mode="json"), training.sha256, found.samples.tolist()]),
        "left_out": left_out.to_dict("records"),
        "chunk": found.chunk,
        "seconds": round(found.seconds, 1),
        "hardware": provenance.hardware(device),
        "versions": provenance.versions(),
        "git_revision": provenance.source_revision(),
    }
    return examples, manifest
