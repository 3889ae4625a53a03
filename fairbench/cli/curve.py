"""``fairbench curve``: how much of each class is broken at every epsilon, models side by side."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from fairbench.cli import options
from fairbench.cli.running import load_both, run_shown, say_warnings
from fairbench.errors import ProtocolError

_ATTACK = "least-epsilon"
_FINEST, _MOST_LEVELS = 10**6, 1000


def curve(
    model: Annotated[list[str], typer.Option(help="A model; give it again for another beside it.")],
    epsilons: Annotated[
        str | None,
        typer.Option(help="Radii: FIRST:LAST:STEP, or a list. Default: 0:32/255:2/255, or 0:20:2 for features."),
    ] = None,
    arch: Annotated[str | None, typer.Option(help="Architecture of checkpoints.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset by name, .npz or folder; or the models' own.")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA.")] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="quick (1,000 images), standard (whole test split), sooksatra2022 (features). Default: quick or, for "
            "features, sooksatra2022."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random starts. Default: 0.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images attacked at once. Default: 128.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for curves.png and three .csv files; such files in it are replaced.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
) -> None:
    """Show the share of each class that is broken over epsilon, with CRU_s at each."""
    from fairbench.evaluation.protocol import Protocol
    from fairbench.files import user_path
    from fairbench.metrics.curves import success_curves
    from fairbench.metrics.least_epsilon import least_epsilons
    from fairbench.reports import curves, folder

    protocol = options.protocol(protocol, model[0], dataset)
    pixels = Protocol.named(protocol).inputs == "images"
    if epsilons is None:
        epsilons = "0:32/255:2/255" if pixels else "0:20:2"
    radii = options.epsilons(epsilons)
    largest, resolution = radii[-1], grid_step(radii, epsilons)
    changes: dict[str, Any] = {"attacks": (_ATTACK,), "max_epsilon": largest, "resolution": resolution, "seed": seed}
    chosen = Protocol.named(protocol, **changes)
    out = None if out is None else user_path(out)
    found: dict[str, Any] = {}
    means = {}
    with folder.claimed(out):
        for name in dict.fromkeys(model):
            loading: dict[str, Any] = {"resize": None, "drop_classes": None, "arch": arch}
            loaded, data = load_both(name, dataset, data_dir, chosen, loading)
            outcomes, _ = run_shown(loaded, data, chosen, batch_size, device)
            say_warnings(outcomes)
            options.one_of_a_name(loaded.name, found)
            found[loaded.name] = success_curves(outcomes, _ATTACK, radii)
            means[loaded.name] = least_epsilons(outcomes, _ATTACK)
    options.same_classes(tuple(dict.fromkeys(of_model.classes["class"])) for of_model in found.values())
    print(curves.as_table(found, "github" if markdown else "simple"))
    if out is not None:
        written = curves.write_csv(found, means, out)
        curves.draw(found, means, out / "curves.png", pixels=pixels)
        options.say_written([*written, out / "curves.png"])


def grid_step(radii: tuple[float, ...], text: str) -> float:
    """Return the largest step of which all radii are multiples."""
    if radii[-1] <= 0:
        raise ProtocolError(f"--epsilons {text}: give one radius above 0 at least.")
    exact = [Fraction(radius).limit_denominator(_FINEST) for radius in radii]
    if not exact[-1]:
        raise ProtocolError(
            f"--epsilons {text}: {radii[-1]:g} is below what the search tells from 0; give larger ones."
        )
    below = math.lcm(*(radius.denominator for radius in exact))
    step = Fraction(math.gcd(*(int(radius * below) for radius in exact)), below)
    if exact[-1] / step > _MOST_LEVELS:
        raise ProtocolError(
            f"--epsilons {text}: the search takes radii on one even grid from 0, and that of these has more than "
            f"{_MOST_LEVELS:,} steps; give rounder ones."
        )
    return float(step)
