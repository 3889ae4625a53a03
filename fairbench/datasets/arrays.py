"""Arrays as people store them, brought to (N, C, H, W) images and int64 labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fairbench.datasets.base import Dataset
from fairbench.errors import DatasetError, FairbenchError, first_line

_NO_INDEX = np.empty(0, dtype=np.int64)
MAX_LABEL = 2**15 - 1
"""The outcome table keeps labels as int16."""

_PAIRS = {"test": ("x_test", "y_test"), "train": ("x_train", "y_train")}
_PLAIN = (("x", "y"), ("images", "labels"), ("inputs", "labels"), ("data", "labels"))


def load_npz(path: Path, split: str = "test", *, name: str | None = None, classes: tuple[str, ...] = ()) -> Dataset:
    """Read a ``.npz`` with ``x_test, y_test`` (and ``x_train, y_train``), or ``x, y`` alone for the test split.

    An array ``classes`` of strings in the file names the classes; otherwise ``classes``, otherwise 0..max label.

    Raises
    ------
    DatasetError
        The file is not a readable ``.npz`` of plain arrays, or the arrays are not images and labels.
    """
    name = name or str(path)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            x_key, y_key = _keys(name, archive.files, split)
            inputs, labels = archive[x_key], archive[y_key]
            if "classes" in archive.files:
                classes = tuple(map(_text, np.atleast_1d(archive["classes"])))
            index = _whole_numbers(name, "index", archive["index"]) if _has_index(archive.files, split) else _NO_INDEX
    except FairbenchError:
        raise
    except Exception as error:  # whatever zip, its decoders and NumPy's parser raise of a damaged or strange file
        raise DatasetError(f"{name}: not a readable .npz of plain arrays ({first_line(error)}).") from error
    labels = as_labels(name, labels)
    if classes:
        return Dataset(name, as_images(name, inputs), labels, classes, index, split)
    classes = tuple(str(c) for c in range(int(labels.max(initial=-1)) + 1))
    data = Dataset(name, as_images(name, inputs), labels, classes, index, split)
    if (said := data.no_first_class) is None:
        return data
    return replace(data, notes=(f"{said}, else name the classes in an array 'classes'",))


def _text(name: object) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _has_index(present: list[str], split: str) -> bool:
    """Whether the file says where in the test split each example lies; of its training split it says nothing."""
    return split == "test" and "index" in present


def _keys(name: str, present: list[str], split: str) -> tuple[str, str]:
    candidates = [_PAIRS[split], *(_PLAIN if split == "test" else ())]
    for pair in candidates:
        if set(pair) <= set(present):
            return pair
    wanted = " or ".join(" and ".join(pair) for pair in candidates[:2])
    raise DatasetError(
        f"{name}: holds {', '.join(sorted(present)) or 'nothing'}, but the {split} split needs {wanted}."
    )


def as_images(name: str, array: np.ndarray) -> np.ndarray:
    """Return (N, C, H, W) from (N, H, W), (N, H, W, C) or (N, C, H, W); bytes stay bytes, floats become float32."""
    if array.dtype not in (np.uint8, np.float32, np.float64, np.float16):
        raise DatasetError(f"{name}: images are {array.dtype}; store uint8 in 0..255, or float32 in [0, 1].")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] in (1, 3):
        raise DatasetError(f"{name}: shape {array.shape} may be (N, C, H, W) or (N, H, W, C); make it unambiguous.")
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(array, dtype=np.uint8 if array.dtype == np.uint8 else np.float32)


def as_labels(name: str, array: np.ndarray) -> np.ndarray:
    """Return (N,) int64 labels from whole numbers of any type, (N,) or (N, 1)."""
    labels = _whole_numbers(name, "labels", array)
    if len(labels) and labels.min() < 0:
        raise DatasetError(f"{name}: label {labels.min()} is negative; labels are 0..K-1.")
    if len(labels) and labels.max() > MAX_LABEL:
        raise DatasetError(f"{name}: label {labels.max()} is more than {MAX_LABEL}; labels are 0..K-1.")
    return labels


def _whole_numbers(name: str, what: str, array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
    whole = flat.ndim == 1 and flat.dtype.kind in "iuf" and bool(np.isfinite(flat).all())
    if not whole or not np.array_equal(flat, np.round(flat)) or (np.abs(flat.astype(np.float64)) >= 2**63).any():
        raise DatasetError(f"{name}: {what} are {array.dtype} of shape {array.shape}, not one whole number an image.")
    return flat.astype(np.int64)
