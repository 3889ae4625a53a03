"""The commands, under the names users type."""

from typing import Annotated

import typer

import fairbench
from fairbench.cli.bench import bench
from fairbench.cli.compare import compare
from fairbench.cli.curve import curve
from fairbench.cli.datasets import datasets
from fairbench.cli.doctor import doctor
from fairbench.cli.eou import eou
from fairbench.cli.evaluate import evaluate
from fairbench.cli.figure import figure
from fairbench.cli.leaderboard import leaderboard_app
from fairbench.cli.luf import luf
from fairbench.cli.methods import methods_app
from fairbench.cli.models import models_app
from fairbench.cli.paper import paper
from fairbench.cli.reproduce import reproduce
from fairbench.cli.submit import submit
from fairbench.cli.table import table
from fairbench.cli.tendency import tendency
from fairbench.cli.train import recipes_app, train

app = typer.Typer(
    name="fairbench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Which class does your model fail to protect, and by how much?",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fairbench {fairbench.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Which class does your model fail to protect, and by how much?"""


app.command()(evaluate)
app.command()(curve)
app.command()(tendency)
app.command()(eou)
app.command()(compare)
app.add_typer(models_app, name="models")
app.command()(train)
app.command()(reproduce)
app.add_typer(methods_app, name="methods")
app.add_typer(recipes_app, name="recipes")
app.command()(luf)
app.command()(submit)
app.add_typer(leaderboard_app, name="leaderboard")
app.command()(paper)
app.command()(table)
app.command()(figure)
app.command()(bench)
app.command()(datasets)
app.command()(doctor)
