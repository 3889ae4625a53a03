"""The board's pages without a browser: the same bytes, all or nothing, only text from others, no link to nowhere."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
import pytest
from made_submissions import content, submit

from fairbench.errors import OutcomesError
from fairbench.files import data_folder
from fairbench.leaderboard.entries import Entry, Evidence, read_entries
from fairbench.leaderboard.ranking import Board, Row, boards
from fairbench.leaderboard.results import results_folder
from fairbench.metrics import summarize
from fairbench.outcomes import Outcomes
from fairbench.plain_yaml import parse_yaml
from fairbench.reports import site
from fairbench.reports.board import build
from fairbench.reports.site import charts, links, places
from fairbench.reports.site.cards import zoo_facts

HOSTILE = "<script>alert(1)</script>\"'{{ 7 * 7 }}<img src=x onerror=alert(2)>&amp;"
FASHION = "boards/fashion_mnist_linf_8-255.html"


class Page(HTMLParser):
    """What a test asks of a page: its elements, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str]:
        return [str(a["id"]) for _, a in self.elements if "id" in a]


def html(folder: Path) -> dict[str, Page]:
    return {name: Page(data.decode()) for name, data in content(folder).items() if name.endswith(".html")}


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Three submissions, one of hostile words, and some of the project's results: two datasets, a search, a sample."""
    board = tmp_path_factory.mktemp("site") / "board"
    (board / "results").mkdir(parents=True)
    for path in results_folder().glob("*"):
        chosen = ("bat_lenet5", "lenet5_fashion_adversarial", "pgd_at_mlp", "static_augmentation_mlp")
        if path.name.startswith(chosen) and ".leaderboard." not in path.name:
            (board / "results" / path.name).write_bytes(path.read_bytes())
    submit(board / "submissions" / "plain" / "1", "plain")
    said = {"title": HOSTILE, "licence": HOSTILE, "authors": [HOSTILE], "extra_data": HOSTILE, "training_cost": HOSTILE}
    submit(board / "submissions" / "hostile" / "1", "hostile", seed=1, **said)
    submit(board / "submissions" / "weak" / "1", "weak", protocol="standard", seed=2)
    build(board)
    return board


@pytest.fixture(scope="module")
def built(board):
    return html(board / "site")


def test_there_is_a_page_for_every_board_and_model(board, built):
    assert set(built) == {
        "index.html",
        "all.html",
        *(f"boards/{n}.html" for n in ("adult_linf_10", "adult_linf_15", "adult_linf_20", "toy_linf_8-255")),
        *(f"boards/fashion_mnist_linf_{n}-255.html" for n in (8, 16)),
        *(f"models/{n}.html" for n in ("bat_lenet5_fashion_mnist", "lenet5_fashion_adversarial")),
        *(f"models/{n}_mlp_adult.html" for n in ("pgd_at", "static_augmentation")),
        *(f"submissions/{n}.html" for n in ("plain", "hostile", "weak")),
    }


def test_the_same_inputs_give_the_same_bytes(board, tmp_path):
    first = content(board / "site")
    build(board, tmp_path / "elsewhere")
    assert content(tmp_path / "elsewhere") == first
    assert [p.name for p in tmp_path.iterdir()] == ["elsewhere"]


def test_every_link_is_relative_and_leads_to_something_that_is_there(board, built):
    folder, links = board / "site", 0
    for name, page in built.items():
        for tag, attributes in page.elements:
            address = attributes.get("href") or attributes.get("src")
            if address is None or address.startswith("data:") or (tag == "a" and "nofollow" in str(attributes)):
                continue
            parts = urlsplit(address)
            assert not parts.scheme, (name, address)
            assert not parts.netloc
            assert not parts.path.startswith("/")
            target = (folder / name).parent / unquote(parts.path) if parts.path else folder / name
            assert target.is_file(), (name, address)
            if parts.fragment:
                assert parts.fragment in built[str(target.resolve().relative_to(folder.resolve()))].ids
            links += 1
    assert links > 100


def test_nothing_but_links_to_follow_is_of_another_place(board):
    for name, data in content(board / "site").items():
        if name.endswith((".css", ".html")) and name != "submissions/hostile.html":
            text = re.sub(
                r'<a href="https?://[^"]*" rel="nofollow|http://www.w3.org/2000/svg|<pre.*?</pre>',
                "",
                data.decode(),
                flags=re.S,
            )
            assert "//" not in text, name
            assert "@import" not in text


def test_words_of_others_stay_words(board, built):
    page = built["submissions/hostile.html"]
    assert HOSTILE in page.text
    for page in built.values():
        assert {s.get("src", "").rpartition("/")[2] for s in page.of("script")} <= {"datatables.js", "tables.js"}
        assert not page.of("img")
        assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("https://example.org/a?b=1&c", "https://example.org/a?b=1&c"),
        ("javascript:alert(1)", None),
        ("JaVaScRiPt://https://x", None),
        (" https://x", None),
        ("data:text/html,x", None),
        ('https://x" onmouseover="y', None),
        ("//example.org", None),
    ],
)
def test_only_web_addresses_become_links(address, link):
    assert links.safe_address(address) == link


def test_a_page_is_marked_up_for_all(built):
    for name, page in built.items():
        assert page.of("html")[0]["lang"] == "en"
        assert page.of("meta")[1]["content"].startswith("width=device-width")
        assert page.of("a")[0] == {"class": "skip", "href": "#content"}
        assert len(page.of("h1")) == 1, name
        assert len(page.ids) == len(set(page.ids)), name
        assert len(page.of("table")) == len(page.of("caption"))
        assert all(a.get("scope") in ("col", "row") for a in page.of("th"))
        drawn = [a for _, a in page.elements if a.get("role") == "img"]
        assert all(a.get("aria-label") or a.get("aria-labelledby") for a in drawn)
        assert name.startswith(("index", "all")) or drawn or "toy" in name


def test_figures_are_those_of_the_table(board, built):
    found = {one.dataset: one for one in boards(read_entries(board)) if one.epsilon in (8 / 255, 10.0)}
    page = built[FASHION].text
    for row in (*found["fashion_mnist"].ranked, *found["fashion_mnist"].sample):
        for column in places.ORDER:
            assert places.figure(row, column)["number"] in page
    assert "On the sample" in page
    assert "PGD-20 alone was run" in page


def test_autoattack_is_called_too_slow_only_where_it_was_run(built, tmp_path):
    (tmp_path / "results").mkdir()
    for path in results_folder().glob("trades6_resnet18.quick.*"):
        (tmp_path / "results" / path.name).write_bytes(path.read_bytes())
    build(tmp_path)
    page = html(tmp_path / "site")["boards/cifar10_linf_8-255.html"].text
    assert "Measured on 1,000 images, the first ones of each class. Not ranked" in page
    assert ", where AutoAttack was too slow for all of them. Not ranked" in built[FASHION].text


def test_a_models_page_has_its_classes_its_card_and_where_it_comes_from(built):
    page = built["models/bat_lenet5_fashion_mnist.html"].text
    for text in ("63.70", "Shirt", "training images", "57,000", "git revision", "SHA-256", "seed", "64/255", "licence"):
        assert text in page
    assert "Not measured" not in page
    assert "Not measured: there is no search" in built["submissions/plain.html"].text
    assert "a public checkpoint" in built["models/lenet5_fashion_adversarial.html"].text


def test_a_download_is_the_table_that_was_evaluated(board):
    beside = board / "site" / "submissions" / "plain.1.parquet"
    assert beside.read_bytes() == (board / "submissions" / "plain" / "1" / "outcomes.parquet").read_bytes()
    assert (board / "site" / "models" / "bat_lenet5_fashion_mnist.standard.json").is_file()


def test_a_folder_of_something_else_is_not_replaced(board, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutcomesError, match="no site that fairbench built"):
        build(board, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "index.html").write_text("<html>my own page")
    with pytest.raises(OutcomesError, match="choose another --site"):
        build(board, tmp_path)
    (tmp_path / "link").symlink_to(board / "site")
    with pytest.raises(OutcomesError, match="no site that fairbench built"):
        build(board, tmp_path / "link")


@pytest.mark.parametrize("name", ["CNAME", "models/notes.txt", "submissions/mine/1/card.yaml", ".git/HEAD"])
def test_a_file_of_ones_own_in_the_site_is_not_lost(board, tmp_path, name):
    (tmp_path / "results").mkdir()
    site = tmp_path / "public"
    build(tmp_path, site)
    build(tmp_path, site)
    (site / name).parent.mkdir(parents=True, exist_ok=True)
    (site / name).write_text("mine")
    with pytest.raises(OutcomesError, match=f"{site} holds {name.split('/')[0]} beside the site"):
        build(tmp_path, site)
    assert (site / name).read_text() == "mine"


def test_a_folder_of_ones_own_named_tables_is_not_lost(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "README.md").write_text("of my thesis")
    with pytest.raises(OutcomesError, match="holds something other than tables of a board"):
        build(tmp_path)
    assert (tmp_path / "tables" / "README.md").read_text() == "of my thesis"


@pytest.mark.parametrize("inside", ["", "tables", "submissions", "results"])
def test_a_folder_of_the_board_is_no_place_for_the_site(tmp_path, inside):
    board = tmp_path / "board"
    with pytest.raises(OutcomesError, match="a folder of the board itself"):
        build(board, board / inside if inside != "results" else results_folder())


def test_a_board_without_entries_has_pages(tmp_path):
    (tmp_path / "results").mkdir()
    build(tmp_path)
    assert "There is no entry yet" in html(tmp_path / "site")["index.html"].text


def entry(k: int, *, absent: bool = False, name: str = "m", n: int = 200) -> Entry:
    """An entry of K classes, the last of which has no example where ``absent``."""
    rng = np.random.default_rng(k)
    label = np.arange(n) % (k - absent)
    frame = pd.DataFrame({"index": np.arange(n), "label": label, "clean_pred": label})
    frame["pgd20_pred"] = np.where(rng.random(n) < 0.5, rng.integers(0, k, n), label)
    names = [f"<b>{c}</b>" for c in range(k)]
    manifest = {"dataset": {"classes": names}, "attacks": {"pgd20": {"epsilon": 8 / 255}}, "protocol": {}}
    manifest |= {"model": {"name": name}, "seed": 0}
    outcomes = Outcomes(frame, manifest)
    counts = np.zeros((k, k), dtype=np.int64)
    np.add.at(counts, (label, frame["pgd20_pred"]), 1)
    attack = summarize(outcomes).attacks["pgd20"]
    evidence = Evidence(Path(__file__), manifest, counts)
    return Entry(name, name, 0, "public", "d", 8 / 255, False, attack, None, evidence=evidence)


@pytest.mark.parametrize(("k", "absent"), [(2, False), (3, True), (10, False), (100, False)])
def test_any_number_of_classes(tmp_path, k, absent):
    found = Board("d", 8 / 255, "worst_rob", (Row(entry(k, absent=absent), (1, 1), True),), ())
    site.write_pages([found], {}, {"d_linf_8-255": ""}, tmp_path)
    page = Page((tmp_path / "models" / "m.html").read_text())
    assert len([a for _, a in page.elements if str(a.get("class", "")).startswith("bar-name")]) == k
    assert ("heatmap" in str(page.elements)) == (k <= 20)
    assert ("no example" in page.text) == absent
    assert "nan" not in re.sub("provenance", "", page.text.lower())
    assert "<b>0</b>" in page.text, "class names are text"


def test_a_models_name_cannot_leave_the_folder(tmp_path):
    for name in ("../../x", "/etc/passwd", "a/b", "..", "a b", ".hidden", "ä" * 200):
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", links.file_name(name)), name
    assert links.file_name("resnet18.v2") == "resnet18.v2"
    assert links.file_name("a b") != links.file_name("a-b")
    found = Board("d", 8 / 255, "worst_rob", (Row(entry(3, name="../../x"), (1, 1), True),), ())
    folder = tmp_path / "deep" / "site"
    folder.mkdir(parents=True)
    site.write_pages([found], {}, {"d_linf_8-255": ""}, folder)
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["site"]


@pytest.mark.parametrize("odd", [7, "x", ["a"], {"a": {"b": [1]}}, None, float("inf")])
def test_a_manifest_of_odd_things_does_not_stop_the_build(tmp_path, odd):
    """What no check holds to a form: somebody else wrote it."""
    made = entry(3)
    keys = ("hardware", "seconds", "versions", "notes", "warnings", "run", "attacks", "model")
    evidence = replace(made.evidence, manifest={**made.evidence.manifest, **dict.fromkeys(keys, odd)})
    row = Row(replace(made, evidence=evidence), (1, 1), True)
    site.write_pages([Board("d", 8 / 255, "worst_rob", (row,), ())], {}, {"d_linf_8-255": ""}, tmp_path)
    assert (tmp_path / "models" / "m.html").is_file()


def test_a_point_far_off_is_named_and_not_drawn():
    def row(average: float, worst: float, on_front: bool = False) -> Row:
        held = entry(2, name=f"m{average}")
        intervals = {
            **held.attack.intervals,
            "avg_rob": (average - 1, average + 1),
            "worst_rob": (worst - 1, worst + 1),
        }
        attack = replace(held.attack, avg_rob=average, worst_rob=worst, intervals=intervals)
        return Row(replace(held, attack=attack), (1, 9), on_front)

    rows = [row(20 + i / 2, 50 - i, on_front=True) for i in range(8)]
    drawn = charts.front(Board("d", 8 / 255, "worst_rob", (*rows, row(90, 99)), ()))
    assert [r.entry.name for r in drawn.beyond] == ["m90"]
    assert [p.number for p in drawn.numbered] == list(range(1, 9))
    assert all(0 <= v <= 100 for p in drawn.points for v in (p.x, p.y, *p.x_reach, *p.y_reach))
    assert len(drawn.line) == 2 * 8 - 1
    few = charts.front(Board("d", 8 / 255, "worst_rob", (rows[0], row(90, 99)), ()))
    assert few.beyond == ()


def test_text_is_readable_on_every_colour_of_the_heatmap():
    def luminance(colour: str) -> float:
        return charts._luminance([int(colour[i : i + 2], 16) for i in (1, 3, 5)])

    for scheme in ("light", "dark"):
        for ground, text in charts.heat(scheme):
            light, dark = sorted((luminance(ground), luminance(text)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("bat_resnet18", {"epochs": "4, each 1/4 of a pass: 1 pass", "starts from": "pgd2_resnet18"}),
        ("pgd2_resnet18", {"starts from": "natural_resnet18", "precision of the training": "bf16"}),
        ("pgd_at_lenet5_fashion_mnist", {"precision of the training": "32"}),
    ],
)
def test_a_short_training_says_how_short_it_was(model, said):
    card = parse_yaml((data_folder("model_zoo") / "cards" / f"{model}.yaml").read_text(encoding="utf-8"))
    facts = {str(name): str(value) for part in zoo_facts(card) for name, value in part}
    assert said.items() <= facts.items()
