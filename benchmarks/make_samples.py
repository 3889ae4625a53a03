"""Make the samples shipped in ``fairbench/datasets/samples`` from the full test splits, and print their SHA-256.

    python benchmarks/make_samples.py DATA_DIR

The first 100 test images of each class, in split order, with their positions; compressed without loss.
"""

import sys
from pathlib import Path

import numpy as np

from fairbench.datasets import load_dataset
from fairbench.files import replacing
from fairbench.provenance import sha256_file

TARGET = Path(__file__).parents[1] / "fairbench" / "datasets" / "samples"

if __name__ == "__main__":
    for name in ("cifar10", "fashion_mnist"):
        full = load_dataset(name, "test", data_dir=sys.argv[1], download=False)
        sample = full.first_per_class(100)
        with replacing(TARGET / f"{name}.npz") as temporary:
            images = sample.inputs.transpose(0, 2, 3, 1)
            np.savez_compressed(temporary, x=images, y=sample.labels.astype(np.uint8), index=sample.index)
        print(name, len(sample), sha256_file(TARGET / f"{name}.npz"))
