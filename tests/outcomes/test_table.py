"""The outcome table on disk: round trips, missing is not zero, newer files are refused."""

import json

import numpy as np
import pandas as pd
import pytest

from fairbench.errors import OutcomesError
from fairbench.outcomes import Outcomes
from fairbench.outcomes.table import read_table, write_table

MANIFEST = {"format": 1, "dataset": {"classes": ["a", "b", "c"]}, "warnings": []}


def frame():
    return pd.DataFrame(
        {
            "index": [7, 3, 5],
            "label": [0, 1, 2],
            "clean_pred": [0, 1, 1],
            "clean_confidence": np.array([0.5, 0.75, 1.0], dtype=np.float32),
            "pgd20_pred": pd.array([1, None, 2], dtype="Int16"),
            "pgd20_broken_at": pd.array([4, None, None], dtype="Int16"),
            "autoattack_pred": pd.array([1, 1, None], dtype="Int16"),
            "autoattack_broken_by": pd.array(["fab-t", None, "clean"], dtype="string"),
        }
    )


def test_a_table_comes_back_as_it_was_with_missing_values_missing(tmp_path):
    outcomes = Outcomes(frame(), dict(MANIFEST))
    back = Outcomes.read(outcomes.write(tmp_path / "run"))
    pd.testing.assert_frame_equal(back.frame, outcomes.frame)
    assert back.manifest == outcomes.manifest
    assert back.frame["index"].tolist() == [3, 5, 7]
    assert back.frame["pgd20_pred"].isna().tolist() == [True, False, False]
    assert back.attacks == ("pgd20", "autoattack")


def test_equal_tables_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        Outcomes(frame().sample(frac=1, random_state=len(name)), dict(MANIFEST)).write(tmp_path / name)
    one, two = ((tmp_path / name / "outcomes.parquet").read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("where", ["manifest", "table"])
def test_a_newer_format_is_refused(tmp_path, where, monkeypatch):
    folder = Outcomes(frame(), dict(MANIFEST)).write(tmp_path)
    if where == "manifest":
        (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "format": 2}))
    else:
        monkeypatch.setattr("fairbench.outcomes.table.FORMAT_VERSION", 2)
        write_table(frame(), folder / "outcomes.parquet")
        monkeypatch.setattr("fairbench.outcomes.table.FORMAT_VERSION", 1)
    with pytest.raises(OutcomesError, match="newer"):
        Outcomes.read(folder)


@pytest.mark.parametrize("content", [b"", b"PAR1 cut short", None])
def test_a_damaged_or_foreign_table_is_one_clear_error(tmp_path, content):
    path = tmp_path / "outcomes.parquet"
    if content is None:
        frame().to_parquet(path)
    else:
        path.write_bytes(content)
    with pytest.raises(OutcomesError, match=r"outcomes\.parquet"):
        read_table(path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", 3, "label 3, outside 0..2"),
        ("clean_pred", -1, "clean_pred -1"),
        ("pgd20_pred", 9, "pgd20_pred 9"),
        ("index", 7, "example 7 twice"),
        ("label", 65_536, "label 65536, outside"),
        ("clean_pred", 65_537, "clean_pred 65537, outside"),
        ("index", 0.5, "another type"),
        ("label", "cat", "another type"),
    ],
)
def test_a_value_that_cannot_be_is_refused(column, value, message):
    bad = frame()
    bad[column] = bad[column].astype(object)
    bad.loc[1, column] = value
    with pytest.raises(OutcomesError, match=message):
        Outcomes(bad, dict(MANIFEST))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attacks": []}, r"attacks is \[\]"),
        ({"attacks": {"pgd20": 5}}, r"attacks\.pgd20 is 5"),
        ({"transfer_from": "x"}, 'transfer_from is "x"'),
        ({"model": "x"}, 'model is "x"'),
        ({"precision": [1]}, r"precision is \[1\]"),
        ({"dataset": MANIFEST["dataset"] | {"sha256": {}}}, r"dataset\.sha256 is \{\}"),
    ],
)
def test_a_manifest_of_another_shape_is_one_clear_error(changes, message):
    with pytest.raises(OutcomesError, match=f"the manifest is damaged: {message}"):
        Outcomes(frame(), MANIFEST | changes)


def test_a_missing_column_is_named():
    with pytest.raises(OutcomesError, match="label"):
        Outcomes(frame().drop(columns="label"), dict(MANIFEST))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    folder = Outcomes(frame(), dict(MANIFEST)).write(tmp_path)
    before = (folder / "outcomes.parquet").read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(OutcomesError, match="No space left"):
        write_table(frame().head(1), folder / "outcomes.parquet")
    assert (folder / "outcomes.parquet").read_bytes() == before
    assert sorted(p.name for p in folder.iterdir()) == ["manifest.json", "outcomes.parquet"]
