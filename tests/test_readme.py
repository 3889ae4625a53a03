"""The README's numbers are those of the committed outcome tables, and its examples name what exists."""

import re
from pathlib import Path

import pytest

from fairbench import summarize
from fairbench.leaderboard.results import read_result
from fairbench.reports.values import fraction, rate

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODELS = re.findall(r"^\| (\w+_fashion_mnist)", README, flags=re.MULTILINE)


@pytest.mark.parametrize("model", MODELS)
def test_the_table_is_what_the_outcomes_give(model):
    attack = summarize(read_result(f"{model}.standard")).attacks["pgd20"]

    def worst(error):
        value, interval = getattr(attack, f"worst_{error}"), attack.intervals[f"worst_{error}"]
        return f"{rate(value, interval)} {getattr(attack, f'worst_{error}_class')}"

    cells = [
        model,
        rate(attack.avg_std, attack.intervals["avg_std"]),
        worst("std"),
        rate(attack.avg_rob, attack.intervals["avg_rob"]),
        worst("rob"),
        fraction(attack.cau, attack.intervals["cau"]),
        rate(attack.cru_s, attack.intervals["cru_s"]),
    ]
    assert f"| {' | '.join(cells)} |" in README


def test_the_table_has_rows():
    assert len(MODELS) >= 3


def test_every_link_leads_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_ci_finds_the_test_command():
    pattern = "pip install .* pytest .*"
    assert rf"s/^    \({pattern}\)$/" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert len(re.findall(rf"^    {pattern}$", README, flags=re.MULTILINE)) == 1


def test_the_python_example_runs_offline(no_network, capsys):
    (example,) = re.findall("```python\n(.*?)```", README, flags=re.DOTALL)
    exec(example, {})
    assert "Shirt" in capsys.readouterr().out
