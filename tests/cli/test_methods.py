"""``fairbench methods``, and the pages in docs/methods whose tables it writes."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fairbench.cli.methods import options_block, value_text
from fairbench.training.methods import METHODS

Cli = Callable[..., Any]

DOCS = Path(__file__).parents[2] / "docs" / "methods"
OWN = '''
from dataclasses import dataclass

from fairbench.training import Method, option


@dataclass
class Half(Method):
    """Half of ``everything``.

    In two
    lines.
    """

    name = "half"
    source = "an example"
    variants = {"large": {"epsilon": 12 / 255, "hard": True}}

    epsilon: float = option(4 / 255, "our choice")
    hard: bool = option(False, "ours | theirs")


@dataclass
class Bare(Method):
    name = "bare"
    rate: float = 0.3


class NoMethod:
    pass
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own, by name."""
    (tmp_path / "cli_own_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return "cli_own_methods"


def test_methods_lists_every_method_with_its_idea_and_options(cli: Cli) -> None:
    ran = cli("methods")
    assert (ran.code, ran.err) == (0, "")
    assert re.findall(r"^(\w+)", ran.out, flags=re.MULTILINE) == list(METHODS)
    for name in METHODS:
        for key in METHODS[name].options():
            assert f"{key}=" in ran.out
    assert re.search(
        r"^pgd_at +CE\(f\(x_adv\), y\), x_adv by PGD.*\n +epsilon=8/255, step=2/255, steps=10$", ran.out, re.M
    )
    assert re.search(r"^standard .*\n +no options$", ran.out, re.M)
    assert "variants: authors_code, table2_row1" in ran.out


@pytest.mark.parametrize("name", list(METHODS))
def test_show_tells_source_and_every_option_and_variant(name: str, cli: Cli) -> None:
    method = METHODS[name]
    ran = cli("methods", "show", name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{name}: ")
    assert f"source: {method.source}\n" in ran.out
    assert ("\nneeds a trained model: --from\n" in ran.out) == method.needs_start
    rows = {tuple(re.split(r" {2,}", line.strip())) for line in ran.out.splitlines() if line.startswith("  ")}
    options = {(f.name, value_text(f.default), f.metadata["source"]) for f in fields(method)}
    assert rows >= options
    assert {row[0] for row in rows - options} == set(method.variants)


def test_show_says_what_a_variant_changes(cli: Cli) -> None:
    shown = cli("methods", "show", "bat").out
    assert re.search(r"^  authors_code +slack=1, reverse_uniform=true$", shown, re.M)
    assert re.search(r"^  table2_row5 +nothing: the defaults$", shown, re.M)


def test_show_takes_a_method_of_ones_own(own: str, cli: Cli) -> None:
    assert cli("methods", "show", f"{own}:Half") == (0, f"""\
{own}:Half: Half of everything.

In two lines.

source: an example

options
  epsilon  4/255  our choice
  hard     false  ours | theirs

variants
  large  epsilon=12/255, hard=true
""", "")  # fmt: skip
    assert r"| `hard` | `false` | ours \| theirs |" in cli("methods", "show", f"{own}:Half", "--markdown").out


def test_show_takes_a_method_that_says_nothing_of_itself(own: str, cli: Cli) -> None:
    ran = cli("methods", "show", f"{own}:Bare")
    assert ran.out == f"{own}:Bare: no description\n\nsource: not stated\n\noptions\n  rate  0.3\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tradse", "unknown method 'tradse'. Did you mean 'trades'?"),
        ("{own}:NoMethod", "it is not a subclass of fairbench.training.Method"),
        ("{own}:Halve", "has no class 'Halve'. Did you mean 'Half'?"),
        ("zzz", "unknown method 'zzz'. `fairbench methods` lists them."),
        ("my_code.Half", "One's own is 'my_code:Half'."),
        ("my_code.halves", "One's own is 'my_code.halves:CLASS'."),
        ("my/code.py:Half", "write my.code:Half."),
        ("no_such_module:Half", "there is no module 'no_such_module' in the current folder"),
    ],
)
def test_what_is_no_method_is_one_line(name: str, message: str, own: str, cli: Cli) -> None:
    ran = cli("methods", "show", name.format(own=own))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8 / 255, "8/255"),
        (0.031, "0.031"),
        (0.2, "0.2"),
        (6.0, "6"),
        (10, "10"),
        (True, "true"),
        (50 / 120, "0.416667"),
    ],
)
def test_values_read_as_people_write_them(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize("name", list(METHODS))
def test_a_page_has_the_options_of_its_method(name: str, cli: Cli) -> None:
    command = f"python -m fairbench methods show {name} --markdown"
    page = DOCS / f"{name}.md"
    assert page.exists(), f"write docs/methods/{name}.md; its tables: {command}"
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"<!-- options -->.*<!-- /options -->", text, flags=re.DOTALL)
    assert found == [options_block(METHODS[name])], (
        f"replace the block in docs/methods/{name}.md by what this prints: {command}"
    )
    assert cli("methods", "show", name, "--markdown").out == found[0] + "\n"
    for heading in ("Equations", "Source", "What fairbench does", "Options"):
        assert f"\n## {heading}\n" in text


def test_the_index_names_every_method_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` .*\| \[\1\]\(\1\.md\) \|$", (DOCS / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == list(METHODS)
    assert sorted(page.stem for page in DOCS.glob("*.md")) == ["README", *METHODS]
