"""``fairbench compare``: two models on the same examples."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fairbench.cli import options, shared_options


def compare(
    a: Annotated[str, typer.Argument(help="A model with kept results, a run's folder, or an outcomes.parquet.")],
    b: Annotated[str, typer.Argument(help="Another, on the same examples.")],
    attack: Annotated[
        str | None,
        typer.Option(
            help="An attack that both were measured with: pgd20, autoattack, least-epsilon. Default: AutoAttack, where "
            "as many examples have it."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.json, .md and .png; such files in it are replaced.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: shared_options.AsJson = False,
) -> None:
    """Compare two models class by class: differences with intervals, exact tests, and a figure."""
    from fairbench.datasets.named import NAMED
    from fairbench.files import make_folder, user_path
    from fairbench.leaderboard.misled import misled_line
    from fairbench.leaderboard.zoo_card import trained_note
    from fairbench.metrics.comparison import compare as measure
    from fairbench.metrics.misled import PGD
    from fairbench.reports import comparison

    first, second, chosen = comparison.find_both(a, b, attack)
    names = _names(a, b)
    found = measure(first, second, chosen, resized=NAMED)
    if out is not None:
        make_folder(user_path(out))  # what cannot be written is told before a page of numbers
    kept = [held for name, held in ((a, first), (b, second)) if not user_path(name).exists()]  # one's own have no card
    trained = trained_note(str(held.manifest["model"]["name"]) for held in kept)
    both = [misled_line(*one) for one in zip(names, (first, second), strict=True)] if chosen == PGD else []
    notes = [note for note in (trained, *both) if note]
    if as_json:
        print(json.dumps(comparison.to_dict(found, names, notes), indent=2, allow_nan=False))
    else:
        print("\n\n".join([comparison.as_table(found, names, "github" if markdown else "simple"), *notes]))
    if out is not None:
        options.say_written(comparison.keep(found, names, user_path(out), notes))


def _names(a: str, b: str) -> tuple[str, str]:
    """Return what two are called: the last part of a path, or as much more of it as tells one from the other."""
    parts = (_parts(a), _parts(b))
    for shown in range(1, max(map(len, parts)) + 1):
        first, second = ("/".join(own[-shown:]) for own in parts)
        if first != second and first and second:
            return first, second
    return a, b


def _parts(text: str) -> tuple[str, ...]:
    """Return the folders and the name of what is compared; a model's name is one part."""
    from fairbench.files import user_path
    from fairbench.outcomes.table import TABLE

    path = user_path(text)
    if not path.exists():
        return (text,)
    path = path.resolve()
    if path.name == TABLE:
        path = path.parent
    return (path.with_suffix("") if path.suffix == ".parquet" else path).parts[1:]
