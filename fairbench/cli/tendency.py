"""``fairbench tendency``: what each class breaks into and how many steps that takes, models side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairbench.cli import options
from fairbench.cli.running import load_both, run_shown, say_warnings

_ATTACKS = ("pgd10", "least-steps")


def tendency(
    model: Annotated[list[str], typer.Option(help="A model; give it again for another beside it.")],
    arch: Annotated[str | None, typer.Option(help="Architecture of checkpoints.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset by name, .npz or folder; or the models' own.")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA.")] = None,
    protocol: Annotated[str, typer.Option(help="quick (1,000 images) or standard (whole test split).")] = "quick",
    epsilon: Annotated[str | None, typer.Option(help="L-inf radius in [0, 1] pixels. Default: 8/255.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Most steps that least-steps takes. Default: 1000.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random starts. Default: 0.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images attacked at once. Default: 128.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = None,
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
    from fairbench.reports import folder
    from fairbench.reports import tendency as report
    from fairbench.reports.tables import headline

    changes: dict[str, Any] = {"attacks": _ATTACKS, "max_steps": max_steps, "seed": seed}
    if epsilon is not None:
        changes["epsilon"] = parse_fraction(epsilon, "--epsilon")
    chosen = Protocol.named(protocol, **changes)
    out = None if out is None else user_path(out)
    found: dict[str, Any] = {}
    headlines = {}
    with folder.claimed(out):
        for name in dict.fromkeys(model):
            loading: dict[str, Any] = {"resize": None, "drop_classes": None, "arch": arch}
            loaded, data = load_both(name, dataset, data_dir, chosen, loading)
            outcomes, _ = run_shown(loaded, data, chosen, batch_size, device)
            say_warnings(outcomes)
            options.one_of_a_name(loaded.name, found)
            found[loaded.name] = tendency(outcomes, *_ATTACKS)
            headlines[loaded.name] = headline(summarize(outcomes))
    options.same_classes(tuple(of_model.classes["class"]) for of_model in found.values())
    print(report.as_text(found, "github" if markdown else "simple", headlines))
    if out is not None:
        written = report.write_csv(found, out)
        report.draw(found, out / "tendency.png")
        options.say_written([*written, out / "tendency.png"])
