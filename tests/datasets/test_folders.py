"""A user's images, one folder per class."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairbench.datasets import load_dataset
from fairbench.datasets.folders import load_folder
from fairbench.errors import DatasetError

Size = tuple[int, int]


def picture(path: Path, size: Size = (4, 6), mode: str = "RGB", seed: int = 0) -> np.ndarray:
    """Write a (height, width) image without loss and return its pixels."""
    shape = size if mode == "L" else (*size, 3)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """Two classes, RGB, 4x6: cat has two images, dog has one."""
    root = tmp_path / "animals"
    picture(root / "dog" / "1.png", seed=3)
    picture(root / "cat" / "b.png", seed=2)
    picture(root / "cat" / "a.png", seed=1)
    return root


def test_classes_are_the_sorted_folders_and_images_the_sorted_files(animals: Path) -> None:
    data = load_dataset(animals)
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 0, 1]
    assert data.shape == (3, 4, 6)
    for row, seed in enumerate((1, 2, 3)):
        expected = picture(animals.parent / "again.png", seed=seed)
        assert np.array_equal(data.inputs[row], expected.transpose(2, 0, 1))


@pytest.mark.parametrize("folder", ["test", "val", "valid", "validation"])
def test_a_test_split_is_found_under_its_usual_names(folder: str, tmp_path: Path) -> None:
    for split, count in (("train", 3), (folder, 2)):
        for label in ("cat", "dog"):
            for number in range(count):
                picture(tmp_path / split / label / f"{number}.png")
    assert len(load_dataset(tmp_path, "test")) == 4
    assert len(load_dataset(tmp_path, "train")) == 6


def test_a_missing_split_is_not_replaced_by_another(tmp_path: Path, animals: Path) -> None:
    for label in ("cat", "dog"):
        picture(tmp_path / "data" / "train" / label / "1.png")
    with pytest.raises(DatasetError, match="no folder 'test'"):
        load_dataset(tmp_path / "data", "test")
    with pytest.raises(DatasetError, match="no folder 'train'"):
        load_dataset(animals, "train")


def test_grey_images_stay_one_channel(tmp_path: Path) -> None:
    cat = picture(tmp_path / "cat" / "1.png", mode="L", seed=1)
    picture(tmp_path / "dog" / "1.png", mode="L", seed=2)
    data = load_dataset(tmp_path)
    assert data.shape == (1, 4, 6)
    assert np.array_equal(data.inputs[0, 0], cat)


def test_grey_among_colour_becomes_colour(tmp_path: Path) -> None:
    cat = picture(tmp_path / "cat" / "1.png", mode="L", seed=1)
    dog = picture(tmp_path / "dog" / "1.png", seed=2)
    data = load_dataset(tmp_path)
    assert data.shape == (3, 4, 6)
    assert np.array_equal(data.inputs[0], np.stack([cat] * 3))
    assert np.array_equal(data.inputs[1], dog.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["P", "RGBA", "1"])
def test_other_colour_modes_are_read(mode: str, tmp_path: Path) -> None:
    for label, level in (("cat", 0), ("dog", 255)):
        (tmp_path / label).mkdir()
        Image.new("RGB", (6, 4), (level, level, level)).convert(mode).save(tmp_path / label / "1.png")
    data = load_dataset(tmp_path)
    assert data.inputs[0].max() == 0
    assert data.inputs[1].min() == 255


def test_files_that_are_no_images_are_left_out(animals: Path) -> None:
    (animals / "cat" / "notes.txt").write_text("not an image")
    (animals / "cat" / ".hidden.png").write_bytes(b"")
    (animals / ".cache").mkdir()
    assert len(load_dataset(animals)) == 3
    assert load_dataset(animals).classes == ("cat", "dog")


def test_a_class_without_images_stays_a_class(animals: Path) -> None:
    (animals / "eel").mkdir()
    data = load_dataset(animals)
    assert data.classes == ("cat", "dog", "eel")
    assert data.labels.max() == 1


def test_images_of_different_sizes_need_a_resize(animals: Path) -> None:
    picture(animals / "dog" / "large.png", (9, 5))
    with pytest.raises(DatasetError, match=r"a\.png: 4x6, large\.png: 9x5\); pass --resize"):
        load_dataset(animals)


@pytest.mark.parametrize("size", [(8, 8), (5, 7)])
def test_a_resize_brings_images_of_different_sizes_together_and_says_so(size: Size, animals: Path) -> None:
    picture(animals / "dog" / "large.png", (9, 5))
    data = load_dataset(animals, resize=size)
    assert data.shape == (3, *size)
    assert any(f"{size[0]}x{size[1]}" in note for note in data.notes)


def test_a_crop_keeps_proportions(tmp_path: Path) -> None:
    """A wide image whose middle third is white: scaled by its height and cut, only the white is left."""
    for label in ("cat", "dog"):
        pixels = np.zeros((10, 30, 3), dtype=np.uint8)
        pixels[:, 10:20] = 255
        (tmp_path / label).mkdir()
        Image.fromarray(pixels).save(tmp_path / label / "1.png")
    data = load_folder(tmp_path, resize=(10, 10), crop=True)
    assert data.shape == (3, 10, 10)
    assert data.inputs.min() == 255


BROKEN = {
    "text": lambda whole: b"this is no image",
    "empty": lambda whole: b"",
    "cut short": lambda whole: whole[: len(whole) // 2],
    "web page": lambda whole: b"<html>Sign in</html>",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_an_unreadable_image_is_named(fault: str, animals: Path) -> None:
    bad = animals / "cat" / "bad.png"
    picture(bad, (64, 64))
    bad.write_bytes(BROKEN[fault](bad.read_bytes()))
    with pytest.raises(DatasetError, match=r"bad\.png cannot be read") as caught:
        load_dataset(animals)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("classes", [0, 1])
def test_fewer_than_two_classes_are_refused(classes: int, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for label in range(classes):
        picture(root / str(label) / "1.png")
    with pytest.raises(DatasetError, match=rf"holds {classes} class folder\(s\); one folder per class, two at least"):
        load_dataset(root)


def test_class_folders_without_an_image_are_refused(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
    with pytest.raises(DatasetError, match="no image"):
        load_dataset(tmp_path)


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
