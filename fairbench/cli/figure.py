"""``fairbench figure``: a paper's figure, redrawn from kept results."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairbench.cli.paper_keys import entry
from fairbench.errors import FairbenchError
from fairbench.registry import Registry

if TYPE_CHECKING:
    from fairbench.reports.paper_figure import PaperFigure

FIGURES = Registry(
    "figure",
    FairbenchError,
    {
        "sun2023-2": "fairbench.reports.sooksatra2022_figures:SUN2023_FIGURE_2",
        "sooksatra2022-3": "fairbench.reports.sooksatra2022_figures:FIGURE_3",
        "sun2023-4": "fairbench.reports.sun2023:FIGURE_4",
        **{f"refrl2022-{number}": f"fairbench.reports.refrl2022_figures:FIGURE_{number}" for number in (1, 2, 3)},
    },
    listing="fairbench figure",
)


def figure(
    name: Annotated[str | None, typer.Argument(help="Key of a figure. Default: list them.")] = None,
    out: Annotated[Path | None, typer.Option(help="PNG file to write. Default: KEY.png, here.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Whose models are drawn: cifar10, fashion_mnist. Default: the paper's.")
    ] = None,
) -> None:
    """Draw a paper's figure from the kept results, or list the figures."""
    if name is None:
        if out is not None or dataset is not None:
            raise FairbenchError("--out and --dataset are of one figure: name it; `fairbench figure` lists them.")
        for key in FIGURES:
            print(f"{key}  {FIGURES[key].title}")
        return
    _draw(entry(FIGURES, name), out or Path(f"{name}.png"), dataset)


def _draw(chosen: "PaperFigure", out: Path, dataset: str | None) -> None:
    from fairbench.files import user_path
    from fairbench.leaderboard.results import read_result, result_names
    from fairbench.leaderboard.zoo_card import trained_note
    from fairbench.reports.drawing import require_png
    from fairbench.reports.published import same_dataset

    path = user_path(out)
    require_png(path)
    of = None if dataset is None else same_dataset(dataset, list(chosen.results), f"{chosen.key} (figure)")
    needed = {name for of_dataset in chosen.results.values() for name in of_dataset.values()}
    kept = needed & set(result_names())
    chosen.draw({name: read_result(name) for name in sorted(kept)}, path, of)
    print(path)
    if trained := trained_note(name.partition(".")[0] for name in chosen.needed(of)):
        print(f"note: {trained}", file=sys.stderr)
