"""The datasets known by name: what they are, where their files are looked for, how they are downloaded.

torchvision holds the download addresses, the checksums and the file formats; this module adds the layouts people have
on disk (one ``.npz``, bare IDX files) and turns every one into arrays.
"""

import contextlib
import gzip
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairbench.datasets.arrays import as_images, as_labels, load_npz
from fairbench.datasets.base import Dataset
from fairbench.datasets.folders import load_folder
from fairbench.datasets.locate import data_folders
from fairbench.datasets.tabular import CLASSES as ADULT_CLASSES
from fairbench.datasets.tabular import read_adult
from fairbench.errors import DatasetError, FairbenchError, first_line
from fairbench.files import make_folder, remove_empty_folders

Arrays = tuple[np.ndarray, np.ndarray]

_CIFAR100 = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle "
    "caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant "
    "flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man "
    "maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree "
    "plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper "
    "snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train "
    "trout tulip turtle wardrobe whale willow_tree wolf woman worm"
).split()
_IMAGENETTE = {  # WordNet id: the name torchvision gives it first
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


@dataclass(frozen=True)
class NamedDataset:
    """One dataset known by name.

    ``read`` takes (root, split, download) and returns the arrays in torchvision's layout under ``root``; that layout is
    there when one of ``markers`` is (none: nothing needs to be there); ``put`` says what to put where by hand. Where
    the training split lies in files of its own, ``train_markers`` and ``train_put`` are theirs.
    ``shape`` is that of an image, or of a feature vector; ``folder`` is the folder's name where it is another's.
    ``sha256`` is that of the published test split as a :class:`Dataset`, where this project has seen it.
    """

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    test_size: int
    read: Callable[[Path, str, bool], Arrays | Dataset]
    markers: tuple[str, ...]
    put: str
    folder: str | None = None
    sha256: str | None = None
    train_markers: tuple[str, ...] = ()
    train_put: str | None = None

    def markers_of(self, split: str) -> tuple[str, ...]:
        """Return what of a split is looked for."""
        return self.train_markers if split == "train" and self.train_markers else self.markers

    def files_of(self, split: str) -> str:
        """Say which files a split is read from."""
        return self.train_put if split == "train" and self.train_put else self.put

    @property
    def has_features(self) -> bool:
        """Whether its examples are feature vectors, not images."""
        return len(self.shape) == 1


def _torchvision(name: str) -> Any:
    import torchvision

    return getattr(torchvision.datasets, name)


def _cifar(name: str) -> Callable[[Path, str, bool], Arrays]:
    def read(root: Path, split: str, download: bool) -> Arrays:
        data = _torchvision(name)(root, train=split == "train", download=download)
        return np.asarray(data.data), np.asarray(data.targets)

    return read


def _svhn(root: Path, split: str, download: bool) -> Arrays:
    data = _torchvision("SVHN")(root, split=split, download=download)
    return data.data, data.labels


def _fashion_mnist(root: Path, split: str, download: bool) -> Arrays:
    prefix = "train" if split == "train" else "t10k"
    for folder in (root, root / "FashionMNIST" / "raw"):
        files = [folder / f"{prefix}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
        if all(file.is_file() for file in files):
            return _idx(files[0]), _idx(files[1])
    of_both = _torchvision("FashionMNIST")
    own = [resource for resource in of_both.resources if resource[0].startswith(prefix)]
    of_split = type(of_both.__name__, (of_both,), {"resources": own})  # it would ask for, and fetch, both splits' files
    data = of_split(root, train=split == "train", download=download)
    return data.data.numpy(), data.targets.numpy()


def _idx(file: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes: 0, 0, type 8, number of dimensions, each size as big-endian int32, data."""
    try:
        data = gzip.decompress(file.read_bytes())
        if data[:3] != b"\0\0\x08":
            raise ValueError("not unsigned bytes in IDX form")
        shape = np.frombuffer(data, ">i4", count=data[3], offset=4)
        return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise DatasetError(f"{file}: not a readable IDX file ({error}); fetch it again.") from error


def _imagenette(root: Path, split: str, download: bool) -> Dataset:
    folder = root / "imagenette2-160"
    if not folder.is_dir():
        _torchvision("Imagenette")(root, split="val", size="160px", download=download)
    return load_folder(folder, split, name="imagenette", resize=(160, 160), crop=True, classes=_IMAGENETTE)


def _digits(_root: Path, split: str, _download: bool) -> Arrays:
    """Every fifth example is the test split: scikit-learn ships the 1,797 digits without one."""
    from sklearn.datasets import load_digits

    data = load_digits()
    rows = (np.arange(len(data.target)) % 5 == 0) == (split == "test")
    return (data.images[rows] / 16).astype(np.float32), data.target[rows]


def _fashion_markers(prefix: str) -> tuple[str, ...]:
    """Return the last file that a download fetches, packed or not: the folder is there when one failed."""
    raw = f"FashionMNIST/raw/{prefix}-labels-idx1-ubyte"
    return f"{prefix}-images-idx3-ubyte.gz", f"{raw}.gz", raw


def _fashion_files(prefix: str) -> str:
    return f"{prefix}-images-idx3-ubyte.gz and {prefix}-labels-idx1-ubyte.gz"


_ADULT = "adult.data and adult.test of UCI"

NAMED = {
    "cifar10": NamedDataset(
        tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
        (3, 32, 32),
        10_000,
        _cifar("CIFAR10"),
        ("cifar-10-batches-py",),
        "cifar-10-batches-py/ (the unpacked cifar-10-python.tar.gz)",
        sha256="f062132a98fbae1bd049d69bd4397ee44b98ac35536103c311438a7989b880af",
    ),
    "cifar100": NamedDataset(
        tuple(_CIFAR100),
        (3, 32, 32),
        10_000,
        _cifar("CIFAR100"),
        ("cifar-100-python",),
        "cifar-100-python/ (the unpacked cifar-100-python.tar.gz)",
    ),
    "svhn": NamedDataset(
        tuple("0123456789"),
        (3, 32, 32),
        26_032,
        _svhn,
        ("test_32x32.mat",),
        "test_32x32.mat",
        train_markers=("train_32x32.mat",),
        train_put="train_32x32.mat",
    ),
    "fashion_mnist": NamedDataset(
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        (1, 28, 28),
        10_000,
        _fashion_mnist,
        _fashion_markers("t10k"),
        _fashion_files("t10k"),
        sha256="04a5b922b5d65cca81be511d9dfb39ca21ea6507fbdd55076108ad7efc0ac4d9",
        train_markers=_fashion_markers("train"),
        train_put=_fashion_files("train"),
    ),
    "imagenette": NamedDataset(
        tuple(_IMAGENETTE.values()),
        (3, 160, 160),
        3_925,
        _imagenette,
        ("imagenette2-160",),
        "imagenette2-160/ (the unpacked imagenette2-160.tgz)",
    ),
    "digits": NamedDataset(tuple("0123456789"), (1, 8, 8), 360, _digits, (), "nothing: scikit-learn ships it"),
    "adult": NamedDataset(ADULT_CLASSES, (104,), 15_060, read_adult, ("adult.data",), _ADULT),
    "adult_standardized": NamedDataset(
        ADULT_CLASSES,
        (104,),
        15_060,
        partial(read_adult, standardized=True),
        ("adult.data",),
        _ADULT,
        folder="adult",
    ),
}


def has_features(name: str) -> bool:
    """Whether a dataset is known by name and holds feature vectors; one's own data are images."""
    return name in NAMED and NAMED[name].has_features


def load_named(name: str, split: str, data_dir: str | Path | None = None, download: bool = True) -> Dataset:
    """Load a split of a named dataset from the first data folder that has it; download it if none has.

    A note says so where a test split is not the published one: other images may lie under its name.

    Raises
    ------
    DatasetError
        It is nowhere and cannot be downloaded; the message names the file and the folder to put it in.
    """
    data = _found_or_fetched(name, split, data_dir, download)
    note = _differs(NAMED[name], data) if split == "test" else None
    return data if note is None else replace(data, notes=(*data.notes, f"{note} of {name}"))


def _differs(named: NamedDataset, data: Dataset) -> str | None:
    if len(data) != named.test_size:
        return f"{len(data):,} {data.kind}, not the {named.test_size:,} of the published test split"
    if named.sha256 is not None and data.sha256 != named.sha256:
        return "not the images, labels, class names or order of the published test split"
    return None


def _found_or_fetched(name: str, split: str, data_dir: str | Path | None, download: bool) -> Dataset:
    if not NAMED[name].markers:
        return _from_layout(name, Path(), split, False)
    folders = data_folders(data_dir)
    found = find_named(name, folders, split)
    if found is not None and found.suffix == ".npz":
        return load_npz(found, split, name=name, classes=NAMED[name].classes)
    target = folders[-1] / _folder(name)
    if found is not None:  # of a download that broke off in the middle the rest is fetched
        return _from_layout(name, found, split, download and found == target and NAMED[name].has_features)
    if download:
        try:
            return _from_layout(name, make_folder(target), split, True)
        except FairbenchError as error:  # of the data, or of a folder that cannot be written
            reason = f"and the download failed ({error.__cause__ or error})"
            remove_empty_folders(target)
    else:
        reason = "and downloading is off"
    looked = ", ".join(str(folder / _folder(name)) for folder in folders)
    place = folders[0] / _folder(name)  # the one that was named, if one was
    raise DatasetError(f"{name} was not found in {looked}, {reason}. Put {_files(name, split)}, in {place}.")


def _files(name: str, split: str) -> str:
    npz = "" if NAMED[name].has_features else f", or {name}.npz with x_{split} and y_{split}"
    return f"{NAMED[name].files_of(split)}{npz}"


def _folder(name: str) -> str:
    return NAMED[name].folder or name


def find_named(name: str, folders: list[Path], split: str = "test") -> Path | None:
    """Return the ``.npz`` file, or the folder with torchvision's layout, that holds a split; None if none does.

    Only looks at names: nothing is read.
    """
    for folder in folders:
        npz = folder / name / f"{name}.npz"
        if npz.is_file() and not NAMED[name].has_features:
            return npz
        for root in (folder / _folder(name), folder):
            if any((root / marker).exists() for marker in NAMED[name].markers_of(split)):
                return root
    return None


def _from_layout(name: str, root: Path, split: str, download: bool) -> Dataset:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torchvision warns about its own use of numpy
            with contextlib.redirect_stdout(sys.stderr):  # and reports downloads with print
                read = NAMED[name].read(root, split, download)
    except DatasetError:
        raise
    except Exception as error:  # torchvision lets through whatever its transport or its decoders raised
        raise DatasetError(
            f"{name} in {root} cannot be read ({first_line(error)}); remove it and fetch it again: the {split} split "
            f"needs {_files(name, split)}."
        ) from error
    if isinstance(read, Dataset):
        return read
    return Dataset(name, as_images(name, read[0]), as_labels(name, read[1]), NAMED[name].classes, split=split)
