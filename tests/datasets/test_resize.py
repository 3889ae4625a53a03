"""Resizing is torchvision's ``Resize`` and ``ToTensor`` on 8-bit PIL images, to the bit."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import Compose, Resize, ToTensor

from fairbench.datasets import Dataset, load_dataset

Size = tuple[int, int]
CASES: list[tuple[int, Size, Size]] = [
    (1, (28, 28), (32, 32)),
    (3, (28, 28), (32, 32)),
    (3, (32, 32), (28, 28)),
    (1, (40, 24), (32, 32)),
    (3, (20, 31), (13, 47)),
    (3, (96, 128), (32, 32)),
]


def random_images(channels: int, size: Size, count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, channels, *size), dtype=np.uint8)


def dataset(inputs: np.ndarray) -> Dataset:
    return Dataset("own", inputs, np.arange(len(inputs)) % 2, ("a", "b"))


def by_torchvision(inputs: np.ndarray, size: Size) -> torch.Tensor:
    transform = Compose([Resize(size), ToTensor()])
    pictures = [Image.fromarray(i[0] if len(i) == 1 else i.transpose(1, 2, 0)) for i in inputs]
    return torch.stack([transform(picture) for picture in pictures])


@pytest.mark.parametrize(("channels", "old", "new"), CASES)
def test_bytes_are_resized_as_torchvision_does_it(channels: int, old: Size, new: Size) -> None:
    inputs = random_images(channels, old)
    x, _, _ = dataset(inputs).resized(*new).batch(slice(None))
    assert torch.equal(x, by_torchvision(inputs, new))


def test_real_images_are_resized_as_torchvision_does_it() -> None:
    sample = load_dataset("fashion_mnist", "sample")
    sample = sample.subset(np.arange(0, 1000, 20))
    x, _, _ = sample.resized(32, 32).batch(slice(None))
    assert torch.equal(x, by_torchvision(sample.inputs, (32, 32)))


@pytest.mark.parametrize(("channels", "old", "new"), CASES)
def test_floats_are_resized_within_a_grey_level_of_it_and_stay_pixels(channels: int, old: Size, new: Size) -> None:
    inputs = random_images(channels, old)
    resized = dataset((inputs / 255).astype(np.float32)).resized(*new)
    assert resized.inputs.dtype == np.float32
    assert 0 <= resized.inputs.min() <= resized.inputs.max() <= 1
    difference = np.abs(resized.inputs - by_torchvision(inputs, new).numpy())
    assert difference.max() <= 2 / 255


def test_a_resize_is_noted_and_keeps_who_is_who() -> None:
    before = load_dataset("fashion_mnist", "sample").subset(np.arange(7))
    after = before.resized(16, 20)
    assert after.notes == ("images resized from 28x28 to 16x20 (bilinear)",)
    assert after.index.tolist() == before.index.tolist()
    assert after.labels.tolist() == before.labels.tolist()


def test_the_same_size_changes_nothing() -> None:
    data = dataset(random_images(3, (9, 5)))
    assert data.resized(9, 5).notes == ()
    assert np.array_equal(data.resized(9, 5).inputs, data.inputs)


def test_the_loader_resizes_on_request() -> None:
    data = load_dataset("digits", resize=(16, 12))
    assert data.shape == (1, 16, 12)
    assert len(data.notes) == 1
