"""``load_dataset``: one entry for names, files, folders and the shipped samples."""

from pathlib import Path

from fairbench.datasets.arrays import load_npz
from fairbench.datasets.base import Dataset
from fairbench.datasets.folders import load_folder
from fairbench.datasets.named import NAMED, load_named
from fairbench.datasets.samples import SAMPLES, load_sample
from fairbench.errors import DatasetError
from fairbench.files import user_path
from fairbench.registry import suggest


def load_dataset(
    name: str | Path,
    split: str = "test",
    *,
    data_dir: str | Path | None = None,
    resize: tuple[int, int] | None = None,
    download: bool = True,
) -> Dataset:
    """Load a dataset by name (``fairbench datasets`` lists them), from a ``.npz`` file, or from a folder per class.

    Parameters
    ----------
    name
        "cifar10", ...; or a path to a ``.npz`` file or to a folder with one folder per class.
    split
        "test", "train", or "sample": the first 100 test images of each class that ship with the package
        (for CIFAR-10 and Fashion-MNIST; for any other dataset the same selection is made from its test split,
        with fewer a class from 11 classes on, so that there are about 1,000 in all).
    data_dir
        Folder that holds the data, before ``$FAIRBENCH_DATA`` and the user cache.
    resize
        (height, width) to bring the images to.
    download
        Whether a named dataset that is found nowhere may be downloaded.

    Raises
    ------
    DatasetError
        Unknown name, no data, or data that is not usable; the message says what to do.

    Examples
    --------
    >>> sample = load_dataset("cifar10", "sample")
    >>> len(sample), sample.shape, sample.classes[3]
    (1000, (3, 32, 32), 'cat')
    """
    if split not in ("test", "train", "sample"):
        raise DatasetError(f"unknown split '{split}'; choose test, train or sample.")
    if str(name) in NAMED:
        if split == "sample" and name in SAMPLES:
            dataset = load_sample(str(name))
        else:
            dataset = load_named(str(name), "test" if split == "sample" else split, data_dir, download)
    else:
        dataset = _load_path(user_path(name), "test" if split == "sample" else split, resize)
    if split == "sample":
        dataset = dataset.quick_sample()
    return dataset if resize is None else dataset.resized(*resize)


def _load_path(path: Path, split: str, resize: tuple[int, int] | None) -> Dataset:
    if path.is_dir():
        return load_folder(path, split, resize=resize)
    if path.is_file():
        if path.suffix != ".npz":
            raise DatasetError(f"{path}: a dataset is a .npz file, a folder per class, or one of {', '.join(NAMED)}.")
        return load_npz(path, split)
    if path.suffix or len(path.parts) > 1:
        raise DatasetError(f"no file or folder {path}.")
    raise DatasetError(f"unknown dataset '{path}'.{suggest(str(path), list(NAMED))}")
