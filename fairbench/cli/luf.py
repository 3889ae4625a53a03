"""``fairbench luf``: how far one training sample moves what a model says."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import shared_options
from fairbench.cli.asked_recipe import chosen_recipe, settings_of
from fairbench.cli.progress import training_bar

if TYPE_CHECKING:
    from fairbench.reports.luf import Result

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
    data_dir: shared_options.DataDir = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")] = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; the same run in it goes on. Default: in the cache.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Folder of another run on the same data, or its luf.json: how much more unfair this is."),
    ] = None,
    as_json: shared_options.AsJsonAlone = False,
) -> None:
    """Train a model on all samples and one without each of some, and report leave-one-out unfairness."""
    own: dict[str, Any] = {"schedule.epochs": epochs, "batch_size": batch_size, "optimizer.lr": lr, "seed": seed}
    own |= {} if start is None else {"start": start}
    plain = chosen_recipe(None, method, arch, dataset)
    recipe = plain.changed(_PAPER | own | settings_of(set_ or []))

    from fairbench.datasets import load_dataset
    from fairbench.files import user_path
    from fairbench.leaderboard.luf import LUF_FILE, read_luf, write_luf
    from fairbench.metrics.luf import example_table, sample_table
    from fairbench.training.leave_one_out import draw_samples, leave_one_out
    from fairbench.training.leave_one_out_record import cached_folder, run_manifest

    training = load_dataset(recipe.dataset, "train", data_dir=data_dir).without_classes(recipe.drop_classes)
    test = load_dataset(recipe.dataset, "test", data_dir=data_dir).without_classes(recipe.drop_classes)
    samples = draw_samples(training, leave_out, recipe.seed)
    other = None if against is None else _other(against, (training.sha256, test.sha256), samples.tolist())
    folder = cached_folder(recipe, training, leave_out) if out is None else user_path(out)
    with training_bar(f"{recipe.name}, leaving out {leave_out}") as shown:
        found = leave_one_out(recipe, training, test, samples, folder, chunk=chunk, device=device, report=shown)
    examples = example_table(test.index, test.labels, found.full, found.left)
    left_out = sample_table(found.samples, training.labels[found.samples], found.full, found.left)
    manifest = run_manifest(recipe, training, test, found, left_out, device=device)
    document = write_luf(folder / LUF_FILE, examples, manifest)
    _print(read_luf(folder / LUF_FILE), other, document if as_json else None)
    if not as_json:
        print(f"written: {folder / LUF_FILE}, and beside it luf.parquet with a row per test image")


def _other(against: Path, data: tuple[str, str], samples: list[int]) -> "Result":
    """Return the run to compare with: of the same data, without the same samples."""
    from fairbench.files import user_path
    from fairbench.leaderboard.luf import LUF_FILE, read_luf
    from fairbench.reports.luf import refuse_unlike

    path = user_path(against)
    other = read_luf(path if path.is_file() else path / LUF_FILE)
    refuse_unlike(other[2], data, samples)
    return other


def _print(kept: "Result", other: "Result | None", document: dict[str, Any] | None) -> None:
    """Print a result and how much more unfair it is than another: as JSON where there is a document of it."""
    from fairbench.reports import luf as report

    if document is not None:
        minus = {} if other is None else {"minus": report.minus(kept, other)}
        print(json.dumps(document | minus, indent=2, allow_nan=False))
        return
    print(report.lines(*kept))
    if other is not None:
        print(report.against(kept, other))
