"""Text tables: what a cell holds does not move the columns."""

import pytest

from fairbench.reports.text_tables import tabulated


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
