"""A user's ``.npz``: every layout people store, and a clear line for what cannot be used."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairbench.datasets import load_dataset
from fairbench.errors import DatasetError

LABELS = np.array([0, 1, 2, 0, 1, 2])


def images(channels: int) -> np.ndarray:
    """(6, C, 5, 7) uint8: a rectangle whose height, width and channels cannot be mistaken for each other."""
    return np.random.default_rng(0).integers(0, 256, (6, channels, 5, 7), dtype=np.uint8)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


LAYOUTS = {
    "N,H,W": (1, lambda a: a[:, 0]),
    "N,1,H,W": (1, lambda a: a),
    "N,H,W,1": (1, lambda a: a.transpose(0, 2, 3, 1)),
    "N,3,H,W": (3, lambda a: a),
    "N,H,W,3": (3, lambda a: a.transpose(0, 2, 3, 1)),
}


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_batch(layout: str, dtype: type, tmp_path: Path) -> None:
    channels, arrange = LAYOUTS[layout]
    original = images(channels)
    stored = original if dtype is np.uint8 else (original / 255).astype(dtype)
    data = load_dataset(save(tmp_path / "own.npz", x_test=arrange(stored), y_test=LABELS))
    x, y, index = data.batch(slice(None))
    assert data.shape == (channels, 5, 7)
    assert np.allclose(x.numpy(), original / 255, atol=1e-3 if dtype is np.float16 else 1e-6)
    assert x.dtype.is_floating_point
    assert y.tolist() == LABELS.tolist()
    assert index.tolist() == [0, 1, 2, 3, 4, 5]


def test_bytes_stay_bytes_in_memory(tmp_path: Path) -> None:
    data = load_dataset(save(tmp_path / "own.npz", x=images(3), y=LABELS))
    assert data.inputs.dtype == np.uint8


@pytest.mark.parametrize(
    "keys", [("x_test", "y_test"), ("x", "y"), ("images", "labels"), ("inputs", "labels"), ("data", "labels")]
)
def test_the_test_split_is_found_under_the_usual_keys(keys: tuple[str, str], tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", **{keys[0]: images(1), keys[1]: LABELS})
    assert load_dataset(path).labels.tolist() == LABELS.tolist()


def test_train_and_test_are_told_apart(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x_train=images(1), y_train=LABELS, x_test=images(1)[:2], y_test=LABELS[:2])
    assert (len(load_dataset(path, "train")), len(load_dataset(path, "test"))) == (6, 2)


@pytest.mark.parametrize(
    "labels",
    [LABELS.astype(np.uint8), LABELS.astype(np.int32), LABELS.astype(np.float32), LABELS[:, None]],
    ids=["uint8", "int32", "whole floats", "(N, 1)"],
)
def test_labels_of_any_whole_type_become_int64(labels: np.ndarray, tmp_path: Path) -> None:
    data = load_dataset(save(tmp_path / "own.npz", x=images(1), y=labels))
    assert data.labels.dtype == np.int64
    assert data.labels.tolist() == LABELS.tolist()


def test_class_names_and_indices_come_from_the_file(tmp_path: Path) -> None:
    positions = np.array([5, 9, 1000, 2, 7, 30])
    names = np.array(["cat", "dog", "eel", "fox"])
    data = load_dataset(save(tmp_path / "own.npz", x=images(3), y=LABELS, classes=names, index=positions))
    assert data.classes == ("cat", "dog", "eel", "fox")
    assert data.index.tolist() == positions.tolist()


def test_class_names_kept_as_bytes_are_text(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x=images(3), y=LABELS, classes=np.array([b"cat", "d\u00f6g".encode(), b"eel"]))
    assert load_dataset(path).classes == ("cat", "d\u00f6g", "eel")


def test_without_names_classes_are_numbers_up_to_the_largest_label(tmp_path: Path) -> None:
    data = load_dataset(save(tmp_path / "own.npz", x=images(1), y=np.array([0, 4, 4, 0, 0, 0])))
    assert data.classes == ("0", "1", "2", "3", "4")


def test_labels_without_a_0_are_said_to_start_there_unless_their_classes_are_named(tmp_path: Path) -> None:
    path, named = tmp_path / "own.npz", tmp_path / "named.npz"
    data = load_dataset(save(path, x=images(1), y=LABELS + 1))
    assert data.num_classes == 4
    assert data.notes == (
        "labels start at 0, and these, up to 3, have no example of class 0; if they are numbered from 1, subtract 1, "
        "else name the classes in an array 'classes'",
    )
    classes = np.array(["a", "b", "c", "d"])
    assert load_dataset(save(named, x=images(1), y=LABELS + 1, classes=classes)).notes == ()
    assert load_dataset(save(path, x=images(1), y=LABELS)).notes == ()


def test_a_quick_selection_of_many_classes_is_about_a_thousand_images(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(50), 30)
    inputs = np.zeros((len(labels), 2, 2), dtype=np.uint8)
    data = load_dataset(save(tmp_path / "own.npz", x=inputs, y=labels), "sample")
    assert np.bincount(data.labels).tolist() == [20] * 50
    assert data.index[:21].tolist() == [*range(20), 30]


def normalised() -> np.ndarray:
    return ((images(3) / 255 - 0.5) / 0.25).astype(np.float32)


def with_nan() -> np.ndarray:
    array = (images(3) / 255).astype(np.float32)
    array[4, 1, 2, 3] = np.nan
    return array


def relabelled(position: int, label: float) -> np.ndarray:
    labels = LABELS.astype(np.float64)
    labels[position] = label
    return labels if label % 1 else labels.astype(np.int64)


X3 = images(3)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "normalised pixels": ({"x": normalised(), "y": LABELS}, "look normalised already: .* pass --mean and --std"),
    "floats in 0..255": ({"x": X3.astype(np.float32), "y": LABELS}, "look like 0..255: .* divide by 255"),
    "NaN pixels": ({"x": with_nan(), "y": LABELS}, "image 4 holds NaN or infinite pixels"),
    "int64 pixels": ({"x": X3.astype(np.int64), "y": LABELS}, "images are int64; store uint8"),
    "boolean pixels": ({"x": X3 > 9, "y": LABELS}, "images are bool; store uint8"),
    "two channels": ({"x": images(2), "y": LABELS}, "1 or 3 channels"),
    "ambiguous layout": ({"x": np.zeros((6, 3, 8, 3), np.uint8), "y": LABELS}, r"may be \(N, C, H, W\) or"),
    "flat images": ({"x": np.zeros((6, 64), np.uint8), "y": LABELS}, "shape"),
    "no images": ({"x": X3[:0], "y": LABELS[:0]}, "."),
    "one label too few": ({"x": X3, "y": LABELS[:5]}, "6 images but 5 labels"),
    "negative label": ({"x": X3, "y": relabelled(2, -1)}, "label -1 is negative; labels are 0..K-1"),
    "too large label": (
        {"x": X3, "y": relabelled(2, 4), "classes": np.array(["a", "b", "c"])},
        r"label 4 is outside 0..2 \(3 classes\)",
    ),
    "label past what a table holds": ({"x": X3, "y": relabelled(2, 40_000)}, "40,?00[01]"),
    "fractional label": ({"x": X3, "y": relabelled(2, 0.5)}, "not one whole number an image"),
    "NaN label": ({"x": X3, "y": relabelled(2, np.nan)}, "label"),
    "infinite label": ({"x": X3, "y": relabelled(2, np.inf)}, "label"),
    "one-hot labels": ({"x": X3, "y": np.eye(3)[LABELS]}, "not one whole number an image"),
    "text labels": ({"x": X3, "y": np.array(list("abcabc"))}, "not one whole number an image"),
    "one class": ({"x": X3, "y": np.zeros(6, np.int64)}, "only 1 class; a classifier needs at least two"),
    "class names that repeat": ({"x": X3, "y": LABELS, "classes": np.array(["a", "b", "a"])}, "not distinct"),
    "class names that are one text": ({"x": X3, "y": LABELS, "classes": np.array("abc")}, "class"),
    "an index twice": ({"x": X3, "y": LABELS, "index": np.zeros(6, np.int64)}, "index stands twice"),
    "missing keys": ({"pictures": X3, "tags": LABELS}, "holds pictures, tags, .* needs x_test and y_test or x and y"),
    "pickled objects": ({"x": X3, "y": np.array([0, 1, 2, 0, 1, None])}, "not a readable .npz of plain arrays"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_unusable_arrays_are_refused_with_one_line_that_names_the_file(fault: str, tmp_path: Path) -> None:
    arrays, message = REFUSED[fault]
    path = save(tmp_path / "own.npz", **arrays)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickled_objects_are_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.touch, (marker,)  # type: ignore[return-value]

    path = save(tmp_path / "own.npz", x=np.array([Payload()], dtype=object), y=LABELS)
    with pytest.raises(DatasetError):
        load_dataset(path)
    assert not marker.exists()


def test_the_training_split_needs_its_own_keys(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="the train split needs x_train and y_train"):
        load_dataset(save(tmp_path / "own.npz", x=X3, y=LABELS), "train")


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    """Damage the compressed pixels and leave the archive's directory whole."""
    damaged = bytearray(data)
    for position in range(200, 260):
        damaged[position] ^= 0xFF
    return bytes(damaged)


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def huge() -> bytes:
    """An array whose header promises more than any memory holds."""
    data = npy(X3)
    start, end = data.index(b"'shape': "), data.index(b"\n")
    return data[:start] + b"'shape': (9999999999999999,), }".ljust(end - start) + data[end:]


def zipped(members: dict[str, bytes], method: int, *, damaged: bool = False) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    data = bytearray(stream.getvalue())
    if damaged:
        data[60:90] = bytes(30)
    return bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        flipped,
        lambda _: b"",
        lambda _: b"<!DOCTYPE html><html></html>",
        lambda _: b"PK\x03\x04",
        lambda _: npy(X3),
        lambda _: zipped({"x.npy": npy(X3), "y.npy": npy(LABELS)}, zipfile.ZIP_LZMA, damaged=True),
        lambda _: zipped({"x.npy": huge(), "y.npy": npy(LABELS)}, zipfile.ZIP_STORED),
    ],
    ids=["truncated", "flipped", "empty", "web page", "a zip's first bytes", "one array", "LZMA", "huge shape"],
)
def test_a_damaged_file_is_refused(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez_compressed(path, x=X3, y=LABELS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=r"own\.npz: not a readable \.npz"):
        load_dataset(path)


def test_reading_warns_of_nothing(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", x=X3, y=LABELS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_dataset(path)
    assert caught == []


def test_positions_in_the_test_split_are_not_those_of_the_training_images(tmp_path: Path) -> None:
    arrays = {"x_train": images(1), "y_train": LABELS, "x_test": images(1)[:4], "y_test": LABELS[:4]}
    path = save(tmp_path / "both.npz", **arrays, index=np.array([7, 5, 3, 1]))
    assert load_dataset(str(path), "train").index.tolist() == list(range(6))
    assert load_dataset(str(path), "test").index.tolist() == [7, 5, 3, 1]


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
