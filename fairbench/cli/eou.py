"""``fairbench eou``: how much a model's confidence depends on a group, models side by side."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fairbench.cli import options
from fairbench.cli.running import check_attributes, load_all, run_shown, say_warnings
from fairbench.errors import ProtocolError


def eou(
    model: Annotated[list[str], typer.Option(help="A model; give it again for another beside it.")],
    attribute: Annotated[str, typer.Option(help="Attribute of the data, such as sex or race.")],
    attack: Annotated[
        str, typer.Option(help="Whose confidences: clean, or those under an attack such as pgd20.")
    ] = "clean",
    epsilon: Annotated[str | None, typer.Option(help="L-inf radius of the attack. Default: the protocol's.")] = None,
    transfer_from: Annotated[str | None, typer.Option(help="A model that the attack is made for instead.")] = None,
    arch: Annotated[str | None, typer.Option(help="Architecture of checkpoints.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset by name; or the models' own.")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the data; else $FAIRBENCH_DATA.")] = None,
    protocol: Annotated[str | None, typer.Option(help="Default: sooksatra2022 for features, else quick.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random starts. Default: 0.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples attacked at once. Default: 128.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1. Default: the GPU if there is one.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for eou.csv and eou.png; such files in it are replaced.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Show mean confidences by true label and group, and equalized-odds unfairness (EOU)."""
    from fairbench.evaluation.protocol import Protocol, parse_fraction
    from fairbench.files import user_path
    from fairbench.metrics.eou import CLEAN, eou_difference, of_same_examples
    from fairbench.metrics.eou import eou as measure
    from fairbench.outcomes import Outcomes
    from fairbench.reports import eou as report
    from fairbench.reports import folder

    if attack == CLEAN and (epsilon is not None or transfer_from is not None):
        raise ProtocolError("--epsilon and --transfer-from go with --attack, such as --attack pgd20.")
    if attack.startswith("least-epsilon"):
        raise ProtocolError(f"--attack {attack}: it has a radius for each example; take pgd20.")
    changes: dict[str, Any] = {"seed": seed, "attacks": None if attack == CLEAN else (attack,)}
    if epsilon is not None:
        changes["epsilon"] = parse_fraction(epsilon, "--epsilon")
    out = None if out is None else user_path(out)
    found: dict[str, Any] = {}
    tables: dict[str, Outcomes] = {}
    with folder.claimed(out):
        for name in dict.fromkeys(model):
            chosen = Protocol.named(options.protocol(protocol, name, dataset), **changes)
            loading: dict[str, Any] = {"resize": None, "drop_classes": None, "arch": arch}
            loaded, data, source = load_all(name, dataset, data_dir, chosen, loading, transfer_from)
            check_attributes([attribute], data)
            outcomes, _ = run_shown(loaded, data, chosen, batch_size, device, source=source)
            say_warnings(outcomes)
            options.one_of_a_name(loaded.name, found)
            found[loaded.name], tables[loaded.name] = measure(outcomes, attribute, attack), outcomes
    first, *others = tables
    minus_first = {
        name: eou_difference(tables[first], tables[name], attribute, attack)
        for name in others
        if of_same_examples(tables[first], tables[name])
    }
    if as_json:
        document = {name: one.to_dict() for name, one in found.items()}
        for name, rows in minus_first.items():
            document[name]["minus_first"] = {"first": first, "labels": rows.to_dict("records")}
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        print(report.as_table(found, "github" if markdown else "simple"))
        if minus_first:
            print(f"\n{report.differences(minus_first, first, 'github' if markdown else 'simple')}")
    for name, one in found.items():
        if line := report.left_out_line(one):
            print(f"note: {name}: {line}", file=sys.stderr)
    if out is not None:
        report.write_csv(found, minus_first, out / "eou.csv")
        report.draw(found, out / "eou.png")
        options.say_written([out / "eou.csv", out / "eou.png"])
