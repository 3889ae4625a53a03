"""``fairbench train``, ``recipes``: make a model by a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from fairbench.cli import shared_options
from fairbench.cli.asked_recipe import chosen_recipe, settings_of
from fairbench.cli.options import classes
from fairbench.cli.progress import training_bar
from fairbench.errors import RecipeError
from fairbench.registry import is_own_code


def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; a run of the same recipe in it goes on.")],
    recipe: Annotated[str | None, typer.Option(help="A recipe by name, or a YAML file.")] = None,
    method: Annotated[str | None, typer.Option(help="Instead of a recipe: a method, or package.module:Class.")] = None,
    variant: Annotated[str | None, typer.Option(help="A named variant of the method.")] = None,
    arch: Annotated[str | None, typer.Option(help="Architecture; the recipe's, if there is one.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset by name, .npz or folder; or the recipe's.")] = None,
    data_dir: shared_options.DataDir = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE of the method or the recipe (schedule.epochs=5).")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Model to start from: of the zoo, or a run's folder.")
    ] = None,
    drop_classes: Annotated[str | None, typer.Option(help="Classes to leave out, such as 2,3,4,5.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    time_budget: Annotated[str | None, typer.Option(help="Such as 12m or 90s: the schedule follows the clock.")] = None,
    precision: Annotated[str | None, typer.Option(help="32 or bf16.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(help="Processes, or GPUs.")] = 1,
    nodes: Annotated[int, typer.Option(help="Machines, under torchrun.")] = 1,
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the network with torch.compile.")] = False,
    tensorboard: Annotated[bool, typer.Option(help="Log to OUT/tensorboard too (needs the package).")] = False,
) -> None:
    """Train a model by a recipe; the folder it leaves is a model for evaluate."""
    chosen = chosen_recipe(recipe, method, arch, dataset)
    settings = settings_of(set_ or [])
    own = {
        "variant": variant,
        "start": start,
        "seed": seed,
        "precision": precision,
        "dataset": dataset,
        "architecture": arch,
    }
    settings |= {key: value for key, value in own.items() if value is not None}
    if (dropped := classes(drop_classes)) is not None:
        settings["drop_classes"] = list(dropped)
    chosen = chosen.changed(settings)
    if recipe is not None:
        chosen = chosen.relabelled(settings)
    from fairbench.training import train as run
    from fairbench.training.hardware import Hardware

    hardware = Hardware(device, devices, nodes, compile_)
    with training_bar(f"{chosen.name} ({chosen.method})") as report:
        trained = run(
            chosen,
            out,
            data_dir=data_dir,
            hardware=hardware,
            time_budget=seconds(time_budget),
            report=report,
            tensorboard=tensorboard,
        )
    if trained.card is None:  # another process writes the files, and speaks
        return
    from fairbench.models.cards import card_names

    folder = f"./{out}" if str(out) in card_names() else str(out)  # a bare name of the zoo is the zoo's
    named = f" --arch {chosen.architecture}" if is_own_code(chosen.architecture) else ""  # a card runs no code
    print(f"{folder} is a model now: fairbench evaluate --model {folder}{named}")


def seconds(text: str | None) -> float | None:
    """Read "90s", "12m", "1.5h" or plain seconds; None stays None.

    Raises
    ------
    RecipeError
        It is none of these, or not above 0.
    """
    if text is None:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise RecipeError(f"--time-budget {text}: give seconds, or such as 90s, 12m or 1.5h.")
    return value


recipes_app = typer.Typer(help="List the recipes, or show one.", rich_markup_mode=None)


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the shipped recipes."""
    if context.invoked_subcommand is not None:
        return
    from rich.table import Table

    from fairbench.cli.terminal import wide_enough
    from fairbench.training.recipe import load_recipe, recipe_names

    table = Table("name", "method", "architecture", "dataset", "epochs", "from", box=None, pad_edge=False)
    for name in recipe_names():
        recipe = load_recipe(name)
        variant = f"{recipe.method} ({recipe.variant})" if recipe.variant else recipe.method
        table.add_row(
            name, variant, recipe.architecture, recipe.dataset, str(recipe.schedule.epochs), recipe.start or ""
        )
    wide_enough(table).print(table)


@recipes_app.command()
def show(name: Annotated[str, typer.Argument(help="Name of a recipe.")]) -> None:
    """Show a recipe, defaults filled in."""
    from fairbench.plain_yaml import dump_yaml
    from fairbench.training.recipe import load_recipe

    print(dump_yaml(load_recipe(name).model_dump(mode="json")), end="")
