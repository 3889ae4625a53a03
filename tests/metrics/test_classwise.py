"""Metrics on tables computed by hand: imbalanced, with a class that has no example and rows that were not measured."""

import numpy as np
import pandas as pd
import pytest

from fairbench.metrics import summarize
from fairbench.metrics.classwise import class_errors, count_cells
from fairbench.metrics.unfairness import cau, cru_s, cru_s_correct, spread
from fairbench.outcomes import Outcomes

CLASSES = ("cat", "dog", "fox", "owl")
# label, clean, attacked: cat 5 rows, dog 2 rows, fox none, owl 3 rows of which one was not attacked
ROWS = [
    (0, 0, 0),
    (0, 0, 1),
    (0, 0, 3),
    (0, 1, 1),
    (0, 3, 0),  # wrong clean and right under attack: it happens
    (1, 1, 1),
    (1, 0, 0),
    (3, 3, 3),
    (3, 3, 0),
    (3, 1, None),
]


@pytest.fixture
def outcomes():
    frame = pd.DataFrame(ROWS, columns=["label", "clean_pred", "pgd20_pred"])
    frame["index"] = np.arange(100, 110)
    frame["pgd20_pred"] = frame["pgd20_pred"].astype("Int16")
    manifest = {
        "dataset": {"name": "zoo", "classes": list(CLASSES)},
        "protocol": {"name": "quick", "seed": 5},
        "attacks": {"pgd20": {"epsilon": 8 / 255}},
        "warnings": ["no fox"],
    }
    return Outcomes(frame, manifest)


def test_the_class_table_is_the_one_counted_by_hand(outcomes):
    table = class_errors(outcomes.frame, "pgd20", CLASSES)
    expected = pd.DataFrame(
        {
            "class": CLASSES,
            "n": [5, 2, 0, 2],
            "std": [40.0, 50.0, np.nan, 0.0],
            "bndy": [20.0, 0.0, np.nan, 50.0],
            "rob": [60.0, 50.0, np.nan, 50.0],
            "strict_bndy": [40.0, 0.0, np.nan, 50.0],
        }
    )
    pd.testing.assert_frame_equal(table, expected)


def test_averages_worst_classes_and_unfairness_are_those_counted_by_hand(outcomes):
    pgd20 = summarize(outcomes).attacks["pgd20"]
    assert (pgd20.n, pgd20.not_measured) == (9, 1)
    assert pgd20.avg_std == pytest.approx(100 * 3 / 9)
    assert pgd20.avg_rob == pytest.approx(100 * 5 / 9)
    assert pgd20.avg_bndy == pytest.approx(100 * 2 / 9)
    assert pgd20.strict_bndy_avg == pytest.approx(100 * 3 / 9)
    assert (pgd20.worst_std, pgd20.worst_std_class) == (50.0, "dog")
    assert (pgd20.worst_bndy, pgd20.worst_bndy_class) == (50.0, "owl")
    assert (pgd20.worst_rob, pgd20.worst_rob_class) == (60.0, "cat")
    assert pgd20.cau == pytest.approx(0.5)  # owl 1.0, dog 0.5
    assert pgd20.cru_s == pytest.approx(10.0)  # cat 60, dog and owl 50
    assert pgd20.cru_s_correct == pytest.approx(100 * 2 / 3)  # cat 2 of 3, dog 0 of 1, owl 1 of 2


def test_the_document_has_the_agreed_keys_and_no_nan(outcomes):
    document = summarize(outcomes).to_dict()
    assert set(document) >= {"model", "dataset", "protocol", "n", "seed", "attacks", "warnings"}
    assert (document["n"], document["seed"], document["warnings"]) == (10, 5, ["no fox"])
    pgd20 = document["attacks"]["pgd20"]
    agreed = """epsilon avg_std worst_std worst_std_class avg_bndy worst_bndy worst_bndy_class avg_rob worst_rob
    worst_rob_class strict_bndy_avg cau cru_s cru_s_correct intervals classes""".split()
    assert set(pgd20) >= set(agreed)
    assert pgd20["classes"][2] == {"class": "fox", "n": 0, "std": None, "bndy": None, "rob": None, "strict_bndy": None}
    assert pgd20["intervals"]["classes"]["fox"]["std"] == [None, None]
    assert pgd20["epsilon"] == 8 / 255


def test_average_boundary_error_is_robust_minus_standard_and_groups_match_a_mask():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.integers(0, 5, size=(500, 3)), columns=["label", "clean_pred", "pgd20_pred"])
    table = class_errors(frame, "pgd20", tuple("abcde"))
    for c in range(5):
        mask = frame["label"] == c
        assert table.loc[c, "std"] == pytest.approx(100 * (frame["clean_pred"] != c)[mask].mean())
        assert table.loc[c, "rob"] == pytest.approx(100 * (frame["pgd20_pred"] != c)[mask].mean())
        strict = (frame["clean_pred"] == c) & (frame["pgd20_pred"] != c)
        assert table.loc[c, "strict_bndy"] == pytest.approx(100 * strict[mask].mean())
    assert np.allclose(table["rob"] - table["std"], table["bndy"])


def test_unfairness_of_one_known_class_is_unknown_not_zero():
    cells = np.zeros((3, 2, 2), dtype=int)
    cells[1] = [[5, 1], [1, 3]]
    for metric in (cau, cru_s, cru_s_correct):
        assert np.isnan(metric(cells))
    assert np.isnan(spread(np.array([np.nan, np.nan])))
    assert spread(np.array([1.0, np.nan, 4.0])) == 3.0


def test_nothing_measured_is_unknown_everywhere():
    frame = pd.DataFrame({"index": [0, 1], "label": [0, 1], "clean_pred": [0, 1], "pgd20_pred": [None, None]})
    pgd20 = summarize(Outcomes(frame, {"dataset": {"classes": ["a", "b"]}})).attacks["pgd20"]
    assert (pgd20.n, pgd20.not_measured, pgd20.worst_rob_class) == (0, 2, None)
    assert np.isnan([pgd20.avg_rob, pgd20.worst_rob, pgd20.cau, pgd20.cru_s, *pgd20.intervals["worst_rob"]]).all()


def test_cells_count_every_measured_row_once(outcomes):
    cells = count_cells(outcomes.frame, "pgd20", 4)
    assert cells.sum() == 9
    assert cells[0].tolist() == [[1, 2], [1, 1]]
