"""``fairbench doctor``: what this machine has, for a bug report or before a long run."""

import os
from pathlib import Path


def doctor() -> None:
    """Print versions, hardware and folders, and say what is missing."""
    import torch

    from fairbench import provenance
    from fairbench.datasets.locate import data_folders
    from fairbench.datasets.named import NAMED, find_named
    from fairbench.files import cache_folder

    hardware = provenance.hardware("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in {**provenance.versions(), "robustbench": _robustbench(), **hardware}.items():
        print(f"{name:14} {value}")
    print(f"{'memory':14} {_memory()}")
    print(f"{'cache':14} {cache_folder('').resolve()} ({_writable(cache_folder(''))})")
    folders = data_folders()
    for name, known in NAMED.items():
        found = find_named(name, folders)
        print(f"{name:14} {found or ('with scikit-learn' if not known.markers else 'full data not found')}")


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
