"""``fairbench reproduce``: train the first epochs of a model again, and compare with what was recorded."""

from pathlib import Path
from typing import Annotated

import typer

from fairbench.cli import shared_options
from fairbench.cli.progress import training_bar
from fairbench.errors import RecipeError


def reproduce(
    model: Annotated[str, typer.Argument(help="A model of the zoo, or the folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="Folder of the new run; it goes on where it stopped.")],
    epochs: Annotated[int, typer.Option(help="How many of its epochs to train again.")] = 1,
    data_dir: shared_options.DataDir = None,
    tolerance: Annotated[float, typer.Option(help="Largest relative difference of loss and learning rate.")] = 1e-4,
    points: Annotated[float, typer.Option(help="Largest difference of average held-out errors, in percent.")] = 0.5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Train a model's first epochs again by its card, and compare them with its recorded history."""
    from tabulate import tabulate

    from fairbench.training.reproduce import reproduce

    for option, value in (("--tolerance", tolerance), ("--points", points)):
        if not 0 <= value < float("inf"):
            raise RecipeError(f"{option} {value:g}: give a number from 0.")
    with training_bar(f"{model}, again") as report:
        found = reproduce(model, out, epochs=epochs, data_dir=data_dir, device=device, report=report)
    rows = found.differences()
    shown = [
        {**row, "difference": "none" if not row["difference"] else f"{row['difference']:.2g}{_unit(row['what'])}"}
        for row in rows
    ]
    print(tabulate(shown, headers="keys", floatfmt=".10g", disable_numparse=[1]))
    for text in found.notes:
        print(f"note: {text}")
    if not found.agrees(tolerance, points):
        print(f"{model} did not come out as recorded (allowed: {tolerance:g} of the loss, {points:g} points of error).")
        raise typer.Exit(1)
    exact = not any(row["difference"] for row in rows)
    print(f"{model} came out as recorded{', to the last bit of each number' if exact else ''}.")


def _unit(column: str) -> str:
    return " points" if column.startswith("avg") else " (relative)"
