"""``fairbench tendency``: what each class breaks into and how many steps that takes, models side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import options, shared_options
from fairbench.cli.running import Computing, side_by_side

if TYPE_CHECKING:
    from fairbench.outcomes import Outcomes

_ATTACKS = ("pgd10", "least-steps")


def tendency(
    model: shared_options.Models,
    arch: shared_options.ArchOfCheckpoints = None,
    dataset: shared_options.OneDataset = None,
    data_dir: shared_options.DataDir = None,
    protocol: Annotated[str, typer.Option(help="quick (1,000 images) or standard (whole test split).")] = "quick",
    epsilon: Annotated[str | None, typer.Option(help="L-inf radius in [0, 1] pixels. Default: 8/255.")] = None,
    max_steps: shared_options.MaxSteps = None,
    seed: shared_options.Seed = None,
    batch_size: shared_options.BatchSize = None,
    device: shared_options.Device = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for tendency.csv, confusion.csv, overall.csv and tendency.png, which are replaced."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
) -> None:
    """Show the confusion under PGD-10, its target classes, and the least steps to break each class."""
    from fairbench.evaluation.protocol import Protocol, parse_fraction
    from fairbench.files import user_path
    from fairbench.metrics import summarize
    from fairbench.metrics.tendency import tendency
    from fairbench.reports import tendency as report
    from fairbench.reports.tables import headline

    changes: dict[str, Any] = {"attacks": _ATTACKS, "max_steps": max_steps, "seed": seed}
    if epsilon is not None:
        changes["epsilon"] = parse_fraction(epsilon, "--epsilon")
    chosen = Protocol.named(protocol, **changes)
    out = None if out is None else user_path(out)

    def measure(outcomes: "Outcomes") -> tuple[Any, str]:
        return tendency(outcomes, *_ATTACKS), headline(summarize(outcomes))

    measured = side_by_side(
        model,
        lambda _: chosen,
        measure,
        loading={"dataset": dataset, "data_dir": data_dir, "arch": arch},
        computing=Computing(batch_size, device),
        out=out,
    )
    found = {name: of_model for name, (of_model, _) in measured.items()}
    headlines = {name: line for name, (_, line) in measured.items()}
    options.same_classes(tuple(of_model.classes["class"]) for of_model in found.values())
    print(report.as_text(found, "github" if markdown else "simple", headlines))
    if out is not None:
        written = report.write_csv(found, out)
        report.draw(found, out / "tendency.png")
        options.say_written([*written, out / "tendency.png"])
