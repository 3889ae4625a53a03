"""``fairbench doctor``: what this machine has, for a bug report or before a long run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def doctor() -> None:
    """Print versions, hardware and folders, and say what is missing."""
    import torch

    from fairbench import provenance
    from fairbench.datasets.locate import data_folders
    from fairbench.datasets.named import NAMED, find_named
    from fairbench.evaluation.device import default_device
    from fairbench.files import cache_folder

    hardware = provenance.hardware(default_device())
    said = {**provenance.versions(), "robustbench": _robustbench(), **hardware}
    said |= {"bf16": _bf16(torch.device(hardware["device"])), "memory": _memory()}
    said["cache"] = f"{cache_folder('').resolve()} ({_writable(cache_folder(''))})"
    folders = data_folders()
    for name, known in NAMED.items():
        found = find_named(name, folders)
        said[name] = found or ("with scikit-learn" if not known.markers else "full data not found")
    width = max(map(len, said))
    for name, value in said.items():
        print(f"{name:{width}} {value}")


def _bf16(device: "torch.device") -> str:
    from fairbench.provenance import computes_in_bfloat16

    return (
        "yes"
        if computes_in_bfloat16(str(device))
        else "emulated (no instructions for it), many times slower than float32"
    )


def _robustbench() -> str:
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    try:
        found = version("robustbench")
    except PackageNotFoundError:
        return "not installed"
    if find_spec("pkg_resources") is None:
        return f"{found}, cannot be imported: it needs pkg_resources; run pip install 'setuptools<81'"
    return found


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return "unknown"
    return f"{total / 2**30:.1f} GiB"


def _writable(folder: Path) -> str:
    while not folder.exists():
        folder = folder.parent
    return "writable" if os.access(folder, os.W_OK) else "not writable: set $FAIRBENCH_CACHE"
