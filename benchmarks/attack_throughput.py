"""How fast is PGD-20, and how much of the machine does it use? This package and three others side by side.

    python benchmarks/attack_throughput.py --rounds 5 --json benchmarks/results/attack_throughput.json

The model is ``natural_resnet18`` in float32 on CIFAR-10 images of the shipped sample, on all cores. Each contender
lives in a process of its own (fairbench sets its process's allocator, which must neither help nor harm the others) and
all are asked in turn, round after round: a drift of the machine hits all alike, and ratios are taken within a round.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peers import PEERS, Settings, environment, exit_with, positive, require_peers
from tabulate import tabulate
from torch import Tensor
from turns import Round, Turn, Worker, peak_round, quiet_turn

from fairbench import load_dataset, load_model
from fairbench.attacks.base import ThreatModel, run_attack
from fairbench.attacks.pgd import PGDAttack
from fairbench.errors import FairbenchError
from fairbench.evaluation import speed
from fairbench.evaluation.speed import PEAKS
from fairbench.files import make_folder, write_json
from fairbench.memory import keep_freed_memory
from fairbench.models.prepare import frozen, prepare

MODEL, DATASET, CLASSES = "natural_resnet18", "cifar10", 10
OURS = "fairbench"
TARGET = 1.4
"""What this package promises: at least so many times the faster peer."""


@dataclass(frozen=True)
class Task:
    """What every contender does in a round: attack the first ``images`` of the sample."""

    images: int
    settings: Settings

    def batch(self) -> tuple[Tensor, Tensor, Any]:
        """Return ``x`` (B, 3, 32, 32), ``y`` (B,) and ``index`` (B,)."""
        return load_dataset(DATASET, "sample").batch(slice(0, self.images))


def fairbench_round(task: Task) -> Round:
    """Return what an evaluation does for a shard: PGD on the attack-ready copy, the verdict by the original."""
    keep_freed_memory()
    x, y, index = task.batch()
    original = load_model(MODEL).module.eval()
    prepared = prepare(original, x)
    if prepared.warning:
        raise FairbenchError(prepared.warning)
    attack = PGDAttack(ThreatModel(task.settings.epsilon), task.settings.step, task.settings.steps)

    def attack_shard() -> dict[str, Any]:
        return run_attack(attack, original, prepared.module, (x, y, index), num_classes=CLASSES, tick=_no_progress)

    return attack_shard, lambda columns: 100 * float((columns[f"{attack.name}_pred"] != y.numpy()).mean())


def _no_progress(_: float) -> None:
    """Take the attack's reports of work done, and drop them."""


def peer_round(name: str, task: Task) -> Round:
    """Return a peer's attack on the original model, frozen in ``eval()`` mode; no verdict is asked of it.

    Of weights that take a gradient foolbox and ART would compute it too, half as much work again a step, and drop it.
    """
    x, y, _ = task.batch()
    model = frozen(load_model(MODEL).module)
    craft = PEERS[name](model, task.settings)

    def robust_error(x_adv: Tensor) -> float:
        with torch.no_grad():
            return 100 * float((model(x_adv).argmax(1) != y).double().mean())

    return lambda: craft(x, y), robust_error


def flops_per_image_step(task: Task) -> int:
    """Count what one attack step on one image needs: the forward pass and the gradient with respect to the image."""
    return speed.count_flops(frozen(load_model(MODEL).module), task.batch()[0][:1]).step


def attack_round(name: str, task: Task) -> Round:
    """Prepare a contender, or the measurement of the peak."""
    torch.manual_seed(0)
    if name == "peak":
        return peak_round()
    return fairbench_round(task) if name == OURS else peer_round(name, task)


@contextmanager
def workers(names: tuple[str, ...], task: Task) -> Iterator[list[Worker]]:
    """Start a process for each name and end them all at the end."""
    with ExitStack() as stack:
        started = []
        for name in names:
            started.append(Worker(name, partial(attack_round, name, task)))
            stack.callback(started[-1].close)
        yield started


def measure(task: Task, rounds: int, quiet: float) -> dict[str, Any]:
    """Run the rounds, one of each contender and of the peak in turn; return plain data.

    A turn during which other processes took more than ``quiet`` (0..1) of the cores is done again.
    """
    names = (OURS, *PEERS)
    load_before, flops = os.getloadavg()[0], flops_per_image_step(task)
    kept: list[dict[str, Turn]] = []
    with workers((*names, "peak"), task) as started:
        for worker in started:
            worker.ask()  # warm-up
        for number in range(rounds):
            kept.append({worker.name: quiet_turn(worker, quiet) for worker in started})
            times = ", ".join(f"{name} {kept[-1][name].reply.seconds:.2f} s" for name in names)
            print(f"round {number + 1} of {rounds}: {times}", flush=True)
    turns = [turn for found in kept for turn in found.values()]
    return {
        "model": MODEL,
        "dataset": f"{DATASET} sample",
        "images": task.images,
        "pgd": task.settings.to_dict(),
        "rounds": rounds,
        "load_before": load_before,
        "other_processes": {
            "allowed": quiet,
            "by_turn": [turn.others for turn in turns],
            "turns_repeated": sum(turn.repeated for turn in turns),
        },
        "peak_gflops": {what: max(found["peak"].reply.value[what] for found in kept) for what in PEAKS},
        "flops_per_image_step": flops,
        "contenders": {
            name: {
                "seconds": [found[name].reply.seconds for found in kept],
                "robust_error": kept[0][name].reply.value,
            }
            for name in names
        },
        **environment(),
    }


def conclude(result: dict[str, Any]) -> dict[str, Any]:
    """Add to each contender its rates (medians over rounds), and the verdict; ratios are taken within a round."""
    ours = result["contenders"][OURS]["seconds"]
    image_steps = result["images"] * result["pgd"]["steps"]
    for contender in result["contenders"].values():
        seconds = median(contender["seconds"])
        contender["images_per_second"] = result["images"] / seconds
        contender["image_steps_per_second"] = image_steps / seconds
        contender["gflops"] = image_steps * result["flops_per_image_step"] / seconds / 1e9
        contender["share_of_peak"] = contender["gflops"] / max(result["peak_gflops"].values())
        ratios = [theirs / mine for theirs, mine in zip(contender["seconds"], ours, strict=True)]
        contender["ours_to_it"] = {"median": median(ratios), "min": min(ratios), "max": max(ratios)}
    faster = max(PEERS, key=lambda name: result["contenders"][name]["images_per_second"])
    ratio = result["contenders"][faster]["ours_to_it"]
    result["verdict"] = {"faster_peer": faster, **ratio, "target": TARGET, "reached": ratio["median"] >= TARGET}
    return result


def render(result: dict[str, Any]) -> str:
    """Return the report: what ran where, the table, the verdict."""
    pgd_, peak, verdict = result["pgd"], result["peak_gflops"], result["verdict"]
    rows = [
        (
            name,
            f"{c['images_per_second']:.2f}",
            f"{c['image_steps_per_second']:.0f}",
            f"{c['ours_to_it']['median']:.2f}",
            f"{c['gflops']:.0f}",
            f"{100 * c['share_of_peak']:.0f} %",
            f"{c['robust_error']:.1f} %",
        )
        for name, c in result["contenders"].items()
    ]
    head = ("", "images/s", "image-steps/s", "ours / it", "GFLOP/s", "of peak", "robust error")
    others = result["other_processes"]["by_turn"]
    return "\n".join(
        [
            f"PGD-{pgd_['steps']}, epsilon {pgd_['epsilon'] * 255:g}/255, step {pgd_['step'] * 255:g}/255, on {MODEL}: "
            f"{result['images']} images, float32, {result['rounds']} rounds, medians",
            f"{result['hardware']['processor']}, {result['hardware']['threads']} threads; peak "
            + ", ".join(f"{name} {gflops:.0f} GFLOP/s" for name, gflops in peak.items()),
            f"load before {result['load_before']:.2f}; other processes took {median(others):.1%} of the cores, at most "
            f"{max(others):.1%}",
            "",
            tabulate(rows, head, disable_numparse=True, colalign=("left", *["right"] * 6)),
            "",
            f"{verdict['median']:.2f} times the faster peer, {verdict['faster_peer']} ({verdict['min']:.2f}.."
            f"{verdict['max']:.2f} over rounds): {'at least' if verdict['reached'] else 'less than'} {TARGET}",
        ]
    )


def profile(task: Task, top: int = 12) -> str:
    """Return where the time of one round of ours goes, by operator, in percent of the total."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    run, _ = fairbench_round(task)
    run()
    with torch_profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    events = sorted(profiler.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(e.self_cpu_time_total for e in events)
    rows = [(e.key, e.count, f"{100 * e.self_cpu_time_total / total:.1f}") for e in events[:top]]
    return tabulate(rows, ("operator", "calls", "% of time"), colalign=("left", "right", "right"))


def main() -> int:
    """Parse, measure, print; 0 if the target is reached, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=5, help="alternations, 3 or more (5)")
    parser.add_argument("--images", type=positive, default=128, help="images in a round, at most 1,000 (128)")
    parser.add_argument("--steps", type=positive, default=20, help="attack steps (20)")
    parser.add_argument(
        "--quiet",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="wait for, and repeat a turn until, other processes take at most that much of the cores (5)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result")
    parser.add_argument("--profile", action="store_true", help="only say where the time of a round of ours goes")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds: a spread needs 3 or more")
    if not 0 <= options.quiet <= 100:
        parser.error("--quiet: a percentage is 0 to 100")
    if options.images > 1000:
        parser.error("--images: the sample has 1,000")
    task = Task(options.images, Settings(steps=options.steps))
    if options.profile:
        print(profile(task))
        return 0
    require_peers()
    if options.json is not None:
        make_folder(options.json.absolute().parent)
    result = conclude(measure(task, options.rounds, options.quiet / 100))
    if options.json is not None:
        write_json(result, options.json)
    print("\n" + render(result))
    return 0 if result["verdict"]["reached"] else 1


if __name__ == "__main__":
    exit_with(main)
