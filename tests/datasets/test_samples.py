"""The shipped samples: the first 100 test images of each class, lossless, found without any data folder."""

import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fairbench.datasets import load_dataset, samples
from fairbench.errors import DatasetError

SHAPES = {"cifar10": (3, 32, 32), "fashion_mnist": (1, 28, 28)}


@pytest.fixture(autouse=True)
def _no_data(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "data_dir" not in request.fixturenames:
        monkeypatch.delenv("FAIRBENCH_DATA", raising=False)


@pytest.mark.parametrize("name", SHAPES)
def test_a_sample_is_a_hundred_images_of_each_class_without_data_or_network(name: str, no_network: None) -> None:
    sample = load_dataset(name, "sample")
    assert sample.split == "sample"
    assert sample.inputs.dtype == np.uint8
    assert sample.inputs.shape == (1000, *SHAPES[name])
    assert np.bincount(sample.labels).tolist() == [100] * 10
    assert len(set(sample.classes)) == 10


@pytest.mark.parametrize("name", SHAPES)
def test_a_samples_indices_are_positions_in_a_test_split_of_10000(name: str) -> None:
    index = load_dataset(name, "sample").index
    assert (np.diff(index) > 0).all()
    assert index[0] >= 0
    assert index[-1] < 10_000
    assert index[-1] >= 999


@pytest.mark.parametrize("name", SHAPES)
def test_a_sample_is_the_first_hundred_of_each_class_of_the_full_split(
    name: str, data_dir: Callable[[str], Path]
) -> None:
    full = load_dataset(name, "test", data_dir=data_dir(name), download=False)
    seen = [0] * 10
    first = []
    for position, label in enumerate(full.labels):
        seen[label] += 1
        if seen[label] <= 100:
            first.append(position)
    sample = load_dataset(name, "sample")
    assert sample.index.tolist() == first
    assert np.array_equal(sample.inputs, full.inputs[first])
    assert np.array_equal(sample.labels, full.labels[first])
    assert sample.classes == full.classes


@pytest.mark.parametrize("fault", ["one byte flipped", "cut short", "missing"])
def test_a_damaged_sample_is_refused(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "cifar10.npz"
    shutil.copy(str(files("fairbench.datasets.samples") / "cifar10.npz"), copy)
    data = bytearray(copy.read_bytes())
    if fault == "one byte flipped":
        data[len(data) // 2] ^= 1
        copy.write_bytes(data)
    elif fault == "cut short":
        copy.write_bytes(data[:-100])
    else:
        copy.unlink()
    monkeypatch.setattr(samples, "files", lambda _package: tmp_path)
    with pytest.raises(DatasetError, match=r"cifar10\.npz is missing or damaged; install fairbench again"):
        load_dataset("cifar10", "sample")
