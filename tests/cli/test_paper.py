"""``fairbench paper``, and the page in docs whose tables it writes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairbench import Outcomes
from fairbench.cli.paper import PAPERS
from fairbench.leaderboard.results import write_result
from fairbench.reports.claims import as_markdown, read_results

Cli = Callable[..., Any]

DOCS = Path(__file__).parents[2] / "docs"
AT, REWEIGHT = "refrl_at_lenet5_fashion_mnist", "refrl_reweight_lenet5_fashion_mnist"


def keep(model: str, folder: Path, *, wrong: float) -> None:
    """Keep a result at 8/255: 60 images of two classes, a share of them broken."""
    label = np.repeat([0, 1], 30)
    broken = np.random.default_rng(0).random(60) < wrong
    frame = pd.DataFrame({"index": range(60), "label": label})
    frame["clean_pred"] = frame["pgd20_pred"] = np.where(broken, 1 - label, label)
    manifest = {
        "format": 1,
        "run": model,
        "model": {"name": model},
        "dataset": {"name": "d", "classes": ["cat", "dog"]},
        "protocol": {"name": "standard", "seed": 0, "modified": {}},
    }
    write_result(Outcomes(frame, manifest), folder)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the kept results."""
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr("fairbench.leaderboard.results.results_folder", lambda: folder)
    return folder


def test_paper_lists_the_papers(cli: Cli) -> None:
    ran = cli("paper")
    assert (ran.code, ran.err) == (0, "")
    assert re.findall(r"^(\w+) {2,}\S", ran.out, re.M) == list(PAPERS)
    assert re.search("^refrl2022 +the reproduction of FRL", ran.out, re.M)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("refrl202", "unknown paper 'refrl202'. Did you mean 'refrl2022'?"),
        ("x", "unknown paper 'x'. Known: refrl2022, sooksatra2022, sun2023."),
    ],
)
def test_an_unknown_paper_is_one_line(name: str, message: str, cli: Cli) -> None:
    ran = cli("paper", name)
    assert (ran.code, ran.out, ran.err) == (2, "", f"fairbench: {message}\n")


def test_without_any_result_it_says_in_one_line_which_are_missing(cli: Cli, kept: Path) -> None:
    ran = cli("paper", "refrl2022")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    for name in PAPERS["refrl2022"].results:
        assert name in ran.err


def test_with_some_results_it_measures_what_it_can_and_says_which_are_missing(cli: Cli, kept: Path) -> None:
    keep(AT, kept, wrong=0.6)
    keep(REWEIGHT, kept, wrong=0.3)
    ran = cli("paper", "refrl2022")
    assert ran.code == 0
    assert re.search(r"^ +8/255  .* \(\w+\) to .* \(\w+\): -.* % \[.*\]   holds; 25 % is ", ran.out, re.M)
    assert f"16/255  not measured: {AT}.standard.epsilon-16-255, {REWEIGHT}.standard.epsilon-16-255\n" in ran.out
    assert ran.err.startswith("note: results missing: standard_lenet5_fashion_mnist.standard.epsilon-16-255, ")
    assert ran.err.count("\n") == 1
    assert f"{AT}.standard," not in ran.err


def test_it_says_for_how_long_the_models_were_trained_each_once(cli: Cli, kept: Path) -> None:
    """A pass is not a paper's hundred epochs: who reads "does not hold" must see it."""
    keep(AT, kept, wrong=0.5)
    assert cli("paper", "refrl2022").out.endswith(
        f"\nTrained here: 15 passes over the training images from fresh weights ({AT}).\n"
    )


def test_markdown_stands_between_markers_and_json_is_json(cli: Cli, kept: Path) -> None:
    keep(AT, kept, wrong=0.6)
    markdown = cli("paper", "refrl2022", "--format", "markdown").out
    assert markdown.startswith("<!-- claims -->\n")
    assert markdown.endswith("<!-- /claims -->\n")
    document = json.loads(cli("paper", "refrl2022", "--format", "json").out)
    assert [claim["number"] for claim in document["claims"]] == [1, 2, 3, 4]
    assert f"{REWEIGHT}.standard" in document["missing"]


def test_figures_without_results_are_not_drawn(cli: Cli, kept: Path, tmp_path: Path) -> None:
    keep(AT, kept, wrong=0.6)
    ran = cli("paper", "refrl2022", "--figures", tmp_path / "figures")
    assert ran.err.splitlines()[1] == "note: drawn: nothing, for want of results"
    assert not list((tmp_path / "figures").iterdir())


@pytest.mark.parametrize("name", list(PAPERS))
def test_a_page_has_the_claims_of_its_paper(name: str) -> None:
    paper = PAPERS[name]
    page = paper.page or f"{name}.md"
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"<!-- claims -->.*<!-- /claims -->", text, flags=re.DOTALL)
    assert len(found) == 1
    results = read_results(paper)
    assert found == [as_markdown(paper, paper.measure(results))], (
        f"replace the block in docs/{page} by what this prints: python -m fairbench paper {name} --format markdown"
    )
