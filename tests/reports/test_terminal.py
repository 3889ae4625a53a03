"""Headers of terminal tables: as wide as the cells below them, where three lines are enough."""

import pytest

from fairbench.reports.terminal import stacked


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
