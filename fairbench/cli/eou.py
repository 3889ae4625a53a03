"""``fairbench eou``: how much a model's confidence depends on a group, models side by side."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairbench.cli import options, shared_options
from fairbench.cli.running import Computing, side_by_side
from fairbench.errors import ProtocolError

if TYPE_CHECKING:
    from fairbench.evaluation import Protocol
    from fairbench.outcomes import Outcomes


def eou(
    model: shared_options.Models,
    attribute: Annotated[str, typer.Option(help="Attribute of the data, such as sex or race.")],
    attack: Annotated[
        str, typer.Option(help="Whose confidences: clean, or those under an attack such as pgd20.")
    ] = "clean",
    epsilon: Annotated[str | None, typer.Option(help="L-inf radius of the attack. Default: the protocol's.")] = None,
    transfer_from: Annotated[str | None, typer.Option(help="A model that the attack is made for instead.")] = None,
    arch: shared_options.ArchOfCheckpoints = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset by name; or the models' own.")] = None,
    data_dir: shared_options.DataDir = None,
    protocol: Annotated[str | None, typer.Option(help="Default: sooksatra2022 for features, else quick.")] = None,
    seed: shared_options.Seed = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples attacked at once. Default: 128.")] = None,
    device: shared_options.Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for eou.csv and eou.png; such files in it are replaced.")
    ] = None,
    markdown: shared_options.Markdown = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Show mean confidences by true label and group, and equalized-odds unfairness (EOU)."""
    from fairbench.files import user_path
    from fairbench.metrics.eou import CLEAN
    from fairbench.metrics.eou import eou as measure
    from fairbench.reports import eou as report

    if attack == CLEAN and (epsilon is not None or transfer_from is not None):
        raise ProtocolError("--epsilon and --transfer-from go with --attack, such as --attack pgd20.")
    if attack.startswith("least-epsilon"):
        raise ProtocolError(f"--attack {attack}: it has a radius for each example; take pgd20.")
    out = None if out is None else user_path(out)
    attacks = None if attack == CLEAN else (attack,)
    measured = side_by_side(
        model,
        _protocols(protocol, dataset, attacks, epsilon, seed),
        lambda outcomes: (measure(outcomes, attribute, attack), outcomes),
        loading={"dataset": dataset, "data_dir": data_dir, "arch": arch, "transfer_from": transfer_from},
        computing=Computing(batch_size, device),
        out=out,
        attributes=[attribute],
    )
    found = {name: one for name, (one, _) in measured.items()}
    minus_first = _differences({name: outcomes for name, (_, outcomes) in measured.items()}, attribute, attack)
    _print(found, minus_first, "github" if markdown else "simple", as_json=as_json)
    for name, one in found.items():
        if line := report.left_out_line(one):
            print(f"note: {name}: {line}", file=sys.stderr)
    if out is not None:
        report.write_csv(found, minus_first, out / "eou.csv")
        report.draw(found, out / "eou.png")
        options.say_written([out / "eou.csv", out / "eou.png"])


def _protocols(
    name: str | None, dataset: str | None, attacks: tuple[str, ...] | None, epsilon: str | None, seed: int | None
) -> "Callable[[str], Protocol]":
    """Return what gives a model's protocol: the one named, or its data's, with what the options change."""
    from fairbench.evaluation.protocol import Protocol, parse_fraction

    changes: dict[str, Any] = {"seed": seed, "attacks": attacks}
    if epsilon is not None:
        changes["epsilon"] = parse_fraction(epsilon, "--epsilon")
    return lambda model: Protocol.named(options.protocol(name, model, dataset), **changes)


def _differences(tables: "dict[str, Outcomes]", attribute: str, attack: str) -> dict[str, Any]:
    """Return, of each model but the first that was evaluated on its examples, how much more unfair it is."""
    from fairbench.metrics.eou import eou_difference, of_same_examples

    first, *others = tables
    return {
        name: eou_difference(tables[first], tables[name], attribute, attack)
        for name in others
        if of_same_examples(tables[first], tables[name])
    }


def _print(found: dict[str, Any], minus_first: dict[str, Any], style: str, *, as_json: bool) -> None:
    from fairbench.reports import eou as report

    first = next(iter(found))
    if as_json:
        document = {name: one.to_dict() for name, one in found.items()}
        for name, rows in minus_first.items():
            document[name]["minus_first"] = {"first": first, "labels": rows.to_dict("records")}
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    print(report.as_table(found, style))
    if minus_first:
        print(f"\n{report.differences(minus_first, first, style)}")
