"""Datasets by name: the layouts people have on disk, where they are looked for, and what to do when there are none."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fairbench.datasets import load_dataset, tabular
from fairbench.datasets.named import NAMED, find_named
from fairbench.errors import DatasetError, DownloadError

DOWNLOADED = [name for name, known in NAMED.items() if known.markers]
IMAGES = [name for name in DOWNLOADED if not NAMED[name].has_features]


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRBENCH_DATA", raising=False)


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in the IDX form of MNIST, compressed."""
    sizes = np.array(array.shape, dtype=">i4").tobytes()
    return gzip.compress(b"\0\0\x08" + bytes([array.ndim]) + sizes + array.astype(np.uint8).tobytes())


def write_npz(root: Path, name: str, level: int = 0) -> Path:
    """Lay out ``<name>/<name>.npz`` with 20 test images, all pixels at one level."""
    channels, height, width = NAMED[name].shape
    (root / name).mkdir(parents=True)
    images = np.full((20, height, width, channels), level, dtype=np.uint8)
    labels = np.arange(20) % len(NAMED[name].classes)
    path = root / name / f"{name}.npz"
    np.savez(path, x_test=images, y_test=labels, x_train=images[:4], y_train=labels[:4])
    return path


def write_idx(folder: Path) -> np.ndarray:
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    for prefix, count in (("t10k", 20), ("train", 30)):
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images[:count]))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(count) % 10))
    return images


@pytest.mark.parametrize("name", [name for name in IMAGES if name != "imagenette"])
def test_each_name_accepts_one_npz_file(name: str, tmp_path: Path) -> None:
    write_npz(tmp_path, name)
    test = load_dataset(name, data_dir=tmp_path, download=False)
    assert (test.name, len(test), test.shape) == (name, 20, NAMED[name].shape)
    assert test.classes == NAMED[name].classes
    assert len(load_dataset(name, "train", data_dir=tmp_path, download=False)) == 4


@pytest.mark.parametrize("layout", ["fashion_mnist", ".", "fashion_mnist/FashionMNIST/raw", "FashionMNIST/raw"])
def test_fashion_mnist_is_read_from_its_four_files_alone(layout: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    images = write_idx(root / layout) if layout != "." else write_idx(root)
    test = load_dataset("fashion_mnist", data_dir=root, download=False)
    assert np.array_equal(test.inputs[:, 0], images[:20])
    assert test.labels.tolist() == [n % 10 for n in range(20)]
    assert len(load_dataset("fashion_mnist", "train", data_dir=root, download=False)) == 30


def test_a_download_that_failed_is_tried_again(tmp_path: Path) -> None:
    raw = tmp_path / "fashion_mnist" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)  # torchvision makes it before it fetches the first file
    assert find_named("fashion_mnist", [tmp_path]) is None
    (raw / "t10k-images-idx3-ubyte.gz").write_bytes(b"")
    assert find_named("fashion_mnist", [tmp_path]) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"<html></html>", idx(np.zeros((20, 28, 28)))[:60], gzip.compress(b"no idx file")],
    ids=["empty", "page", "cut", "other"],
)
def test_a_damaged_idx_file_is_named(content: bytes, tmp_path: Path) -> None:
    write_idx(tmp_path / "fashion_mnist")
    bad = tmp_path / "fashion_mnist" / "t10k-images-idx3-ubyte.gz"
    bad.write_bytes(content)
    with pytest.raises(DatasetError, match=r"t10k-images-idx3-ubyte\.gz: not a readable IDX file"):
        load_dataset("fashion_mnist", data_dir=tmp_path, download=False)


def test_imagenette_is_read_from_its_unpacked_archive(tmp_path: Path) -> None:
    for folder in ("n03888257", "n01440764"):
        target = tmp_path / "imagenette" / "imagenette2-160" / "val" / folder
        target.mkdir(parents=True)
        Image.new("RGB", (213, 160), (9, 9, 9)).save(target / "1.png")
    data = load_dataset("imagenette", data_dir=tmp_path, download=False)
    assert data.shape == (3, 160, 160)
    assert [data.classes[label] for label in data.labels] == ["tench", "parachute"]


def test_a_layout_whose_files_are_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "cifar10" / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"cifar10 in .* cannot be read .*; remove it and fetch it again"):
        load_dataset("cifar10", data_dir=tmp_path, download=False)


def test_data_is_looked_for_in_the_folder_given_then_the_environments_then_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRBENCH_DATA", str(tmp_path / "environment"))
    levels = []
    for level, folder in ((1, cache / "data"), (2, tmp_path / "environment"), (3, tmp_path / "given")):
        write_npz(folder, "svhn", level)
        given = tmp_path / "given" if folder.name == "given" else None
        levels.append(int(load_dataset("svhn", data_dir=given, download=False).inputs.max()))
    assert levels == [1, 2, 3]


def test_finding_prefers_the_npz_file(tmp_path: Path) -> None:
    assert find_named("fashion_mnist", [tmp_path]) is None
    write_idx(tmp_path / "fashion_mnist")
    assert find_named("fashion_mnist", [tmp_path]) == tmp_path / "fashion_mnist"
    path = tmp_path / "fashion_mnist" / "fashion_mnist.npz"
    np.savez(path, x_test=np.zeros((2, 28, 28), np.uint8), y_test=np.array([0, 1]))
    assert find_named("fashion_mnist", [tmp_path]) == path


@pytest.mark.parametrize("name", DOWNLOADED)
def test_data_that_is_nowhere_says_which_file_to_put_where(name: str, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=f"{name} was not found in .*, and downloading is off") as caught:
        load_dataset(name, data_dir=tmp_path, download=False)
    message = str(caught.value)
    assert f"Put {NAMED[name].put}" in message
    folder = NAMED[name].folder or name
    assert f"in {tmp_path / folder}." in message
    assert str(cache / "data" / folder) in message


@pytest.mark.parametrize(
    ("name", "split", "files"),
    [
        ("fashion_mnist", "test", "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz"),
        ("fashion_mnist", "train", "train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"),
        ("svhn", "test", "test_32x32.mat"),
        ("svhn", "train", "train_32x32.mat"),
    ],
)
def test_the_files_asked_for_are_those_of_the_split(
    name: str, split: str, files: str, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=f"Put {files}, or {name}.npz with x_{split} and y_{split}, in {tmp_path}"):
        load_dataset(name, split, data_dir=tmp_path, download=False)


@pytest.mark.parametrize("split", ["test", "train"])
def test_one_split_of_fashion_mnist_is_fetched_without_the_other(
    split: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import mnist

    fetched = []

    def fetch(_url: str, download_root: str, filename: str, **_more: object) -> None:
        fetched.append(filename)
        count = (b"\0\0\x08\x03", 20, 28, 28) if "images" in filename else (b"\0\0\x08\x01", 20)
        sizes = np.array(count[1:], dtype=">i4")
        pixels = (np.arange(sizes.prod()) % 10).astype(np.uint8)
        (Path(download_root) / filename.removesuffix(".gz")).write_bytes(count[0] + sizes.tobytes() + pixels.tobytes())

    monkeypatch.setattr(mnist, "download_and_extract_archive", fetch)
    assert len(load_dataset("fashion_mnist", split)) == 20
    prefix = {"test": "t10k", "train": "train"}[split]
    assert fetched == [f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz"]
    assert len(load_dataset("fashion_mnist", split, download=False)) == 20


@pytest.mark.parametrize("name", DOWNLOADED)
def test_without_network_the_message_says_which_file_to_put_where(
    name: str, cache: Path, no_network: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DatasetError, match=f"{name} was not found in .*, and the download failed") as caught:
        load_dataset(name)
    assert f"Put {NAMED[name].put}" in str(caught.value)
    assert f"in {cache / 'data' / (NAMED[name].folder or name)}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""
    assert list((cache / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "meant"), [("cifar_10", "cifar10"), ("fashion-mnist", "fashion_mnist"), ("imagenete", "imagenette")]
)
def test_a_misspelt_name_gets_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(DatasetError, match=f"unknown dataset '{typed}'. Did you mean '{meant}'"):
        load_dataset(typed)


def test_a_name_like_nothing_gets_the_list() -> None:
    with pytest.raises(DatasetError, match=r"Known: .*cifar10, cifar100, digits"):
        load_dataset("zzz")


@pytest.mark.parametrize("missing", ["own.npz", "some/folder"])
def test_a_missing_path_is_named(missing: str) -> None:
    with pytest.raises(DatasetError, match=f"no file or folder {missing}"):
        load_dataset(missing)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2")
    with pytest.raises(DatasetError, match=r"data\.csv: a dataset is a \.npz file, a folder per class, or one of"):
        load_dataset(tmp_path / "data.csv")


def test_a_data_directory_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"data directory .*nowhere is not a folder"):
        load_dataset("cifar10", data_dir=tmp_path / "nowhere")


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(DatasetError, match="unknown split 'testing'; choose test, train or sample"):
        load_dataset("digits", "testing")


def test_digits_need_no_files_and_split_without_overlap(no_network: None) -> None:
    from sklearn.datasets import load_digits

    test, train = load_dataset("digits"), load_dataset("digits", "train")
    assert (len(test), len(train)) == (360, 1437)
    assert test.shape == (1, 8, 8)
    assert 0 <= test.inputs.min() < test.inputs.max() == 1
    assert set(test.labels) == set(range(10))
    original = load_digits()
    assert np.allclose(test.inputs[7, 0] * 16, original.images[35])
    assert sorted([*test.labels, *train.labels]) == sorted(original.target)


@pytest.mark.parametrize(("name", "n", "classes"), [("cifar10", 10_000, 10), ("fashion_mnist", 10_000, 10)])
def test_the_real_test_splits_are_whole(name: str, n: int, classes: int, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("monkeypatch").undo()  # $FAIRBENCH_DATA is what this one needs
    data = load_dataset(name, data_dir=request.getfixturevalue("data_dir")(name), download=False)
    assert len(data) == n == NAMED[name].test_size
    assert np.bincount(data.labels).tolist() == [n // classes] * classes
    assert data.notes == ()


def test_images_that_are_not_the_published_ones_are_said_to_be_others(tmp_path: Path) -> None:
    write_npz(tmp_path, "cifar10")
    assert load_dataset("cifar10", data_dir=tmp_path).notes == (
        "20 images, not the 10,000 of the published test split of cifar10",
    )
    _, height, width = NAMED["fashion_mnist"].shape  # MNIST's files have the same names
    folder = tmp_path / "fashion_mnist"
    folder.mkdir()
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(idx(np.zeros((10_000, height, width))))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(10_000) % 10))
    assert load_dataset("fashion_mnist", data_dir=tmp_path).notes == (
        "not the images, labels, class names or order of the published test split of fashion_mnist",
    )


def test_a_download_of_two_files_that_broke_off_goes_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adult's first file is there; the second is fetched by the next run, but into a folder of ours alone."""
    asked = []

    def fetch(address: str, path: Path, _sha256: str) -> Path:
        asked.append(path.name)
        raise DownloadError("could not be fetched")

    monkeypatch.setattr(tabular, "fetch", fetch)
    (cache / "data" / "adult").mkdir(parents=True)
    (cache / "data" / "adult" / "adult.data").write_bytes(b"")
    monkeypatch.setitem(tabular.FILES, "train", ("adult.data", hashlib.sha256(b"").hexdigest()))
    with pytest.raises(DatasetError):
        load_dataset("adult")
    assert asked == ["adult.test"]
    with pytest.raises(DatasetError, match=r"adult\.test is missing"):
        load_dataset("adult", download=False)
    assert asked == ["adult.test"]


def test_a_folder_that_cannot_be_written_does_not_hide_that_the_data_are_missing(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "data").write_text("a file where the folder would be")
    with pytest.raises(DatasetError, match=r"cifar100 was not found in .*, and the download failed"):
        load_dataset("cifar100")
