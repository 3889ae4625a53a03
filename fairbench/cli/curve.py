"""``fairbench curve``: how much of each class is broken at every epsilon, models side by side."""

import math
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import options, shared_options
from fairbench.cli.running import Computing, side_by_side
from fairbench.errors import ProtocolError

if TYPE_CHECKING:
    from fairbench.outcomes import Outcomes

_ATTACK = "least-epsilon"
_FINEST, _MOST_LEVELS = 10**6, 1000


def curve(
    model: shared_options.Models,
    epsilons: Annotated[
        str | None,
        typer.Option(help="Radii: FIRST:LAST:STEP, or a list. Default: 0:32/255:2/255, or 0:20:2 for features."),
    ] = None,
    arch: shared_options.ArchOfCheckpoints = None,
    dataset: shared_options.OneDataset = None,
    data_dir: shared_options.DataDir = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="quick (1,000 images), standard (whole test split), sooksatra2022 (features). Default: quick or, for "
            "features, sooksatra2022."
        ),
    ] = None,
    seed: shared_options.Seed = None,
    batch_size: shared_options.BatchSize = None,
    device: shared_options.Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for curves.png and three .csv files; such files in it are replaced.")
    ] = None,
    markdown: shared_options.Markdown = False,
) -> None:
    """Show the share of each class that is broken over epsilon, with CRU_s at each."""
    from fairbench.evaluation.protocol import Protocol
    from fairbench.files import user_path
    from fairbench.metrics.curves import success_curves
    from fairbench.metrics.least_epsilon import least_epsilons
    from fairbench.reports import curves

    protocol = options.protocol(protocol, model[0], dataset)
    pixels = Protocol.named(protocol).inputs == "images"
    if epsilons is None:
        epsilons = "0:32/255:2/255" if pixels else "0:20:2"
    radii = options.epsilons(epsilons)
    largest, resolution = radii[-1], grid_step(radii, epsilons)
    changes: dict[str, Any] = {"attacks": (_ATTACK,), "max_epsilon": largest, "resolution": resolution, "seed": seed}
    chosen = Protocol.named(protocol, **changes)
    out = None if out is None else user_path(out)

    def measure(outcomes: "Outcomes") -> tuple[Any, Any]:
        return success_curves(outcomes, _ATTACK, radii), least_epsilons(outcomes, _ATTACK)

    measured = side_by_side(
        model,
        lambda _: chosen,
        measure,
        loading={"dataset": dataset, "data_dir": data_dir, "arch": arch},
        computing=Computing(batch_size, device),
        out=out,
    )
    found = {name: of_model for name, (of_model, _) in measured.items()}
    means = {name: its for name, (_, its) in measured.items()}
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
