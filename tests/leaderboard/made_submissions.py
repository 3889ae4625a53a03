"""Submissions for a dataset of 60 examples and three classes, and the rules they are held to; no model, no torch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairbench import Outcomes
from fairbench.leaderboard.checked import Truth
from fairbench.outcomes.identity import run_identity
from fairbench.plain_yaml import dump_yaml
from fairbench.provenance import sha256_plain

CLASSES = ("cat", "dog", "fox")
LABELS = np.repeat([0, 1, 2], 20)
SHA256 = "d" * 64
WEIGHTS = b"weights"
ATTACKS = {
    "pgd20": {"norm": "Linf", "epsilon": 8 / 255, "steps": 20, "restarts": 1, "seed": 0},
    "autoattack": {"norm": "Linf", "epsilon": 8 / 255, "stages": ["apgd-ce"], "seed": 0},
}


def locked(protocol: str, num_classes: int) -> dict[str, dict[str, Any]]:
    return ATTACKS if protocol == "leaderboard" else {"pgd20": ATTACKS["pgd20"]}


def truth(name: str) -> Truth | None:
    return Truth(CLASSES, 60, np.arange(60), LABELS, None, lambda shape: SHA256) if name == "toy" else None


def table(seed: int = 0, *, wrong: float = 0.2, broken: float = 0.5) -> pd.DataFrame:
    """Rows that an evaluation could have given."""
    rng = np.random.default_rng(seed)
    other, draw = (LABELS + 1) % 3, rng.random(60)
    clean_wrong, weak, strong = draw < wrong, draw < broken, draw < broken + 0.05
    frame = pd.DataFrame({"index": np.arange(60, dtype=np.int64), "label": LABELS.astype(np.int16)})
    frame["clean_pred"] = np.where(clean_wrong, other, LABELS).astype(np.int16)
    frame["clean_confidence"] = rng.uniform(0.4, 1, 60).astype(np.float32)
    frame["pgd20_pred"] = pd.Series(np.where(weak, other, LABELS), dtype="Int16")
    frame["pgd20_broken_at"] = pd.Series(np.where(weak, 3, -1), dtype="Int16").replace(-1, pd.NA)
    frame["autoattack_pred"] = pd.Series(np.where(strong, other, LABELS), dtype="Int16")
    stage = np.where(clean_wrong, "clean", np.where(strong, "apgd-ce", None))
    frame["autoattack_broken_by"] = pd.Series(stage, dtype="string")
    return frame


def manifest(protocol: str = "leaderboard") -> dict[str, Any]:
    plain: dict[str, Any] = {
        "format": 1,
        "model": {"name": "my", "sha256": "a" * 64, "code_sha256": "b" * 64, "architecture": "lenet5"},
        "dataset": {"name": "toy", "split": "test", "sha256": SHA256, "n": 60, "classes": list(CLASSES)},
        "protocol": {"name": protocol, "modified": {}, "seed": 0},
        "attacks": locked(protocol, 3),
        "behaviour": "c" * 64,
        "batch_size": 128,
        "precision": "float32",
        "device": "cpu",
        "versions": {"torch": "2.6.0"},
        "warnings": [],
        "notes": [],
    }
    plain["dataset"] |= {"shape": [1, 8, 8], "attributes": []}
    plain["run"] = run_identity(plain)
    return json.loads(json.dumps(plain))


def card(name: str = "mine", protocol: str = "leaderboard") -> dict[str, Any]:
    return {
        "version": 1,
        "name": name,
        "title": "My method",
        "authors": ["A. Author"],
        "contact": "a@example.org",
        "paper": "https://example.org/paper",
        "dataset": "toy",
        "protocol": protocol,
        "architecture": "lenet5",
        "weights": {"file": "weights.safetensors", "sha256": sha256_plain(WEIGHTS)},
        "licence": "MIT",
    }


def write(folder: Path, card: Any, manifest: dict[str, Any], frame: pd.DataFrame, *, rehash: bool = True) -> Path:
    """Write a submission as given, faults and all."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.yaml").write_text(card if isinstance(card, str) else dump_yaml(card), encoding="utf-8")
    (folder / "weights.safetensors").write_bytes(WEIGHTS)
    frame.to_parquet(folder / "outcomes.parquet", index=False)
    if rehash:
        manifest = {**manifest, "table_sha256": sha256_plain((folder / "outcomes.parquet").read_bytes())}
        manifest["run"] = run_identity(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def submit(folder: Path, name: str = "mine", protocol: str = "leaderboard", seed: int = 0, **changes: Any) -> Path:
    """Write a submission without fault, as :func:`fairbench.leaderboard.submission.pack` does."""
    from fairbench.leaderboard.card import card_of
    from fairbench.leaderboard.submission import pack

    folder.mkdir(parents=True, exist_ok=True)
    made, faults = card_of(card(name, protocol) | changes)
    assert made is not None, faults
    frame = table(seed)
    if protocol == "standard":
        frame = frame[[column for column in frame if not column.startswith("autoattack")]]
    pack(folder, made, Outcomes(frame, manifest(protocol)), WEIGHTS)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
