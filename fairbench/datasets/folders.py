"""A user's own images: one folder per class."""

import os
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fairbench.datasets.base import Dataset
from fairbench.errors import DatasetError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
_SPLITS = {"test": ("test", "val", "valid", "validation"), "train": ("train",)}


def load_folder(
    path: Path,
    split: str = "test",
    *,
    name: str | None = None,
    resize: tuple[int, int] | None = None,
    crop: bool = False,
    classes: dict[str, str] | None = None,
) -> Dataset:
    """Read images from ``path/<split>/<class>/*`` or, for the test split, ``path/<class>/*``, in sorted order.

    Grey images stay one channel when all of them are grey; anything else becomes RGB.

    Parameters
    ----------
    resize
        (height, width) every image is brought to while it is read; needed when sizes differ.
    crop
        With ``resize``: scale the shorter edge and cut the centre, instead of squeezing.
    classes
        Folder name to class name, in class order; default: the sorted folder names.

    Raises
    ------
    DatasetError
        Fewer than two classes, an image that cannot be read (named), or images of different sizes without ``resize``.
    """
    name = name or str(path)
    root = _split_folder(path, split, name)
    folders = list(classes) if classes else sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] != ".")
    if len(folders) < 2:
        raise DatasetError(f"{name}: {root} holds {len(folders)} class folder(s); one folder per class, two at least.")
    files = [(file, label) for label, folder in enumerate(folders) for file in _images(root / folder)]
    if not files:
        raise DatasetError(f"{name}: no image ({', '.join(sorted(_SUFFIXES))}) in the class folders of {root}.")
    images = [_read(file, resize, crop) for file, _ in files]
    how = "scaled and cut" if crop else "resized"
    notes = () if resize is None else (f"images {how} to {resize[0]}x{resize[1]} (bilinear)",)
    inputs = _stack(name, [file for file, _ in files], images)
    labels = np.array([label for _, label in files], dtype=np.int64)
    return Dataset(
        name, inputs, labels, tuple(classes.values() if classes else map(_readable, folders)), split=split, notes=notes
    )


def _readable(name: str) -> str:
    """Return a folder's name as text; bytes that are none become a mark."""
    return os.fsencode(name).decode("utf-8", "replace")


def _split_folder(path: Path, split: str, name: str) -> Path:
    for candidate in _SPLITS[split]:
        if (path / candidate).is_dir() and any(p.is_dir() for p in (path / candidate).iterdir()):
            return path / candidate
    if split != "test" or ((path / "train").is_dir() and any(p.is_dir() for p in (path / "train").iterdir())):
        raise DatasetError(f"{name}: no folder '{split}' in {path}; expected {split}/<class>/<image>.")
    return path


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (p for p in folder.rglob("*") if p.suffix.lower() in _SUFFIXES)
    return sorted(p for p in found if not any(part[0] == "." for part in p.relative_to(folder).parts))


def _read(file: Path, resize: tuple[int, int] | None, crop: bool) -> np.ndarray:
    try:
        with Image.open(file) as opened:
            image = _eight_bit(opened)
            return np.asarray(image if resize is None else _scaled(image, *resize, crop=crop))
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetError(f"image {file} cannot be read ({error}); mend or remove it.") from error


def _eight_bit(image: Image.Image) -> Image.Image:
    """Return a grey ("L") or colour ("RGB") image; 16-bit grey is scaled, where PIL would clip it."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode} has no fixed range; store 8 bits a channel")
    return image.convert("L" if image.mode in ("L", "1") else "RGB")


def _scaled(image: Image.Image, height: int, width: int, *, crop: bool) -> Image.Image:
    if crop:
        scale = max(height / image.height, width / image.width)
        size = max(width, round(image.width * scale)), max(height, round(image.height * scale))
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = (image.width - width) // 2, (image.height - height) // 2
        return image.crop((left, top, left + width, top + height))
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _stack(name: str, files: list[Path], images: list[np.ndarray]) -> np.ndarray:
    for file, image in zip(files, images, strict=True):
        if image.shape[:2] != images[0].shape[:2]:
            sizes = [f"{p.name}: {a.shape[0]}x{a.shape[1]}" for p, a in ((files[0], images[0]), (file, image))]
            raise DatasetError(f"{name}: images differ in size ({', '.join(sizes)}); pass --resize HEIGHTxWIDTH.")
    if any(image.ndim == 3 for image in images):
        images = [image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2) for image in images]
        return np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2))
    return np.stack(images)[:, None]
