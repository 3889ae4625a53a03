"""Text tables: what a cell holds moves no column, and a header is as wide as its cells if three lines are enough."""

import pytest

from fairbench.reports.text_tables import stacked, tabulated


@pytest.mark.parametrize(("form", "cell"), [("github", r"p\|q"), ("simple", "p|q"), ("latex_booktabs", "p|q")])
def test_a_bar_in_a_name_is_no_border(form: str, cell: str) -> None:
    lines = tabulated([["p|q", "1.00"]], ["class", "a|b"], form).splitlines()
    assert any(cell in line for line in lines)
    if form == "github":
        assert {line.replace(r"\|", "").count("|") for line in lines} == {3}


def test_numbers_stay_as_they_are_written_and_stand_right() -> None:
    assert tabulated([["a", "1.50"], ["b", "10.00"]], ["x", "y"], "plain").splitlines()[1:] == [
        "a     1.50",
        "b    10.00",
    ]


def test_a_table_without_rows_has_its_head() -> None:
    assert "class" in tabulated([], ["class", "n"], "github")


@pytest.mark.parametrize(
    ("header", "cell", "shown"),
    [
        ("avg std", "12.00", "avg\nstd"),
        ("avg std", "12.00 cat", "avg std"),
        ("only the first / second wrong", "17 / 54", "only the\nfirst /\nsecond wrong"),
        ("difference", "1", "difference"),
        ("difference [95 % interval]", "+1.00 [+0.50, +1.50]", "difference\n[95 % interval]"),
        ("", "1", ""),
    ],
)
def test_a_header_is_broken_to_its_cells_in_three_lines(header, cell, shown):
    assert stacked([header], [[cell]], "simple") == [shown]
    assert stacked([header], [[cell]], "github") == [header]


def test_a_table_without_rows_keeps_its_words_whole():
    assert stacked(["worst std", "CAU"], [], "simple") == ["worst\nstd", "CAU"]
