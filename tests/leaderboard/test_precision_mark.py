"""Results with gradients in bf16 stand on the board beside others, marked; of the same model float32 goes first."""

import csv
import io

import pandas as pd
import pytest

from fairbench import Outcomes
from fairbench.leaderboard.entries import read_entries
from fairbench.leaderboard.ranking import boards
from fairbench.leaderboard.results import write_result
from fairbench.reports import board as report


def outcomes(name: str, precision: str) -> Outcomes:
    frame = pd.DataFrame({"index": [0, 1], "label": [0, 1], "clean_pred": [0, 1], "autoattack_pred": [1, 1]})
    manifest = {
        "format": 1,
        "model": {"name": name},
        "dataset": {"name": "toy", "classes": ["a", "b"]},
        "protocol": {"name": "leaderboard", "modified": {}, "seed": 0},
        "attacks": {"autoattack": {"epsilon": 8 / 255}},
        "precision": precision,
        "run": f"{name}-{precision}",
    }
    return Outcomes(frame, manifest)


def board_of(folder, *results):
    for result in results:
        write_result(result, folder / "results")
    (found,) = boards(read_entries(folder))
    return found


def test_a_bf16_row_is_marked_in_every_form(tmp_path):
    found = board_of(tmp_path, outcomes("half", "bfloat16"), outcomes("whole", "float32"))
    assert [row.entry.name for row in found.ranked] == ["half", "whole"]
    markdown, text = report.as_markdown(found), report.as_text(found)
    for page in (markdown, text):
        half, whole = (next(line for line in page.splitlines() if name in line) for name in ("half", "whole"))
        assert "AutoAttack (bf16)" in half
        assert "bf16" not in whole
        assert "gradients in bf16" in page
    rows = csv.DictReader(io.StringIO(report.as_csv(found)))
    assert [row["precision"] for row in rows] == ["bfloat16", "float32"]
    assert [row["precision"] for row in report.to_dict(found)["ranked"]] == ["bfloat16", "float32"]


def test_a_board_without_such_rows_does_not_speak_of_them(tmp_path):
    found = board_of(tmp_path, outcomes("whole", "float32"))
    assert "bf16" not in report.as_markdown(found) + report.as_text(found)


@pytest.mark.parametrize("order", [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_of_one_model_the_float32_result_is_shown(order, tmp_path):
    found = board_of(tmp_path, *(outcomes("both", precision) for precision in order))
    assert [row.entry.precision for row in found.ranked] == ["float32"]
