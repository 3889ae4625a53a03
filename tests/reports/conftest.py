"""What the kept results give is measured once for all tests that print it: it takes seconds a table."""

import pytest

from fairbench.reports.paper_table import Line, PaperTable


@pytest.fixture(scope="session")
def remembered() -> dict[tuple[str, str | None], list[Line]]:
    """The rows of each table and dataset, of the kept results, as far as a test asked for them."""
    return {}


@pytest.fixture
def measured_once(remembered, monkeypatch):
    """``PaperTable.lines`` with a memory; what is measured of another folder is measured anew."""
    measure = PaperTable.lines

    def lines(table, folder=None, dataset=None):
        if folder is not None:
            return measure(table, folder, dataset)
        asked = table.key, dataset
        if asked not in remembered:
            remembered[asked] = measure(table, folder, dataset)
        return list(remembered[asked])

    monkeypatch.setattr(PaperTable, "lines", lines)
