"""Image folders that a review found misread: the right reading of each."""

import numpy as np
import pytest
from PIL import Image

from fairbench.datasets import load_dataset
from fairbench.errors import DatasetError


def folder(root, image, classes=("a", "b")):
    for name in classes:
        (root / name).mkdir(parents=True)
        image.save(root / name / "0.png")
    return root


def test_sixteen_bit_grey_is_scaled_and_not_clipped(tmp_path):
    eight = np.arange(64, dtype=np.uint16).reshape(8, 8) * 4
    loaded = load_dataset(folder(tmp_path / "d", Image.fromarray((eight * 257).astype(np.uint16))))
    assert loaded.shape == (1, 8, 8)
    assert np.array_equal(loaded.inputs[0, 0], eight)


def test_hidden_folders_are_not_data(tmp_path):
    root = folder(tmp_path / "d", Image.new("L", (4, 4)))
    (root / "a" / ".ipynb_checkpoints").mkdir()
    Image.new("L", (4, 4)).save(root / "a" / ".ipynb_checkpoints" / "0-checkpoint.png")
    assert len(load_dataset(root)) == 2


def test_a_class_may_be_called_test(tmp_path):
    assert load_dataset(folder(tmp_path / "d", Image.new("L", (4, 4)), ("fresh", "test"))).classes == ("fresh", "test")


def test_a_class_may_be_called_train(tmp_path):
    classes = ("car", "plane", "train")
    assert load_dataset(folder(tmp_path / "d", Image.new("L", (4, 4)), classes)).classes == classes


@pytest.mark.parametrize("index", [[-1, 2, 3, 4], [0, 1, 2, 2**60], 7, [0, 1, 2, float("nan")]])
def test_an_odd_index_is_one_clear_error(index, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 4, 4), np.uint8), y=[0, 1, 0, 1], index=index)
    with pytest.raises(DatasetError):
        load_dataset(tmp_path / "d.npz")


def test_images_without_a_pixel_and_images_too_large_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 0, 4), np.uint8), y=[0, 1, 0, 1])
    with pytest.raises(DatasetError, match="no pixel"):
        load_dataset(tmp_path / "d.npz")
    with pytest.raises(DatasetError, match="would not fit in memory"):
        load_dataset("digits", resize=(10_000, 10_000))
