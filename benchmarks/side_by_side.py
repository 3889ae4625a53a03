"""Everything this package promises of speed, side by side: one command, one machine, one run.

    python benchmarks/side_by_side.py --json benchmarks/results/side_by_side.json

PGD-20 here (float32, bf16) against torchattacks, foolbox and ART; AutoAttack here (float32, bf16) against pyautoattack
called plainly; least epsilon by bisection against scanning; training against plain loops. Every contender has a process
of its own and they take turns, round after round; ratios are taken within a round. Every round also measures the
machine's peak. The file is written after each round, and the same command goes on where it stopped.

What is ours is measured as a user runs it, by ``evaluate``, which times its attacks; peers are called as their
documentation says.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import training_throughput as training
from attack_throughput import DATASET as PGD_DATASET
from attack_throughput import MODEL as PGD_MODEL
from attack_throughput import Task as PGDTask
from attack_throughput import flops_per_image_step, peer_round
from least_epsilon import FASTER, search
from peers import PEERS, Settings, environment, exit_with, positive, require_peers
from tabulate import tabulate
from torch import nn
from turns import Round, Turn, Worker, peak_round, quiet_turn

from fairbench import evaluate, load_dataset, load_model
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError
from fairbench.evaluation import Protocol
from fairbench.evaluation.speed import count_flops
from fairbench.files import make_folder, write_json
from fairbench.models.prepare import frozen
from fairbench.provenance import computes_in_bfloat16

FORMAT = 1
PRECISIONS = {"fairbench": "float32", "fairbench bf16": "bfloat16"}
"""Ours, and the peak that each is held against."""
PLAIN = "pyautoattack"
EPSILON = 8 / 255
TARGETS = {
    ("pgd20", "fairbench"): 1.5,
    ("pgd20", "fairbench bf16"): 2.6,
    ("autoattack", "fairbench"): 1.4,
    ("autoattack", "fairbench bf16"): 2.4,
    ("least-epsilon", "bisect"): FASTER,
    ("bat", "fairbench"): training.TARGETS["bat"],
    ("pgd_at", "fairbench"): training.TARGETS["pgd_at"],
}
"""At least so many times the fastest of the others in its group."""


@dataclass(frozen=True)
class Group:
    """What is compared: the contenders' preparations by name, ours first, and how to count what they do.

    Parameters
    ----------
    unit, amount
        What a rate counts ("image-steps"), and how many a round does.
    flops
        Of one unit, the same for all; None where a contender's reply says how many its round took.
    """

    name: str
    contenders: dict[str, Callable[[], Round]]
    unit: str
    amount: int
    flops: float | None
    about: dict[str, Any]

    @property
    def kind(self) -> str:
        """Return what its targets go by: "autoattack" of "autoattack bat_lenet5_fashion_mnist"."""
        return self.name.partition(" ")[0]

    @property
    def ours(self) -> list[str]:
        """Return those of this package that have a target."""
        return [name for name in self.contenders if (self.kind, name) in TARGETS]


def sample(model: str, images: int) -> Dataset:
    """Return images spread over the classes of the sample a model is evaluated on, at the size it takes."""
    loaded = load_model(model)
    data = load_dataset(str(loaded.dataset), "sample")
    return data.subset(np.linspace(0, len(data) - 1, min(images, len(data))).astype(int))


def ours_round(model: str, data: Dataset, protocol: Protocol, precision: str) -> Round:
    """Return an evaluation of one batch; what counts is the time that it says its attack took."""
    loaded = load_model(model)
    attack = protocol.attacks[0]
    options = {} if precision == "float32" else {"precision": "bf16"}

    def run() -> Any:
        with tempfile.TemporaryDirectory() as runs:
            return evaluate(loaded, data, protocol, batch_size=len(data), runs=runs, **options)

    def value(found: Any) -> dict[str, Any]:
        wrong = (found.frame[f"{attack}_pred"] != found.frame["label"]).to_numpy(dtype=bool)
        return {"seconds": found.manifest["seconds"][attack], "broken": wrong.tolist()}

    return run, value


def pgd_peer_round(name: str, task: PGDTask) -> Round:
    """Return a peer's PGD, as attack_throughput.py has it."""
    torch.manual_seed(0)
    run, robust_error = peer_round(name, task)
    return run, lambda found: {"robust_error": robust_error(found)}


def pyautoattack_round(model: str, data: Dataset, epsilon: float) -> Round:
    """Return AutoAttack as its authors say to call it, on the original model; its passes are counted in the warm-up."""
    from pyautoattack import AutoAttack

    loaded = load_model(model)
    fitted = data if loaded.input_size is None else data.resized(*loaded.input_size)
    x, y, _ = fitted.batch(slice(None))
    original = frozen(loaded.module)
    flops, counted = count_flops(original, x[:1]), Passes(original)
    bare, counting = (
        AutoAttack(model, norm="Linf", eps=epsilon, version="standard", device="cpu", seed=0)
        for model in (original, counted)
    )

    def run() -> Any:
        attack = bare if counted.forwards else counting  # the warm-up counts, what is timed does not
        return attack.run_standard_evaluation(x, y, batch_size=len(x))[0]

    def value(found: Any) -> dict[str, Any]:
        work = counted.forwards * flops.forward + counted.backwards * flops.backward
        with torch.no_grad():
            wrong = original(found).argmax(1) != y
        return {"broken": wrong.tolist(), "flops": work}

    return run, value


class Passes(nn.Module):
    """A model that counts the images of its forward and backward passes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.forwards = self.backwards = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Count and answer."""
        self.forwards += len(x)
        logits = self.module(x)
        if logits.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, gradient: torch.Tensor) -> None:
        self.backwards += len(gradient)


def least_epsilon_round(kind: str, model: str, data: Dataset) -> Round:
    """Return a search for least epsilons, as least_epsilon.py has it."""
    loaded = load_model(model)
    fitted = data if loaded.input_size is None else data.resized(*loaded.input_size)
    batch = fitted.batch(slice(None))
    step = count_flops(frozen(loaded.module), batch[0][:1]).step

    def value(found: dict[str, Any]) -> dict[str, Any]:
        flops = found["passes"] * len(batch[0]) * step
        return {"seconds": found["seconds"], "passes": found["passes"], "flops": flops}

    return partial(search, kind, loaded.module, batch, data.num_classes), value


def groups(options: argparse.Namespace) -> Iterator[Group]:
    """Give what is compared, in order."""
    ours = {name: kind for name, kind in PRECISIONS.items() if kind == "float32" or computes_in_bfloat16("cpu")}
    task = PGDTask(options.images, Settings(steps=options.steps))
    pgd = Protocol.named("quick", steps=options.steps)
    data = load_dataset(PGD_DATASET, "sample").subset(np.arange(options.images))
    yield Group(
        "pgd20",
        {name: partial(ours_round, PGD_MODEL, data, pgd, kind) for name, kind in ours.items()}
        | {name: partial(pgd_peer_round, name, task) for name in PEERS},
        "image-steps",
        options.images * options.steps,
        float(flops_per_image_step(task)),
        {"model": PGD_MODEL, "images": options.images, "steps": options.steps, "epsilon": EPSILON},
    )
    for model in options.autoattack_models:
        data = sample(model, options.autoattack_images)
        chosen = Protocol.named("quick", attacks=("autoattack",), epsilon=options.autoattack_epsilon / 255)
        yield Group(
            f"autoattack {model}",
            {name: partial(ours_round, model, data, chosen, kind) for name, kind in ours.items()}
            | {PLAIN: partial(pyautoattack_round, model, data, chosen.epsilon)},
            "images",
            len(data),
            None,
            {"model": model, "images": len(data), "epsilon": chosen.epsilon},
        )
    data = sample(options.least_epsilon_model, options.least_epsilon_images)
    yield Group(
        "least-epsilon",
        {kind: partial(least_epsilon_round, kind, options.least_epsilon_model, data) for kind in ("bisect", "scan")},
        "images",
        len(data),
        None,
        {"model": options.least_epsilon_model, "images": len(data)},
    )
    trained = training.Task(
        PGD_MODEL, options.data_dir, options.images, 1, torch.get_num_threads(), "authors_code", "input", 0
    )
    for method in training.TARGETS:
        yield Group(
            method,
            {
                side: partial(training.any_round, f"{method} {side}", trained)
                for side in (training.OURS, training.PLAIN)
            },
            "images",
            options.images,
            None,
            {"model": PGD_MODEL, "images": options.images, "variant": trained.variant},
        )


@contextmanager
def workers(group: Group, peak_seconds: float) -> Iterator[list[Worker]]:
    """Start a process for each contender and for the peak, and end them all at the end."""
    with ExitStack() as stack:
        started = []
        precisions = tuple(dict.fromkeys(["float32", *(PRECISIONS.get(name, "float32") for name in group.contenders)]))
        prepared = {**group.contenders, "peak": partial(peaks_round, peak_seconds, precisions)}
        for name, prepare in prepared.items():
            started.append(Worker(name, prepare, daemon=False))  # a loader has processes too
            stack.callback(started[-1].close)
        yield started


def peaks_round(seconds: float, precisions: tuple[str, ...]) -> Round:
    """Return the measurement of the peak, always by precision."""
    run, value = peak_round(seconds, precisions)
    return run, lambda found: value(found) if len(precisions) > 1 else {precisions[0]: value(found)}


def measure(group: Group, done: list[dict[str, Any]], options: argparse.Namespace, keep: Callable[[], None]) -> None:
    """Add rounds to those that are done until there are enough; ``keep`` is called after each."""
    if len(done) >= options.rounds:
        return
    with workers(group, options.peak_seconds) as started:
        for worker in started:
            first = worker.ask()  # warm-up
            print(f"  {worker.name}: warmed up in {first.seconds:.1f} s", flush=True)
        while len(done) < options.rounds:
            turns = {worker.name: quiet_turn(worker, options.quiet / 100) for worker in started}
            done.append({name: _kept(turn) for name, turn in turns.items()})
            times = ", ".join(f"{name} {done[-1][name]['seconds']:.2f} s" for name in group.contenders)
            print(f"  round {len(done)} of {options.rounds}: {times}", flush=True)
            keep()


def _kept(turn: Turn) -> dict[str, Any]:
    value = turn.reply.value
    return {"seconds": turn.reply.seconds, "others": turn.others, "repeated": turn.repeated, **value}


def conclude(group: Group, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return rates, shares of the peak, and ratios of ours to the others: medians and ranges over rounds."""
    kinds = {kind for found in rounds for kind in found["peak"] if kind in ("float32", "bfloat16")}
    peak = {kind: max(max(found["peak"][kind].values()) for found in rounds) for kind in sorted(kinds)}
    contenders = {name: _contender(group, name, rounds, peak) for name in group.contenders}
    others = [name for name in group.contenders if name not in group.ours]
    fastest = max(others, key=lambda name: contenders[name]["rate"])
    verdicts = {}
    for name in (mine for kind, mine in TARGETS if kind == group.kind):
        target = TARGETS[group.kind, name]
        if name not in contenders:
            verdicts[name] = {"target": target, "measured": False}
            continue
        ratio = contenders[fastest]["ours_to_it"][name]
        reached = ratio["median"] >= target
        verdicts[name] = {"target": target, "measured": True, "fastest": fastest, **ratio, "reached": reached}
    return {"peak_gflops": peak, "contenders": contenders, "verdicts": verdicts}


def _contender(group: Group, name: str, rounds: list[dict[str, Any]], peak: dict[str, float]) -> dict[str, Any]:
    seconds = median(found[name]["seconds"] for found in rounds)
    flops = _flops(group, name, rounds[0])
    gflops = flops / seconds / 1e9
    found = {
        "rate": group.amount / seconds,
        "gflops": gflops,
        "share_of_peak": gflops / peak[PRECISIONS.get(name, "float32")],
        "ours_to_it": {
            mine: _ratio([one[name]["seconds"] / one[mine]["seconds"] for one in rounds]) for mine in group.ours
        },
    }
    if "broken" in rounds[0][name] and PLAIN in rounds[0]:
        same = np.mean(np.equal(rounds[0][name]["broken"], rounds[0][PLAIN]["broken"]))
        found["same_verdicts"] = float(same)
    return found


def _flops(group: Group, name: str, found: dict[str, Any]) -> float:
    """Return the FLOPs of a contender's round: useful work, so where only the plain call counts, what that did."""
    if group.flops is not None:
        return group.flops * group.amount
    own = found[name]
    if "flops_per_image" in own:
        return float(own["flops_per_image"] * group.amount)
    return float(own.get("flops") or found[PLAIN]["flops"])


def _ratio(ratios: list[float]) -> dict[str, float]:
    return {"median": median(ratios), "min": min(ratios), "max": max(ratios)}


def render(group: Group, found: dict[str, Any], rounds: int) -> str:
    """Return a group's table and its verdicts."""
    ours = group.ours
    rows = [
        [
            name,
            f"{one['rate']:,.4g}",
            *(f"{r['median']:.2f} ({r['min']:.2f} to {r['max']:.2f})" for r in (one["ours_to_it"][m] for m in ours)),
            f"{one['gflops']:.0f}",
            f"{100 * one['share_of_peak']:.0f} %",
            f"{100 * one['same_verdicts']:.1f} %" if "same_verdicts" in one else "",
        ]
        for name, one in found["contenders"].items()
    ]
    head = ["", f"{group.unit}/s", *(f"{name} / it" for name in ours), "GFLOP/s", "of peak", "same verdicts"]
    peak = ", ".join(f"{kind} {rate:.0f} GFLOP/s" for kind, rate in found["peak_gflops"].items())
    about = ", ".join(f"{key} {value}" for key, value in group.about.items())
    lines = [f"{group.name}: {about}; {rounds} rounds, medians; peak {peak}", ""]
    lines += [tabulate(rows, head, tablefmt="github", disable_numparse=True), ""]
    return "\n".join(lines + [say(group, name, verdict) for name, verdict in found["verdicts"].items()])


def say(group: Group, name: str, verdict: dict[str, Any]) -> str:
    """Return a verdict in a line."""
    if not verdict["measured"]:
        return f"{name}: not measured, this processor has no bf16 instructions (aim {verdict['target']})"
    how = "at least" if verdict["reached"] else "less than"
    return (
        f"{name}: {verdict['median']:.2f} times {verdict['fastest']} ({verdict['min']:.2f} to {verdict['max']:.2f}): "
        f"{how} {verdict['target']}"
    )


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what rounds of one file have in common."""
    left_out = ("json", "only", "rounds", "fresh", "data_dir")
    plain = {key: value for key, value in vars(options).items() if key not in left_out}
    return {"options": plain, "environment": environment(), "threads": torch.get_num_threads()}


def read(path: Path | None, common: dict[str, Any], fresh: bool) -> dict[str, dict[str, Any]]:
    """Return the groups that a file holds, if their rounds were made as these will be.

    Raises
    ------
    FairbenchError
        They were made otherwise, or the file is none of this script's.
    """
    if path is None or fresh or not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = {name: {**group, "rounds": list(group["rounds"])} for name, group in document["groups"].items()}
        same = document["format"] == FORMAT and document["common"] == json.loads(json.dumps(common))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FairbenchError(f"{path} is no result of this script ({error}); name another, or pass --fresh.") from error
    if not same:
        raise FairbenchError(
            f"{path} was made with other options, packages or hardware; name another, or pass --fresh."
        )
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", metavar="GROUP", help="pgd20, autoattack, least-epsilon, bat, pgd_at (all)"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="alternations, 5 or more (5)")
    parser.add_argument("--images", type=positive, default=128, help="of PGD-20 and training, at most 1,000 (128)")
    parser.add_argument("--steps", type=positive, default=20, help="of PGD (20)")
    parser.add_argument(
        "--autoattack-models",
        nargs="+",
        default=["bat_lenet5_fashion_mnist"],
        metavar="MODEL",
        help="of the zoo; of an undefended one only the first stage is measured (bat_lenet5_fashion_mnist)",
    )
    parser.add_argument("--autoattack-images", type=positive, default=128, help="of each model (128)")
    parser.add_argument("--autoattack-epsilon", type=float, default=8.0, help="in 1/255 (8)")
    parser.add_argument("--least-epsilon-model", default="bat_lenet5_fashion_mnist", metavar="MODEL")
    parser.add_argument("--least-epsilon-images", type=positive, default=250)
    parser.add_argument("--data-dir", metavar="DIR", help="folder that holds cifar10, for training (else the sample)")
    parser.add_argument("--peak-seconds", type=float, default=3.0, help="for each measurement of the peak (3)")
    parser.add_argument(
        "--quiet",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="wait for, and repeat a turn until, other processes take at most that much of the cores (5)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result, and go on from what it holds")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever the file holds")
    parser.add_argument(
        "--quick", action="store_true", help="a rehearsal: few images, two rounds, however busy; judges nothing"
    )
    options = parser.parse_args()
    if options.quick:
        options.images, options.steps, options.rounds, options.quiet, options.peak_seconds = 8, 2, 2, 200.0, 0.1
        options.autoattack_images, options.least_epsilon_images = 4, 20
    elif options.rounds < 5:
        parser.error("--rounds: 5 or more")
    elif not 0 <= options.quiet <= 100:
        parser.error("--quiet: a percentage is 0 to 100")
    if options.images > 1000:
        parser.error("--images: the sample has 1,000")
    known = {kind for kind, _ in TARGETS}
    if options.only and not set(options.only) <= known:
        parser.error(f"--only: choose of {', '.join(sorted(known))}")
    return options


def main() -> int:
    """Parse, measure, print, keep; 0 if every target is reached (or in a rehearsal), else 1."""
    options = parse()
    chosen = [group for group in groups(options) if not options.only or group.kind in options.only]
    if any(group.kind == "pgd20" for group in chosen):
        require_peers()
    if options.json is not None:
        make_folder(options.json.absolute().parent)
    common = settings(options)
    kept = read(options.json, common, options.fresh)
    concluded: dict[str, Any] = {}

    def keep() -> None:
        if options.json is not None:
            document = {name: {**found, **concluded.get(name, {})} for name, found in kept.items() if found["rounds"]}
            write_json({"format": FORMAT, "common": common, "groups": document}, options.json)

    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}", flush=True)
    for group in chosen:
        print(f"\n{group.name}", flush=True)
        rounds = kept.setdefault(group.name, {"rounds": []})["rounds"]
        measure(group, rounds, options, keep)
        concluded[group.name] = {"about": group.about, **conclude(group, rounds)}
        keep()
        print("\n" + render(group, concluded[group.name], len(rounds)), flush=True)
    verdicts = [verdict for found in concluded.values() for verdict in found["verdicts"].values()]
    return 0 if options.quick or all(verdict.get("reached", False) for verdict in verdicts) else 1


if __name__ == "__main__":
    exit_with(main)
