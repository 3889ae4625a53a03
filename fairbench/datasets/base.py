"""The one form every dataset takes: inputs, labels, class names, and who each example is.

Inputs are images, or the feature vectors of a table. Images stay 8-bit in memory when they were 8-bit on disk (a
quarter of the memory, and resizing happens where the field does it); a batch is turned into float32 in [0, 1] when it
is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fairbench.datasets.features import Features
from fairbench.errors import DatasetError
from fairbench.provenance import sha256_array, sha256_bytes
from fairbench.randomness import MAX_INDEX

if TYPE_CHECKING:
    import torch

_LARGEST = 2**33
"""Pixels that are held in memory at most."""


@dataclass(frozen=True)
class Dataset:
    """Labelled images, or feature vectors where ``features`` describes them.

    Parameters
    ----------
    name
        Name in the registry, or the path it was read from.
    inputs
        Images: (N, C, H, W), uint8 in 0..255 or float32 in [0, 1]; C is 1 or 3. Feature vectors: (N, F) float32.
    labels
        (N,) int64 in 0..K-1.
    classes
        The K class names; K >= 2. A class may have no example.
    index
        (N,) int64, each example's position in its split; the random start of an attack depends on it. Default 0..N-1.
    split
        Where the examples are from ("test", "train"), or "sample" for the ones shipped with the package.
    attributes
        Further (N,) columns by name, carried into the outcome table.
    notes
        What was done to the data on the way (a resize), for the report.
    features
        What the F columns are; None for images.

    Raises
    ------
    DatasetError
        Shapes, types or values other than these.
    """

    name: str
    inputs: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    index: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    split: str = "test"
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    features: Features | None = None

    def __post_init__(self) -> None:
        if not len(self.index):
            object.__setattr__(self, "index", np.arange(len(self.labels), dtype=np.int64))
        if self.features is None:
            _check_images(self.name, self.inputs)
        else:
            _check_features(self.name, self.inputs, self.features)
        _check_labels(self.name, self.labels, self.classes)
        columns = {"labels": self.labels, "index": self.index, **self.attributes}
        for column, values in columns.items():
            if len(values) != len(self.inputs):
                raise DatasetError(f"{self.name}: {len(self.inputs)} {self.kind} but {len(values)} {column}.")
        if len(np.unique(self.index)) != len(self.index):
            raise DatasetError(f"{self.name}: the same example index stands twice.")
        if self.index.min() < 0 or self.index.max() >= MAX_INDEX:
            raise DatasetError(f"{self.name}: an example index is outside 0..{MAX_INDEX - 1}.")

    def __repr__(self) -> str:
        return f"<Dataset {self.name}, {self.split}: {len(self):,} {self.described_shape}, {self.num_classes} classes>"

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """K, absent classes included."""
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W) of one image, or (F,)."""
        return self.inputs.shape[1:]

    @property
    def kind(self) -> str:
        """What an example is: "images" or "rows"."""
        return "images" if self.features is None else "rows"

    @property
    def no_first_class(self) -> str | None:
        """Say it where classes without names have no example of class 0: labels from 1 on would make one too many."""
        if self.classes != tuple(map(str, range(self.num_classes))) or (self.labels == 0).any():
            return None
        return _numbered_from_one(self.labels)

    @property
    def described_shape(self) -> str:
        """Say what a model has to take, for errors."""
        if self.features is not None:
            return f"rows of {len(self.features.names)} features"
        return f"images of {'x'.join(map(str, self.shape))} (channels x height x width)"

    @cached_property
    def sha256(self) -> str:
        """Hash of inputs, labels, indices, attributes, class names and what the features are."""
        attributes = [part for name in sorted(self.attributes) for part in (np.array(name), self.attributes[name])]
        return sha256_bytes(
            sha256_array(self.inputs, self.labels, self.index).encode(),
            "\0".join(self.classes).encode(),
            *(str(np.asarray(part).tolist()).encode() for part in attributes),
            *([] if self.features is None else [self.features.sha256.encode()]),
        )

    def batch(self, rows: np.ndarray | slice) -> "tuple[torch.Tensor, torch.Tensor, np.ndarray]":
        """Return ``x`` (B, ...) float32, ``y`` (B,) int64 and ``index`` (B,) int64 of some rows; pixels in [0, 1]."""
        import torch

        x = plain_tensor(self.inputs[rows])
        x = x.float().div_(255) if self.inputs.dtype == np.uint8 else x.float()
        return x, torch.from_numpy(np.ascontiguousarray(self.labels[rows])), self.index[rows]

    def subset(self, rows: np.ndarray) -> "Dataset":
        """Return the examples at some positions; they keep their ``index``."""
        attributes = {name: values[rows] for name, values in self.attributes.items()}
        return replace(
            self, inputs=self.inputs[rows], labels=self.labels[rows], index=self.index[rows], attributes=attributes
        )

    def first_per_class(self, count: int) -> "Dataset":
        """Return the first ``count`` examples of each class (all of a class that has fewer), in their own order."""
        rows = np.concatenate([np.flatnonzero(self.labels == c)[:count] for c in range(self.num_classes)])
        return self.subset(np.sort(rows))

    def without_classes(self, drop: tuple[int, ...]) -> "Dataset":
        """Return the examples of the other classes, numbered anew in order (``sun2023``, Table 4).

        Raises
        ------
        DatasetError
            A class that is not there, or fewer than two left.
        """
        unknown = [c for c in drop if not 0 <= c < self.num_classes]
        if unknown:
            raise DatasetError(f"--drop-classes {unknown[0]}: classes are 0..{self.num_classes - 1}.")
        if not drop:
            return self
        keep = [c for c in range(self.num_classes) if c not in drop]
        if len(keep) < 2:
            raise DatasetError(f"--drop-classes leaves {len(keep)} class(es); two at least are needed.")
        kept = np.isin(self.labels, keep)
        attributes = {name: values[kept] for name, values in self.attributes.items()}
        return replace(
            self,
            inputs=self.inputs[kept],
            labels=np.searchsorted(keep, self.labels[kept]).astype(np.int64),
            classes=tuple(self.classes[c] for c in keep),
            index=self.index[kept],
            attributes=attributes,
            notes=(*self.notes, f"without {', '.join(self.classes[c] for c in sorted(set(drop)))}"),
        )

    def quick_sample(self) -> "Dataset":
        """Return what the quick protocol attacks: the first 100 of each class, fewer from 11 classes on (1,000 in all).

        A sample comes back as it is.
        """
        if self.split == "sample":
            return self
        return replace(self.first_per_class(max(1, min(100, 1000 // self.num_classes))), split="sample")

    def resized(self, height: int, width: int) -> "Dataset":
        """Return the images at another size, as torchvision's ``Resize`` makes them: bilinear, antialiased.

        8-bit images are resized as 8-bit PIL images, before any division by 255, because that is what
        ``Compose([Resize(n), ToTensor()])`` does; float images are resized as tensors.

        Raises
        ------
        DatasetError
            The inputs are no images, or would not fit in memory.
        """
        if self.features is not None:
            raise DatasetError(
                f"{self.name} holds {self.described_shape}, which cannot be resized to images of {height}x{width}; "
                "take a model for features, such as --arch mlp, and no --resize."
            )
        if (height, width) == self.shape[1:]:
            return self
        if self.inputs[:, :, 0, 0].size * height * width > _LARGEST:
            raise DatasetError(f"{self.name}: {len(self)} images of {height}x{width} would not fit in memory.")
        old = "x".join(map(str, self.shape[1:]))
        note = f"images resized from {old} to {height}x{width} (bilinear)"
        return replace(self, inputs=_resize(self.inputs, height, width), notes=(*self.notes, note))


def plain_tensor(array: np.ndarray) -> "torch.Tensor":
    """Copy an array to a tensor with the strides of its shape: NumPy leaves that of a single channel as it comes.

    PyTorch reads the memory layout off such a stride, and hands it on through a whole network.
    """
    import torch

    shaped = torch.from_numpy(np.ascontiguousarray(array))
    return torch.empty(shaped.shape, dtype=shaped.dtype).copy_(shaped)


def _resize(inputs: np.ndarray, height: int, width: int) -> np.ndarray:
    if inputs.dtype != np.uint8:
        import torch
        from torchvision.transforms.functional import resize

        return (
            resize(torch.from_numpy(np.ascontiguousarray(inputs)), [height, width], antialias=True).clamp(0, 1).numpy()
        )
    resized = np.empty((*inputs.shape[:2], height, width), dtype=np.uint8)
    for image, out in zip(inputs, resized, strict=True):
        for channel, target in zip(image, out, strict=True):  # PIL resizes each channel on its own
            target[:] = np.asarray(Image.fromarray(channel).resize((width, height), Image.Resampling.BILINEAR))
    return resized


def _check_images(name: str, inputs: np.ndarray) -> None:
    if inputs.ndim != 4 or inputs.shape[1] not in (1, 3):
        raise DatasetError(f"{name}: images have shape {inputs.shape}, not (N, C, H, W) with 1 or 3 channels.")
    if 0 in inputs.shape[1:]:
        raise DatasetError(f"{name}: images of {inputs.shape[2]}x{inputs.shape[3]} have no pixel.")
    if not len(inputs):
        raise DatasetError(f"{name}: no images.")
    if inputs.dtype == np.uint8:
        return
    if inputs.dtype != np.float32:
        raise DatasetError(f"{name}: images are {inputs.dtype}; store uint8 in 0..255, or float32 in [0, 1].")
    if not np.isfinite(inputs).all():
        first = int(np.argwhere(~np.isfinite(inputs).all(axis=(1, 2, 3)))[0, 0])
        raise DatasetError(f"{name}: image {first} holds NaN or infinite pixels.")
    low, high = float(inputs.min()), float(inputs.max())
    if low < 0 or high > 1:
        scale = (
            "they look like 0..255: store them as uint8, or divide by 255"
            if low >= 0 and high > 2
            else "they look normalised already: store plain pixels and pass --mean and --std"
        )
        raise DatasetError(f"{name}: pixels run from {low:.3g} to {high:.3g}, not within [0, 1]; {scale}.")


def _check_features(name: str, inputs: np.ndarray, features: Features) -> None:
    if inputs.ndim != 2 or inputs.dtype != np.float32 or inputs.shape[1] != len(features.names):
        raise DatasetError(
            f"{name}: features are {inputs.dtype} of shape {inputs.shape}, not float32 of shape "
            f"(N, {len(features.names)})."
        )
    if not len(inputs):
        raise DatasetError(f"{name}: no rows.")
    if not np.isfinite(inputs).all():
        row, column = (int(v) for v in np.argwhere(~np.isfinite(inputs))[0])
        raise DatasetError(f"{name}: row {row} holds NaN or infinity in {features.names[column]}.")


def _check_labels(name: str, labels: np.ndarray, classes: tuple[str, ...]) -> None:
    if labels.ndim != 1 or labels.dtype != np.int64:
        raise DatasetError(f"{name}: labels are {labels.dtype} of shape {labels.shape}, not int64 of shape (N,).")
    if len(classes) < 2:
        raise DatasetError(f"{name}: only {len(classes)} class; a classifier needs at least two.")
    if len(set(classes)) != len(classes):
        raise DatasetError(f"{name}: class names are not distinct: {', '.join(classes)}.")
    if len(labels) and not (labels.min() >= 0 and labels.max() < len(classes)):
        bad = int(labels.min() if labels.min() < 0 else labels.max())
        why = f"; {_numbered_from_one(labels)}" if labels.min() > 0 else ""
        raise DatasetError(f"{name}: label {bad} is outside 0..{len(classes) - 1} ({len(classes)} classes){why}.")


def _numbered_from_one(labels: np.ndarray) -> str:
    return (
        f"labels start at 0, and these, up to {labels.max()}, have no example of class 0; if they are numbered from 1, "
        "subtract 1"
    )
