"""``Dataset``: what it promises to the evaluation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairbench.datasets import Dataset
from fairbench.errors import DatasetError


@pytest.fixture
def data() -> Dataset:
    """Seven 2x3 grey images of classes 0, 2 and, twice as often, 1; class "eel" has none."""
    inputs = np.arange(42, dtype=np.uint8).reshape(7, 1, 2, 3)
    labels = np.array([1, 0, 1, 1, 2, 1, 0])
    sex = np.array(["f", "m", "f", "f", "m", "m", "f"])
    return Dataset("own", inputs, labels, ("ant", "bee", "cat", "eel"), attributes={"sex": sex})


def test_a_batch_is_pixels_in_0_to_1(data: Dataset) -> None:
    x, y, index = data.batch(np.array([6, 0]))
    assert x.dtype == torch.float32
    assert torch.equal(x * 255, torch.from_numpy(data.inputs[[6, 0]]).float())
    assert y.tolist() == [0, 1]
    assert index.tolist() == [6, 0]


def test_an_absent_class_counts(data: Dataset) -> None:
    assert data.num_classes == 4


def test_the_first_of_each_class_keep_their_order_index_and_attributes(data: Dataset) -> None:
    chosen = data.first_per_class(2)
    assert chosen.index.tolist() == [0, 1, 2, 4, 6]
    assert chosen.labels.tolist() == [1, 0, 1, 2, 0]
    assert chosen.attributes["sex"].tolist() == ["f", "m", "f", "m", "f"]


def changed(data: Dataset, what: str) -> Dataset:
    if what == "a pixel":
        inputs = data.inputs.copy()
        inputs[0, 0, 0, 0] ^= 1
        return replace(data, inputs=inputs)
    if what == "a label":
        return replace(data, labels=np.roll(data.labels, 1))
    if what == "an index":
        return replace(data, index=data.index[::-1])
    if what == "a class name":
        return replace(data, classes=("ant", "bee", "cow", "eel"))
    return replace(data, attributes={"sex": data.attributes["sex"][::-1]})


@pytest.mark.parametrize("what", ["a pixel", "a label", "an index", "a class name", "an attribute"])
def test_the_hash_depends_on_all_content_and_on_nothing_else(data: Dataset, what: str) -> None:
    assert changed(data, what).sha256 != data.sha256
    assert replace(data, name="elsewhere", notes=("resized",)).sha256 == data.sha256


def test_an_attribute_of_another_length_is_refused(data: Dataset) -> None:
    with pytest.raises(DatasetError, match="7 images but 2 race"):
        replace(data, attributes={"race": np.array([0, 1])})


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_that_run_backwards_are_data(dtype):
    images = np.arange(4 * 64).reshape(4, 1, 8, 8).astype(dtype) / dtype(1 if dtype == np.uint8 else 256)
    straight = Dataset("mine", images.astype(dtype), np.array([0, 1, 0, 1]), ("a", "b"))
    turned = Dataset("mine", straight.inputs[::-1], straight.labels[::-1], ("a", "b"))
    x, y, _ = turned.batch(slice(0, 4))
    expected, labels, _ = straight.batch(slice(0, 4))
    assert torch.equal(x, expected.flip(0))
    assert torch.equal(y, labels.flip(0))
    assert np.array_equal(turned.resized(4, 4).inputs, straight.resized(4, 4).inputs[::-1])
