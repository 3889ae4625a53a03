"""The formats of a table: on a table made by hand with all that needs an escape, and on every table there is."""

import csv
import html.parser
import io
import re
import shutil
import subprocess

import pytest

from fairbench.cli.table import TABLES
from fairbench.reports.latex import PAGE_WIDTH, latex_table
from fairbench.reports.paper_table import Cell, Column, Line, PaperTable
from fairbench.reports.table_formats import FORMATS, grid, render

NAN = float("nan")
ODD = "a_b & 50 % <i>|x|</i> $ # {y} ~ ^ \\ λ*"
ONE, TWO = (Column("e", "E_1 %", 2, 1),), (Column("e", "E_1 %", 2, 1), Column("f", "F", 3, 3))
LINES = [
    Line((ODD, "[m]"), {"e": 1.0, "f": 2.0}, {"here": {"e": Cell(1.504, (1.04, 2.06)), "f": Cell(NAN, (NAN, NAN))}}),
    Line(("b", "n"), {"e": 3.0}, footnote="b: odd_1", missing=("r_1",), remark="none"),
    Line(("c", "o"), {}, {"here": {"e": Cell(-0.001, (NAN, NAN))}}),
]


def table(columns=ONE, **options):
    return PaperTable("k-1", "paper", "caption_1", ("name", "m"), columns, ("here",), lambda *_: LINES, **options)


def test_one_column_is_laid_out_side_by_side_with_the_difference():
    laid = grid(table(), LINES)
    assert laid.header == ["name", "m", "paper", "here", "difference"]
    assert [row for entry in laid.entries for row in entry] == [
        [ODD, "[m]", "1.00", "1.50 [1.0, 2.1]", "+0.50"],
        ["b", "n *", "3.00", "none", ""],
        ["c", "o", "", "0.00", ""],
    ]


def test_several_columns_are_laid_out_below_one_another():
    laid = grid(table(TWO), LINES)
    assert laid.header == ["name", "m", "", "E_1 %", "F"]
    assert laid.entries[0] == [
        [ODD, "[m]", "paper", "1.00", "2.000"],
        ["", "", "here", "1.50 [1.0, 2.1]", "n/a"],
        ["", "", "difference", "+0.50", ""],
    ]
    assert [len(entry) for entry in laid.entries] == [3, 2, 1]  # of the last nothing is printed


class Cells(html.parser.HTMLParser):
    """Collects the text of cells, row by row, and checks that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.rows, self.open = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.mark.parametrize("columns", [ONE, TWO], ids=["one", "two"])
def test_html_holds_the_cells_as_they_are(columns):
    parser = Cells()
    parser.feed(render(table(columns), LINES, "html"))
    laid = grid(table(columns), LINES)
    assert parser.open == []
    assert parser.rows == [laid.header, *(row for entry in laid.entries for row in entry)]


@pytest.mark.parametrize("columns", [ONE, TWO], ids=["one", "two"])
def test_csv_has_a_line_a_row_and_column_with_plain_numbers(columns):
    rows = list(csv.DictReader(io.StringIO(render(table(columns), LINES, "csv"))))
    assert len(rows) == len(LINES) * len(columns)
    assert (rows[0]["name"], rows[0]["published"], rows[0]["measured"]) == (ODD, "1.00", "1.5040")
    assert (rows[0]["low"], rows[0]["high"], rows[0]["difference"]) == ("1.0400", "2.0600", "0.5040")
    odd = next(row for row in rows if row["name"] == "b")
    assert (odd["measured"], odd["footnote"]) == ("", "b: odd_1")


def test_markdown_has_as_many_cells_in_every_line():
    lines = [line for line in render(table(), LINES, "markdown").splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {6}
    assert "&lt;i>" in lines[2]


def check_latex(text, columns):
    """Check escapes, columns and environments, as far as that goes without LaTeX."""
    assert re.findall(r"\\begin{(\w+\*?)}", text) == list(reversed(re.findall(r"\\end{(\w+\*?)}", text)))
    assert text.isascii()
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert rows
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {columns - 1}
    for line in text.splitlines()[1:]:
        bare = re.sub(r"\\[&%$#_{}]|\$\\[a-z]+\$", "", line)
        assert bare.count("{") == bare.count("}")
        assert not re.search(r"[#%$~^]", bare)
        assert "_" not in bare
    letters = re.search(r"\\begin{tabularx?}(?:{\\linewidth})?{(.+)}", text)[1]
    assert re.fullmatch("[lrX]+", letters := letters.replace(r">{\raggedright\arraybackslash}X", "X"))
    assert len(letters) == columns


@pytest.mark.parametrize("columns", [ONE, TWO], ids=["one", "two"])
def test_latex_escapes_what_it_must(columns):
    text = render(table(columns), LINES, "latex")
    check_latex(text, len(grid(table(columns), LINES).header))
    assert r"a\_b \& 50 \% \textless{}i\textgreater{}|x|" in text
    assert r"\{y\} \textasciitilde{} \textasciicircum{} \textbackslash{} $\lambda$*" in text
    assert "{[}m]" in text


def test_a_table_too_wide_for_a_page_wraps_its_words_and_then_lies_on_its_side():
    def begun(words: int, numbers: int) -> list[str]:
        cells = ["word " * 10] * words + ["12.34 [11.11, 13.33]"] * numbers
        align = ["left"] * words + ["right"] * numbers
        text = latex_table(["h"] * len(cells), [[cells]], align, title="t", key="k", notes=[])
        assert ("rotating" in text.splitlines()[0]) == ("sideways" in text)
        return re.findall(r"\\begin{([a-z*]+)}", text)

    assert begun(1, 1) == ["table*", "tabular"]
    assert begun(2, 2) == ["table*", "tabularx"]
    assert begun(2, 4) == ["sidewaystable*", "tabularx"]


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize("key", list(TABLES))
@pytest.mark.parametrize("kept", [True, False], ids=["measured", "empty"])
def test_every_table_is_sound_latex(key, kept, tmp_path):
    lines = TABLES[key].lines(None if kept else tmp_path)
    for chosen, rows in TABLES[key].by_reading(lines):
        check_latex(render(chosen, rows, "latex"), len(grid(chosen, rows).header))


@pytest.mark.usefixtures("measured_once")
@pytest.mark.parametrize("key", list(TABLES))
def test_every_table_fits_a_page_of_two_columns(key, tmp_path):
    if (program := shutil.which("pdflatex")) is None:
        pytest.skip("no pdflatex here (Debian: texlive-latex-recommended)")
    page = [
        r"\documentclass[twocolumn]{article}\usepackage{booktabs,tabularx,rotating}",
        rf"\setlength{{\textwidth}}{{{PAGE_WIDTH}pt}}\setlength{{\textheight}}{{650pt}}",
        r"\begin{document}",
        render(TABLES[key], TABLES[key].lines(), "latex"),
        r"\end{document}",
    ]
    (tmp_path / "t.tex").write_text("\n".join(page), encoding="utf-8")
    subprocess.run([program, "-halt-on-error", "t.tex"], cwd=tmp_path, check=True, capture_output=True)
    log = (tmp_path / "t.log").read_text(encoding="latin-1")
    assert not re.findall(r"Overfull.*|.*Float too large.*", log)


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_table_is_written_too(format):
    assert render(table(), [], format)


def test_no_key_or_label_is_lost_in_plain_data():
    (first, second, _) = table(more=("said",)).to_dict(LINES)["rows"]
    assert (first["name"], first["m"], first["published"]) == (ODD, "[m]", {"e": 1.0})
    assert second["measured"] == {"here": {"e": None}}
    assert first["difference"]["here"]["e"] == pytest.approx(0.504)
