"""Kept results: written once, read back whole, and never silently another's."""

import json

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes, summarize
from fairbench.errors import OutcomesError
from fairbench.leaderboard.results import (
    read_manifests,
    read_result,
    read_result_file,
    result_name,
    result_names,
    result_path,
    write_result,
)
from fairbench.outcomes.identity import run_identity

CLASSES = ["a", "b", "c"]


def outcomes(name="model", run="run1", seed=0, protocol="standard", modified=None, dataset="toy") -> Outcomes:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 90)
    frame = pd.DataFrame(
        {
            "index": np.arange(90),
            "label": labels,
            "clean_pred": np.where(rng.random(90) < 0.8, labels, (labels + 1) % 3),
            "pgd20_pred": np.where(rng.random(90) < 0.5, labels, (labels + 1) % 3),
        }
    )
    manifest = {
        "format": 1,
        "model": {"name": name},
        "dataset": {"name": dataset, "classes": CLASSES},
        "protocol": {"name": protocol, "modified": modified or {}, "seed": 0},
        "attacks": {"pgd20": {"epsilon": 8 / 255}},
        "run": run,
    }
    return Outcomes(frame, manifest)


def test_a_result_comes_back_as_it_was(tmp_path):
    kept = outcomes()
    path = write_result(kept, tmp_path)
    assert path.name == "model.standard.json"
    assert result_names(tmp_path) == ["model.standard"]
    again = read_result("model.standard", tmp_path)
    assert again.manifest == kept.manifest
    pd.testing.assert_frame_equal(again.frame, kept.frame)
    assert json.loads(path.read_text())["summary"] == summarize(kept).to_dict()


def test_the_same_result_again_changes_no_byte(tmp_path):
    before = {p.name: p.read_bytes() for p in (write_result(outcomes(), tmp_path).parent).iterdir()}
    write_result(outcomes(), tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_another_runs_result_is_not_overwritten(tmp_path):
    path = write_result(outcomes(), tmp_path)
    before = path.read_bytes()
    with pytest.raises(OutcomesError, match="never overwritten"):
        write_result(outcomes(run="run2", seed=1), tmp_path)
    assert path.read_bytes() == before


def test_other_rows_of_the_same_run_are_refused_and_the_same_rows_change_nothing(tmp_path):
    path = write_result(outcomes(), tmp_path)
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()}
    other = outcomes()
    other.frame["pgd20_pred"] = other.frame["clean_pred"].to_numpy()[::-1]
    with pytest.raises(OutcomesError, match="has other rows of the same run"):
        write_result(other, tmp_path)
    assert write_result(outcomes(), tmp_path) == path
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.iterdir()} == before
    path.with_suffix(".parquet").unlink()
    write_result(outcomes(), tmp_path)
    assert path.with_suffix(".parquet").read_bytes() == before[path.with_suffix(".parquet").name][0]


def test_a_correction_is_a_new_version_that_names_the_old_and_counts(tmp_path):
    first = write_result(outcomes(), tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    paths = [first]
    for version in range(2, 12):  # the tenth is after the second
        better = outcomes(run=f"run{version}", seed=version)
        paths.append(write_result(better, tmp_path, correction="the data were another's"))
        assert paths[-1].name == f"model.standard.v{version}.json"
        held = json.loads(paths[-1].read_text())
        assert (held["replaces"], held["correction"]) == (paths[-2].stem, "the data were another's")
        assert result_names(tmp_path) == ["model.standard"]
        assert read_result("model.standard", tmp_path).manifest["run"] == f"run{version}"
        assert write_result(better, tmp_path) == paths[-1]
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert read_result_file(first).manifest["run"] == "run1"
    assert [m["run"] for m in read_manifests(tmp_path)].count("run1") == 1
    with pytest.raises(OutcomesError, match="never overwritten"):
        write_result(outcomes(run="another", seed=40), tmp_path)


def test_a_name_may_end_as_a_version_does(tmp_path):
    """Of an attack made for a model that is called x.v2."""

    def transferred(source, seed):
        made = outcomes(seed=seed, run=f"run{seed}")
        return Outcomes(made.frame, made.manifest | {"transfer_from": {"name": source}})

    for source, seed in (("x.v2", 1), ("x", 2)):
        assert write_result(transferred(source, seed), tmp_path).name == f"model.standard.transfer-{source}.json"
    corrected = write_result(transferred("x.v2", 3), tmp_path, correction="why")
    assert corrected.name == "model.standard.transfer-x.v2.v2.json"
    with pytest.raises(OutcomesError, match="is another run's result"):
        write_result(transferred("x", 4), tmp_path)
    assert result_names(tmp_path) == ["model.standard.transfer-x", "model.standard.transfer-x.v2"]
    for source, run in (("x", "run2"), ("x.v2", "run3")):
        assert read_result(f"model.standard.transfer-{source}", tmp_path).manifest["run"] == run


def test_a_lost_table_comes_back_to_its_own_version(tmp_path):
    write_result(outcomes(), tmp_path)
    second = write_result(outcomes(run="run2", seed=2), tmp_path, correction="why")
    before = second.read_bytes()
    second.with_suffix(".parquet").unlink()
    assert write_result(outcomes(run="run2", seed=2), tmp_path) == second
    assert second.read_bytes() == before
    assert read_result("model.standard", tmp_path).manifest["run"] == "run2"


def test_what_is_not_there_cannot_be_corrected(tmp_path):
    with pytest.raises(OutcomesError, match=r"there is no model\.standard in .* to correct"):
        write_result(outcomes(), tmp_path, correction="why")


@pytest.mark.parametrize(
    ("modified", "expected"),
    [
        ({}, "m.standard"),
        ({"epsilon": 16 / 255}, "m.standard.epsilon-16-255"),
        ({"epsilon": 0.1}, "m.standard.epsilon-0.1"),
        ({"attacks": ["pgd20", "autoattack"], "seed": 3}, "m.standard.attacks-pgd20-autoattack.seed-3"),
    ],
)
def test_the_name_says_what_was_changed(modified, expected):
    assert result_name(outcomes("m", modified=modified).manifest) == expected


def test_a_table_that_was_changed_is_refused(tmp_path):
    path = write_result(outcomes(), tmp_path)
    write_result(outcomes("other", seed=5), tmp_path)
    (tmp_path / "other.standard.parquet").replace(path.with_suffix(".parquet"))
    with pytest.raises(OutcomesError, match=r"is not the table that model\.standard\.json names"):
        read_result("model.standard", tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "manifest": {"run": "r"}}', '{"format": 1, "manifest": 3}']
)
def test_a_damaged_result_is_one_clear_line(tmp_path, text):
    path = write_result(outcomes(), tmp_path)
    path.write_text(text)
    with pytest.raises(OutcomesError) as caught:
        read_result("model.standard", tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    write_result(outcomes(), tmp_path)
    with pytest.raises(OutcomesError, match=r"Did you mean 'model\.standard'"):
        read_result("model.standart", tmp_path)


@pytest.mark.parametrize("name", result_names() or [pytest.param("", marks=pytest.mark.skip(reason="no kept results"))])
def test_every_kept_result_is_whole_and_its_summary_is_what_the_table_gives(name):
    kept = read_result(name)
    assert result_name(kept.manifest) == name
    assert run_identity(kept.manifest) == kept.manifest["run"]
    document = json.loads(result_path(name).read_text())
    assert document["summary"] == json.loads(json.dumps(summarize(kept).to_dict()))
    sizes = {"quick": 1_000, "sooksatra2022": 15_060}  # and 10,000 images in a test split
    assert len(kept) == sizes.get(kept.manifest["protocol"]["name"], 10_000)
    assert not kept.frame[[f"{attack}_pred" for attack in kept.attacks]].isna().any().any()
