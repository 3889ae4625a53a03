"""Adult (Kohavi, 1996; UCI): does a person of the 1994 census earn more than 50,000 dollars a year?

Read from UCI's two original files, as ``sooksatra2022`` has it: rows with a missing value go, which leaves 30,162 and
15,060, and each column with words becomes one feature a word.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from fairbench.datasets.base import Dataset
from fairbench.datasets.features import Features
from fairbench.download import fetch
from fairbench.errors import DatasetError, DownloadError, first_line
from fairbench.files import make_folder
from fairbench.provenance import sha256_file

CLASSES = ("<=50K", ">50K")
ATTRIBUTES = ("sex", "race")
FILES = {
    "train": ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    "test": ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
}
"""By split, the file and its SHA-256."""

_ADDRESS = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
_COLUMNS = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
    "capital-loss hours-per-week native-country"
).split()
_NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
_INCOME = "income"


def read_adult(root: Path, split: str, download: bool, *, standardized: bool = False) -> Dataset:
    """Read a split of Adult; one-hot words and ranges are those of the training file, which is read for either.

    Parameters
    ----------
    root
        Folder of ``adult.data`` and ``adult.test``.
    split
        "train" or "test".
    download
        Whether to fetch from UCI what is missing.
    standardized
        Subtract from each numeric column its mean in the training split, and divide by its standard deviation.

    Raises
    ------
    DatasetError
        A file is missing, or is not UCI's.
    """
    tables = {name: _read(_file(root, name, download), name) for name in FILES}
    training = tables["train"]
    words = {column: sorted(training[column].unique()) for column in _COLUMNS if column not in _NUMERIC}
    inputs = {name: _encode(table, words) for name, table in tables.items()}
    pairs = [(c, word) for c in _COLUMNS for word in words.get(c, [None])]
    categorical = np.array([word is not None for _, word in pairs])
    if standardized:
        numbers = inputs["train"][:, ~categorical].astype(np.float64)
        mean, std = numbers.mean(axis=0), numbers.std(axis=0)
        for values in inputs.values():
            values[:, ~categorical] = (values[:, ~categorical] - mean) / std
    features = Features(
        names=tuple(c if word is None else f"{c}={word}" for c, word in pairs),
        columns=tuple(c for c, _ in pairs),
        categorical=categorical,
        low=inputs["train"].min(axis=0),
        high=inputs["train"].max(axis=0),
        scale="numeric columns in standard deviations, one-hot columns 0 or 1" if standardized else "raw",
    )
    table = tables[split]
    return Dataset(
        "adult_standardized" if standardized else "adult",
        inputs[split],
        table[_INCOME].to_numpy(copy=True),
        CLASSES,
        split=split,
        attributes={name: table[name].to_numpy(dtype=str) for name in ATTRIBUTES},
        features=features,
    )


def _file(root: Path, split: str, download: bool) -> Path:
    name, sha256 = FILES[split]
    path = root / name
    if not path.is_file() and download:
        try:
            fetch(f"{_ADDRESS}/{name}", make_folder(root) / name, sha256)
        except DownloadError as error:
            raise DatasetError(f"adult: {name} {error}; put UCI's file in {root}.") from error
    if not path.is_file():
        raise DatasetError(f"adult: {path} is missing; put {' and '.join(f for f, _ in FILES.values())} of UCI there.")
    if sha256_file(path) != sha256:
        raise DatasetError(f"adult: {path} is not UCI's file (SHA-256 differs); remove it and fetch it again.")
    return path


def _read(path: Path, split: str) -> pd.DataFrame:
    """Return the rows without a missing value, income as class 0 or 1; the test file has a first line of its own."""
    try:
        table = pd.read_csv(
            path,
            names=[*_COLUMNS, _INCOME],
            skiprows=1 if split == "test" else 0,
            skipinitialspace=True,
            na_values="?",
            dtype=dict.fromkeys(_NUMERIC, np.float32),
        ).dropna()
    except (ValueError, OSError) as error:
        raise DatasetError(f"adult: {path} cannot be read ({first_line(error)})") from error
    income = table[_INCOME].str.rstrip(".").map({name: number for number, name in enumerate(CLASSES)})
    return table.assign(**{_INCOME: income.astype(np.int64)}).reset_index(drop=True)


def _encode(table: pd.DataFrame, words: dict[str, list[str]]) -> np.ndarray:
    """Return (N, F) float32: a number as it is, and a 1 for the word of a column."""
    parts = [
        table[[c]].to_numpy() if c in _NUMERIC else table[c].to_numpy()[:, None] == np.array(words[c], dtype=object)
        for c in _COLUMNS
    ]
    return np.hstack([part.astype(np.float32) for part in parts])
