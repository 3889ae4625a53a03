"""Options that several commands have, declared once: the same name means the same, and its help says so.

A command whose option differs in its help declares its own.
"""

from typing import Annotated

import typer

Models = Annotated[list[str], typer.Option(help="A model; give it again for another beside it.")]
ArchOfCheckpoints = Annotated[str | None, typer.Option(help="Architecture of checkpoints.")]
OneDataset = Annotated[str | None, typer.Option(help="Dataset by name, .npz or folder; or the models' own.")]
DataDir = Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA.")]
DataDirOrCache = Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA, then a cache.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random starts. Default: 0.")]
MaxSteps = Annotated[int | None, typer.Option(help="Most steps that least-steps takes. Default: 1000.")]
BatchSize = Annotated[int | None, typer.Option(help="Images attacked at once. Default: 128.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")]
Mean = Annotated[str | None, typer.Option(help="Normalisation to put inside the model: a mean per channel.")]
Std = Annotated[str | None, typer.Option(help="And a standard deviation per channel.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
AsJsonAlone = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
