"""Samples that ship with the package, so that a first evaluation needs no download: the ``quick`` protocol's images.

Each is the first 100 test images of every class, as the authors published them (lossless), with their positions in the
test split. ``SHA256`` of a sample is that of its file.
"""

from dataclasses import replace
from importlib.resources import as_file, files

from fairbench.datasets.arrays import load_npz
from fairbench.datasets.base import Dataset
from fairbench.datasets.named import NAMED
from fairbench.errors import DatasetError
from fairbench.provenance import sha256_file

SAMPLES = {
    "cifar10": "4c5aab7ec6c9357056102bfbfc4f0bc15fa63582a8b7fa3ecab0d5196d20997b",
    "fashion_mnist": "45a01ea6bea9173a5802a1136dd86fb3a07939e0fc3f256f04d8e4f6b9c8c6b3",
}
"""Dataset name to the SHA-256 of ``<name>.npz`` in this folder."""


def load_sample(name: str) -> Dataset:
    """Load the shipped sample of a dataset.

    Raises
    ------
    DatasetError
        The file is not the one that was shipped.
    """
    with as_file(files(__package__) / f"{name}.npz") as path:
        if not path.is_file() or sha256_file(path) != SAMPLES[name]:
            raise DatasetError(f"the shipped sample {path} is missing or damaged; install fairbench again.")
        sample = load_npz(path, name=name, classes=NAMED[name].classes)
    return replace(sample, split="sample")
