"""The options of ``fairbench evaluate`` that are its own: what each is called, takes and does."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How the table is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"


class Precision(StrEnum):
    """What attacks compute gradients in."""

    FP32 = "fp32"
    BF16 = "bf16"


class Score(StrEnum):
    """Which iterate of PGD counts."""

    LAST = "last"
    ANY = "any"


Model = Annotated[str | None, typer.Option(help="A model of the zoo, a checkpoint file, or robustbench:ID.")]
ManyModels = Annotated[
    list[str] | None,
    typer.Option(help="Many models: zoo:DATASET/GLOB, or what --model takes, with wildcards; give it again."),
]
Arch = Annotated[
    str | None,
    typer.Option(
        help="Architecture of a checkpoint: a built-in one, torchvision:NAME, or module:function. Default: the "
        "built-in one that fits.",
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(help="A dataset by name, a .npz file, or a folder per class. Default: the model's own."),
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        help="quick (1,000 images, PGD-20), standard (whole test split), leaderboard (and AutoAttack), "
        "sooksatra2022 (features). Default: quick, or sooksatra2022 for features.",
    ),
]
Attacks = Annotated[
    str | None,
    typer.Option(help="Instead of the protocol's: such as pgd20,cw20,autoattack, or one's own, package.module:name."),
]
Epsilon = Annotated[
    str | None, typer.Option(help="L-inf radius in [0, 1] pixels, or in the features' unit. Default: 8/255 or 10.")
]
MaxEpsilon = Annotated[
    str | None, typer.Option(help="Largest radius that least-epsilon tries. Default: 32/255, of features 40.")
]
Resolution = Annotated[
    str | None, typer.Option(help="Distance between the radii that least-epsilon tries. Default: 1/255, of features 1.")
]
Step = Annotated[
    str | None,
    typer.Option(
        help="PGD's step. Default: min(2/255, epsilon/4), from 16/255 on epsilon/8; of least-steps: "
        "min(0.4/255, epsilon/20). Of features epsilon/4 and epsilon/20."
    ),
]
Steps = Annotated[int | None, typer.Option(help="PGD's number of steps. Default: 20.")]
Restarts = Annotated[int | None, typer.Option(help="PGD's random starts. Default: 1.")]
CountedIterate = Annotated[Score | None, typer.Option(help="PGD iterate that counts. Default: last.")]
Protect = Annotated[
    str | None,
    typer.Option(help="Columns of a table that stay as they are, such as sex,race; categorical for every one-hot."),
]
InRange = Annotated[bool, typer.Option("--in-range", help="Keep each feature in its range in the training split.")]
TransferFrom = Annotated[
    str | None,
    typer.Option(
        help="A model that the attacks are made for, instead of --model; a checkpoint takes pixels as they are."
    ),
]
Groups = Annotated[list[str] | None, typer.Option(help="Also the errors by an attribute of the data; give it again.")]
Union = Annotated[
    bool, typer.Option("--union", help="Also the errors under all the attacks together: broken by any of them.")
]
Output = Annotated[str | None, typer.Option(help="Which output holds the logits (a tuple's index, a dict's key).")]
Resize = Annotated[str | None, typer.Option(help="Image size, such as 32 or 24x32. Default: what the model demands.")]
DropClasses = Annotated[
    str | None, typer.Option(help="Classes to leave out, such as 2,3,4,5. Default: those the run left out.")
]
ModelDir = Annotated[str | None, typer.Option(help="RobustBench's download folder. Default: ./models.")]
BatchSize = Annotated[int | None, typer.Option(help="Images attacked at once; bounds memory. Default: 128.")]
OfGradients = Annotated[
    Precision, typer.Option(help="What attacks compute gradients in; every verdict is the float32 model's.")
]
EngineName = Annotated[str, typer.Option(help="Who computes the batches: local, or ray for a cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster: HOST:PORT, or local. Default: $RAY_ADDRESS, the one here, or local."),
]
CpusPerTask = Annotated[int | None, typer.Option(help="Cores of a Ray task. Default: 1.")]
GpusPerTask = Annotated[float | None, typer.Option(help="GPUs of a Ray task, such as 0.25. Default: 0.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for outcomes.parquet, manifest.json, summary.json and classes.png; of many models one each."
    ),
]
Printed = Annotated[Format, typer.Option(help="How the table is printed.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again what a finished run has.")]
