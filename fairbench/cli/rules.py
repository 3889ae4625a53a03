"""What a submission is held to, from the rooms that know it: the locked protocols, and the datasets' own labels."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fairbench.errors import DatasetError

if TYPE_CHECKING:
    from fairbench.leaderboard.checked import Latest, Rules, Truth

_MOST_PIXELS = 2**30
"""Images of other people's choice of size are made up to this many pixels in all: 10,000 of 300x300."""


def rules(data_dir: str | None, taken: "Mapping[str, Latest] | None", place: tuple[str, int] | None = None) -> "Rules":
    """Return the rules, with labels from where the data is on this machine; nothing is downloaded."""
    from fairbench.leaderboard.checked import Rules

    known: dict[str, Truth | None] = {}

    def truth_of(name: str) -> "Truth | None":
        if name not in known:
            known[name] = _truth(name, data_dir)
        return known[name]

    return Rules(_attacks, truth_of, taken, _known_weights(), place)


def _attacks(protocol: str, num_classes: int) -> dict[str, dict[str, Any]]:
    from fairbench.evaluation import Protocol

    return {attack.name: attack.parameters() for attack in Protocol.named(protocol).build_attacks(num_classes)}


def _known_weights() -> dict[str, str]:
    """Return the hashes of the zoo's weight files, and those that kept results give of what was loaded, with names."""
    from fairbench.leaderboard.results import read_manifests
    from fairbench.models.cards import card_names, load_card

    known = {}
    for manifest in read_manifests():
        known[str(manifest["model"]["sha256"])] = str(manifest["model"]["name"])
    return known | {load_card(name).weights.sha256: name for name in card_names()}


def _truth(name: str, data_dir: str | None) -> "Truth | None":
    from fairbench.datasets import load_dataset
    from fairbench.datasets.named import NAMED
    from fairbench.datasets.samples import SAMPLES, load_sample
    from fairbench.leaderboard.checked import Truth

    if name not in NAMED:
        return None
    known = NAMED[name]
    try:
        data = load_dataset(name, "test", data_dir=data_dir, download=False)
    except DatasetError:
        missing = "the full test split is not on this machine (give --data-dir)"
        if name in SAMPLES:
            sample = load_sample(name)
            return Truth(known.classes, known.test_size, sample.index, sample.labels, missing)
        none = np.empty(0, dtype=np.int64)
        return Truth(known.classes, known.test_size, none, none, missing)

    def sha256(shape: tuple[int, ...]) -> str | None:
        if shape[0] != data.shape[0]:
            return "other channels"
        return data.resized(*shape[1:]).sha256 if len(data) * shape[1] * shape[2] <= _MOST_PIXELS else None

    return Truth(data.classes, len(data), data.index, data.labels, None, sha256)
