"""The name of a run: a hash of all that determines its rows, which the manifest repeats."""

from collections.abc import Mapping
from typing import Any

from fairbench.provenance import sha256_json

_DETERMINANTS: dict[str, tuple[str, ...]] = {
    "format": (),
    "model": ("name", "sha256", "code_sha256"),
    "transfer_from": ("name", "sha256", "code_sha256"),
    "dataset": ("name", "split", "sha256"),
    "protocol": (),
    "attacks": (),
    "behaviour": (),
    "batch_size": (),
    "precision": (),
    "device": (),
    "versions": (),
    "attack_code": (),
}
"""Keys of a manifest that determine its rows, and of which only some keys do; the others describe."""

_OPTIONAL = {"transfer_from", "attack_code"}
"""Keys that only some manifests have."""


def run_identity(manifest: Mapping[str, Any]) -> str:
    """Return the name of the run that a manifest describes, 16 hexadecimal digits.

    Raises
    ------
    KeyError, TypeError, ValueError
        It lacks one of the keys, or is not plain data.
    """
    determinants = {
        key: {part: manifest[key][part] for part in parts} if parts else manifest[key]
        for key, parts in _DETERMINANTS.items()
        if key in manifest or key not in _OPTIONAL
    }
    return sha256_json(determinants)[:16]
