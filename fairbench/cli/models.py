"""``fairbench models``: what the zoo has."""

from pathlib import Path
from typing import Annotated

import typer

models_app = typer.Typer(help="List the models of the zoo, or show one.", rich_markup_mode=None)


@models_app.callback(invoke_without_command=True)
def models(context: typer.Context) -> None:
    """List the models of the zoo."""
    if context.invoked_subcommand is not None:
        return
    from rich.table import Table

    from fairbench.cli.terminal import wide_enough
    from fairbench.models.cards import card_names, load_card

    table = Table("name", "architecture", "dataset", "method", "trained against", box=None, pad_edge=False)
    for name in card_names():
        card = load_card(name)
        table.add_row(
            name,
            card.architecture,
            card.dataset,
            card.method,
            threat_text(card.threat_model.norm, card.threat_model.epsilon),
        )
    wide_enough(table).print(table)


@models_app.command()
def show(name: Annotated[str, typer.Argument(help="Name of a model.")]) -> None:
    """Show a model's card."""
    from fairbench.models.cards import load_card
    from fairbench.plain_yaml import dump_yaml

    card = load_card(name).model_dump(mode="json", exclude_none=True)
    print(dump_yaml(card), end="")


@models_app.command()
def results(
    dataset: Annotated[
        str | None, typer.Option(help="Dataset the models were evaluated on. Default: fashion_mnist.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="PNG to draw the class errors of --model in, side by side.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="With --figure: a model to draw; give it again.")] = None,
) -> None:
    """Print what the models of the zoo did, least worst-class robust error first, or draw some of them."""
    from fairbench.errors import OutcomesError
    from fairbench.files import user_path
    from fairbench.leaderboard.results import read_manifests, results_folder
    from fairbench.registry import suggest
    from fairbench.reports.zoo import draw_models, zoo_table

    if (figure is None) != (model is None):
        raise OutcomesError("--figure PNG and --model NAME go together: what to draw, and where.")
    if figure is not None and model is not None:
        if dataset is not None:
            raise OutcomesError("--dataset is for the table: the models of --figure say what they are of.")
        draw_models(model, user_path(figure))
        print(f"{figure}: {', '.join(model)}")
        return
    dataset = dataset or "fashion_mnist"
    table = zoo_table(dataset)
    if not table:
        near = suggest(dataset, [manifest["dataset"]["name"] for manifest in read_manifests()])
        raise OutcomesError(f"no kept result on {dataset} in {results_folder()}.{near}")
    print(table)


def threat_text(norm: str, epsilon: float) -> str:
    """Return "Linf 8/255", or "nothing" for natural training."""
    from fairbench.reports.values import epsilon_text

    return "nothing" if norm == "none" else f"{norm} {epsilon_text(epsilon)}"
