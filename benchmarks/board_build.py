"""How long the board takes to build for 100 made-up models: tables, intervals (1,000 bootstrap draws), figure, pages.

Each has 10,000 examples of ten classes under PGD-20 and AutoAttack. Exit code 1 over --limit seconds or 1 GB.

    python benchmarks/board_build.py --json benchmarks/results/board_build.json
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from fairbench import provenance
from fairbench.leaderboard.card import card_of
from fairbench.leaderboard.entries import read_entries
from fairbench.leaderboard.ranking import boards
from fairbench.leaderboard.submission import pack
from fairbench.outcomes import Outcomes
from fairbench.outcomes.identity import run_identity
from fairbench.reports.board import build
from fairbench.reports.board_text import file_stem
from fairbench.reports.site import write_pages

CLASSES, EPSILON = [f"class {c}" for c in range(10)], 8 / 255


def make(board: Path, number: int, examples: int) -> None:
    """Write a submission whose errors differ from class to class."""
    rng = np.random.default_rng(number)
    label = np.arange(examples) % 10
    error = rng.beta(2, 6, 10)[label]
    draw = rng.random(examples)
    other = (label + rng.integers(1, 10, examples)) % 10
    frame = pd.DataFrame({"index": np.arange(examples), "label": label})
    frame["clean_pred"] = np.where(draw < error, other, label)
    frame["clean_confidence"] = rng.uniform(0.1, 1, examples)
    frame["pgd20_pred"] = np.where(draw < error + 0.2, other, label)
    frame["pgd20_broken_at"] = pd.Series(np.where(draw < error + 0.2, 1, -1), dtype="Int16").replace(-1, pd.NA)
    frame["autoattack_pred"] = np.where(draw < error + 0.23, other, label)
    stages = np.where(draw < error, "clean", np.where(draw < error + 0.23, "apgd-ce", None))
    frame["autoattack_broken_by"] = pd.Series(stages, dtype="string")
    manifest = {
        "format": 1,
        "model": {"name": f"m{number}", "sha256": "", "code_sha256": "", "architecture": "made-up"},
        "dataset": {"name": "made_up", "split": "test", "sha256": "", "n": examples, "classes": CLASSES},
        "protocol": {"name": "leaderboard", "modified": {}, "seed": 0},
        "attacks": {"pgd20": {"epsilon": EPSILON}, "autoattack": {"epsilon": EPSILON}},
        **{"behaviour": "", "batch_size": 128, "precision": "float32", "device": "cpu", "versions": {}},
    }
    manifest["run"] = run_identity(manifest)
    said = {"version": 1, "name": f"m{number}", "title": f"Made up {number}", "contact": "nobody", "licence": "none"}
    said |= {"dataset": "made_up", "protocol": "leaderboard", "architecture": "none"}
    card, faults = card_of(said | {"weights": {"url": "https://example.org/w.pt", "sha256": "0" * 64}})
    if card is None:
        raise ValueError(faults)
    folder = board / "submissions" / card.name / "1"
    folder.mkdir(parents=True)
    pack(folder, card, Outcomes(frame, manifest), None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        board = Path(temporary)
        (board / "results").mkdir()
        for number in range(arguments.models):
            make(board, number, arguments.examples)
        wall, processor = time.perf_counter(), time.process_time()
        build(board)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        entries = boards(read_entries(board))
        tables = {file_stem(one): "" for one in entries}
        (board / "again").mkdir()
        pages = time.process_time()
        write_pages(entries, {}, tables, board / "again")
        pages = time.process_time() - pages
        size = sum(path.stat().st_size for path in (board / "again" / "submissions").glob("*.html"))
    scale = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    found = {
        "models": arguments.models,
        "examples": arguments.examples,
        "seconds": round(wall, 1),
        "processor_seconds": round(processor, 1),
        "pages_processor_seconds": round(pages, 2),
        "kilobytes_a_page": round(size / arguments.models / 1e3),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e6),
        "hardware": provenance.hardware(),
        "versions": provenance.versions(),
    }
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(found["seconds"] > arguments.limit or found["peak_megabytes"] > 1000)
