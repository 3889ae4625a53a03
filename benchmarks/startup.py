"""Start-up and memory: what a user waits for before anything is attacked, and what an evaluation holds.

    python benchmarks/startup.py --rounds 5 --json benchmarks/results/startup.json

Each figure is that of a process of its own: seconds on the clock and on the processor (on busy cores only the second
tells), and the most memory it held. ``help`` is ``fairbench --help``; ``first attack`` ends when the first attack of
``evaluate`` on a LeNet-5 begins; ``summarize`` is the summary of 1,000,000 made-up rows with PGD-20 and AutoAttack, 10
classes, reading the table included; ``evaluate`` attacks batches of a ResNet-18, with the 10,000 test images loaded if
``--data-dir`` has them.
"""

import argparse
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from statistics import median
from typing import Any

from peers import environment, exit_with, positive
from tabulate import tabulate

from fairbench.errors import FairbenchError
from fairbench.files import write_json

BOUNDS = {"help": 0.5, "first attack": 5.0, "summarize": 5.0}
"""Seconds that each may take."""
MOST_MEMORY = 2e9
"""Bytes that evaluating a ResNet-18 at the default batch size may hold."""

REPORT = """
import json, os, resource, sys, time
def memory():
    try:  # the kernel's count of this program alone; the other includes what the process was before
        lines = open("/proc/self/status").read().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
def report(start):
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    print(json.dumps({"wall": time.time() - start, "cpu": cpu, "memory": memory()}), flush=True)
"""
CODE = {
    "help": """
        start = float(os.environ["STARTED"])
        from fairbench.cli import run
        import contextlib, io
        with contextlib.redirect_stdout(io.StringIO()):
            assert run(["--help"]) == 0
        report(start)
    """,
    "first attack": """
        start = float(os.environ["STARTED"])
        from fairbench.cli import run
        from fairbench.attacks.pgd import PGDAttack
        def first(*_arguments, **_options):
            report(start)
            os._exit(0)
        PGDAttack.__call__ = first
        run(["evaluate", "--model", "pgd_at_lenet5_fashion_mnist", "--fresh"])
    """,
    "summarize": """
        import tempfile
        import numpy as np, pandas as pd
        from fairbench.metrics import summarize
        from fairbench.outcomes import Outcomes
        rng = np.random.default_rng(0)
        n = 1_000_000
        label = rng.integers(0, 10, n)
        def wrong(share):
            return np.where(rng.random(n) < share, (label + 1) % 10, label)
        frame = pd.DataFrame({"index": np.arange(n), "label": label, "clean_pred": wrong(0.1)})
        frame["clean_confidence"] = np.float32(0.5)
        frame["pgd20_pred"], frame["autoattack_pred"] = wrong(0.4), wrong(0.5)
        frame["autoattack_broken_by"] = np.where(frame["autoattack_pred"] != label, "apgd-ce", None)
        manifest = {"format": 1, "dataset": {"name": "made", "classes": [str(c) for c in range(10)]}}
        with tempfile.TemporaryDirectory() as folder:
            Outcomes(frame, manifest).write(folder)
            before = sum(os.times()[:2])
            start = time.time()
            summarize(Outcomes.read(folder))
            wall, cpu = time.time() - start, sum(os.times()[:2]) - before
            print(json.dumps({"wall": wall, "cpu": cpu, "memory": memory()}))
    """,
    "evaluate": """
        start = time.time()
        import sys, tempfile
        from fairbench import Protocol, evaluate, load_dataset, load_model
        folder, batches, precision = sys.argv[1] or None, int(sys.argv[2]), sys.argv[3]
        data = load_dataset("cifar10", "test" if folder else "sample", data_dir=folder)
        def engine(compute, shards):
            for number in list(shards)[:batches]:
                yield number, compute(number)
            report(start)
            os._exit(0)
        protocol = Protocol.named("standard" if folder else "quick", steps=2)
        with tempfile.TemporaryDirectory() as runs:
            evaluate(load_model("natural_resnet18"), data, protocol, engine=engine, precision=precision, runs=runs)
    """,
}


def measured(what: str, *arguments: str) -> dict[str, float]:
    """Run one piece in a process of its own and return what it says of itself."""
    code = REPORT + textwrap.dedent(CODE[what])
    launcher = "import os, sys, time; os.environ['STARTED'] = repr(time.time()); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", launcher, sys.executable, "-c", code, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(ran.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        raise FairbenchError(f"{what} failed: {(ran.stderr.strip().splitlines() or ['no output'])[-1]}") from None


def main() -> int:
    """Run, print the table, and write it if asked; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--batches", type=positive, default=2, help="of 128 images, for the memory of evaluate")
    parser.add_argument("--data-dir", default="", help="folder with the whole CIFAR-10")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for what in BOUNDS:
        found = [measured(what) for _ in range(options.rounds)]
        rows.append({"what": what, **{key: median(one[key] for one in found) for key in found[0]}})
    for precision in ("fp32", "bf16"):
        found = measured("evaluate", options.data_dir, str(options.batches), precision)
        rows.append({"what": f"evaluate, {precision}", **found})
    lines = [[r["what"], f"{r['wall']:.2f}", f"{r['cpu']:.2f}", f"{r['memory'] / 1e6:.0f}", _bound(r)] for r in rows]
    heads = ["", "s on the clock", "s of processor", "MB at most", "bound"]
    print(tabulate(lines, heads, tablefmt="github", disable_numparse=True))
    if options.json:
        write_json({"environment": environment(), "rounds": options.rounds, "rows": rows}, options.json)
    return int(any(r["wall"] > BOUNDS.get(r["what"], float("inf")) for r in rows) or rows[-2]["memory"] > MOST_MEMORY)


def _bound(row: dict[str, Any]) -> str:
    bound = BOUNDS.get(row["what"])
    return f"{MOST_MEMORY / 1e6:.0f} MB" if bound is None else f"{bound:g} s"


if __name__ == "__main__":
    exit_with(main)
