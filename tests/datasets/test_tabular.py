"""Adult, and datasets of feature vectors."""

from dataclasses import replace

import numpy as np
import pytest

from fairbench.datasets import Dataset, load_dataset
from fairbench.datasets.features import Features
from fairbench.errors import DatasetError


def test_words_become_one_feature_each_and_rows_with_a_missing_one_go(small_adult):
    train = load_dataset("adult", "train", data_dir=small_adult)
    assert len(train) == 299
    names = train.features.names
    assert names[:4] == ("age", "workclass=Private", "workclass=State-gov", "fnlwgt")
    assert train.inputs[0, :4].tolist() == [27.0, 1.0, 0.0, 101_000.0]
    one_hots = train.inputs[:, train.features.categorical]
    assert np.array_equal(one_hots.sum(axis=1), np.full(299, 8))
    assert train.classes == ("<=50K", ">50K")
    assert np.array_equal(train.labels, (train.inputs[:, 0] > 50).astype(int))
    assert train.attributes["sex"][:3].tolist() == ["Male", "Male", "Female"]


def test_the_training_file_fixes_ranges_for_both_splits(small_adult):
    train, test = (load_dataset("adult", split, data_dir=small_adult) for split in ("train", "test"))
    assert test.features.sha256 == train.features.sha256
    assert np.array_equal(train.features.high, train.inputs.max(axis=0))
    assert len(test) == 240


def test_standardized_numbers_have_mean_0_and_deviation_1_in_training(small_adult):
    raw = load_dataset("adult", "train", data_dir=small_adult)
    scaled = load_dataset("adult_standardized", "train", data_dir=small_adult)
    numeric = ~raw.features.categorical
    assert scaled.inputs[:, numeric].mean(axis=0) == pytest.approx(0, abs=1e-5)
    assert scaled.inputs[:, numeric].std(axis=0) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(scaled.inputs[:, ~numeric], raw.inputs[:, ~numeric])
    assert (raw.features.scale, "standard deviations" in scaled.features.scale) == ("raw", True)
    assert scaled.sha256 != raw.sha256


def test_a_damaged_file_is_named(small_adult):
    path = small_adult / "adult" / "adult.data"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=r"adult\.data is not UCI's file"):
        load_dataset("adult", data_dir=small_adult)


def test_a_missing_file_is_named(small_adult):
    (small_adult / "adult" / "adult.test").unlink()
    with pytest.raises(DatasetError, match=r"adult\.test is missing"):
        load_dataset("adult", "train", data_dir=small_adult)


def test_an_npz_is_not_taken_for_adult(small_adult, tmp_path, monkeypatch):
    monkeypatch.delenv("FAIRBENCH_DATA", raising=False)
    (tmp_path / "other" / "adult").mkdir(parents=True)
    np.savez(tmp_path / "other" / "adult" / "adult.npz", x_test=np.zeros((2, 8, 8)), y_test=[0, 1])
    with pytest.raises(DatasetError, match="was not found"):
        load_dataset("adult", data_dir=tmp_path / "other", download=False)


def test_the_real_files_have_the_rows_of_the_paper(data_dir):
    train, test = (load_dataset("adult", split, data_dir=data_dir("adult")) for split in ("train", "test"))
    assert (len(train), len(test), train.shape) == (30_162, 15_060, (104,))
    assert int(train.labels.sum()) == 7_508
    assert sorted(set(test.attributes["race"].tolist())) == [
        "Amer-Indian-Eskimo",
        "Asian-Pac-Islander",
        "Black",
        "Other",
        "White",
    ]


@pytest.fixture
def features() -> Features:
    ends = np.array([0, 0, 0, -5], np.float32), np.array([1, 1, 1, 90], np.float32)
    names = ("sex=f", "sex=m", "race=x", "age")
    return Features(names, ("sex", "sex", "race", "age"), np.array([True, True, True, False]), *ends)


@pytest.fixture
def rows(features) -> Dataset:
    inputs = np.array([[1, 0, 1, 40], [0, 1, 1, 95]], np.float32)
    return Dataset("own", inputs, np.array([0, 1]), ("no", "yes"), features=features)


@pytest.mark.parametrize(
    ("protect", "free"),
    [
        ((), [True, True, True, True]),
        (("sex",), [False, False, True, True]),
        (("race", "age"), [True, True, False, False]),
        (("categorical",), [False, False, False, True]),
    ],
)
def test_protected_columns_are_not_free(features, protect, free):
    assert features.free(protect).tolist() == free


@pytest.mark.parametrize(
    ("protect", "message"),
    [
        (("sexe",), r"--protect sexe: no such column\. Did you mean 'sex'\?"),
        (("categorical", "age"), "leaves no feature"),
        (("sex=f",), "no such column"),
    ],
)
def test_columns_that_cannot_be_protected_are_named(features, protect, message):
    with pytest.raises(DatasetError, match=message):
        features.free(protect)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": np.zeros((2, 3), np.float32)}, r"not float32 of shape \(N, 4\)"),
        ({"inputs": np.zeros((2, 4))}, "features are float64"),
        ({"inputs": np.array([[0, 0, 0, 1], [0, 0, 0, np.nan]], np.float32)}, "row 1 holds NaN or infinity in age"),
        ({"inputs": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64)}, "no rows"),
        ({"features": None}, "images have shape"),
    ],
)
def test_what_is_no_feature_vector_is_refused(rows, change, message):
    with pytest.raises(DatasetError, match=message):
        replace(rows, **change)


def test_features_are_not_resized(rows):
    with pytest.raises(DatasetError, match="rows of 4 features, which cannot be resized"):
        rows.resized(32, 32)
