"""Table III of sooksatra2022: as printed, and beside it what was kept."""

import json

import numpy as np
import pandas as pd
import pytest

from fairbench.errors import OutcomesError
from fairbench.leaderboard.luf import read_luf, write_luf
from fairbench.reports.sooksatra2022_luf import TABLE_3
from fairbench.reports.table_formats import FORMATS, render

EXAMPLES = pd.DataFrame(
    {
        "index": range(4),
        "label": [0, 1, 0, 1],
        "full_pred": [0, 1, 1, 1],
        "luf": [0.1, 0.2, 0.3, 0.4],
        "flips": [0, 0, 1, 3],
    }
)
MANIFEST = {
    "name": "standard_small_cnn_cifar10",
    "method": "standard",
    "options": {},
    "architecture": "small_cnn",
    "dataset": "cifar10",
    "training_images": 50_000,
    "epochs": 2,
    "seed": 0,
    "left_out": [{"sample": n, "label": 0, "flips": 1, "largest_change": 0.4} for n in range(5)],
}


@pytest.fixture
def kept(tmp_path):
    write_luf(tmp_path / "standard_small_cnn_cifar10.json", EXAMPLES, MANIFEST)
    return tmp_path


def test_every_printed_number_is_there_as_printed(tmp_path):
    lines = TABLE_3.lines(tmp_path)
    assert [line.title for line in lines] == ["CIFAR-10, standard", "CIFAR-10, robust"]
    text = render(TABLE_3, lines, "markdown")
    for number in ("0.7694", "29.26", "2926.10", "0.7945", "29.35", "2934.89"):
        assert f" {number} |" in text
    assert "needs it: standard_small_cnn_cifar10, static_augmentation_small_cnn_cifar10." in text


def test_the_measured_half_is_the_kept_result_and_says_what_was_run(kept):
    lines = TABLE_3.lines(kept)
    standard, robust = lines
    assert [standard.cell("here", key).value for key in ("luf_mean", "luf_t", "luf_l")] == pytest.approx([0.25, 1, 0.8])
    assert not robust.measured
    assert standard.difference("here", "luf_l") == pytest.approx(0.8 - 2926.10)
    assert standard.difference("here", "luf_t") is None, "5 samples left out here, 100 there"
    for form in FORMATS:
        text = render(TABLE_3, lines, form)
        assert "2 epochs, 5 left out, seed 0" in text
        assert form in ("csv", "json") or "0.2500 " in text
    document = json.loads(render(TABLE_3, lines, "json"))
    assert document["rows"][1]["measured"] == {"here": dict.fromkeys(("luf_mean", "luf_t", "luf_l"))}


def test_a_table_that_was_changed_is_refused(kept):
    path = kept / "standard_small_cnn_cifar10.json"
    path.with_suffix(".parquet").write_bytes(b"other")
    with pytest.raises(OutcomesError, match="is not the table"):
        read_luf(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "table_sha256": "", "manifest": {"left_out": []}}'])
def test_a_damaged_result_is_one_clear_line(kept, text):
    path = kept / "standard_small_cnn_cifar10.json"
    path.write_text(text)
    with pytest.raises(OutcomesError, match=str(path)) as caught:
        read_luf(path)
    assert "\n" not in str(caught.value)


def test_the_table_comes_back_as_it_was(kept):
    found, examples, manifest = read_luf(kept / "standard_small_cnn_cifar10.json")
    assert np.array_equal(examples["flips"], EXAMPLES["flips"])
    assert manifest == MANIFEST
    assert found.intervals["luf_t"][0] <= 1.0 <= found.intervals["luf_t"][1]


def test_the_command_prints_it(cli):
    assert "2926.10" in cli("table", "sooksatra2022-3").out
    assert "sooksatra2022-3" in cli("table").out
    refused = cli("table", "sooksatra2022-3", "--ranks")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
