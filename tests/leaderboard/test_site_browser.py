"""The board's pages in headless Chromium, from ``file://`` and without a network: sorting, filters, width, colours."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_submissions import submit

from fairbench.leaderboard.results import results_folder
from fairbench.reports.board import build

pytestmark = pytest.mark.slow
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BOARD, MODEL = "boards/fashion_mnist_linf_8-255.html", "models/bat_lenet5_fashion_mnist.html"
PAGES = ("index.html", "all.html", BOARD, MODEL, "submissions/mine.html")

CONTRASTS = """() => {
  const channels = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = channels(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  };
  const poor = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility({ visibilityProperty: true }) || element.tagName === "TITLE") continue;
    const style = getComputedStyle(element);
    const colour = channels(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [light(colour), light(ground(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    seen += 1;
    const said = `${element.tagName}.${element.className} ${contrast.toFixed(2)} ${element.textContent}`;
    if (contrast < 4.5) poor.push(said);
  }
  return { seen, poor };
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    board = tmp_path_factory.mktemp("browser") / "board"
    (board / "results").mkdir(parents=True)
    for path in results_folder().glob("*"):
        model, protocol = path.name.split(".")[:2]
        if model.endswith(("lenet5_fashion_mnist", "fashion_adversarial", "mlp_adult")) and protocol != "leaderboard":
            (board / "results" / path.name).write_bytes(path.read_bytes())
    submit(
        board / "submissions" / "mine" / "1", title="<script>alert(1)</script> " + 40 * "wide", extra_data="10M images"
    )
    build(board)
    return board / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="the pages' tests need playwright: pip install playwright")
    path = os.environ.get("FAIRBENCH_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is there, and $FAIRBENCH_BROWSER is not set")
    with api.sync_playwright() as playwright:
        # As root, which continuous integration often is, Chromium starts without its sandbox only.
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Any]:
    """``visit("index.html", color_scheme="dark")`` opens a page; at the end nothing went wrong in any."""
    contexts, wrong = [], []

    def asked(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(f"asked the network for {request.url}")

    def failed(request: Any) -> None:
        if not request.url.endswith(".parquet"):  # a download ends the request for a page
            wrong.append(f"failed: {request.url}")

    def opened(name: str, **options: Any) -> Any:
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", asked)
        page.set_default_timeout(180_000)  # of a machine that is busy with other work
        page.on("requestfailed", failed)
        page.on("console", lambda said: wrong.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        page.goto((site / name).as_uri())
        if name != "index.html":
            page.wait_for_selector("html[data-tables=ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def expect(located: Any) -> Any:
    """Return playwright's assertions, which wait: tables change after the event."""
    from playwright.sync_api import expect as waiting

    waiting.set_options(timeout=60_000)
    return waiting(located)


def sorts(header: Any, direction: str) -> None:
    """Wait until a column sorts so."""
    expect(header).to_have_attribute("aria-sort", direction)


def column(page: Any, table: str, name: str) -> list[str]:
    """Return what a column shows, from top to bottom; of a figure the number alone."""
    titles = page.locator(f"{table} thead .dt-column-title").all_inner_texts()
    place = [title.split() for title in titles].index(name.split()) + 1
    cells = page.locator(f"{table} tbody tr > :nth-child({place})")
    return [text.split()[0] if text.split() else "" for text in cells.all_inner_texts()]


def is_sorted(texts: list[str], downwards: bool = False) -> bool:
    """Return whether a column's texts are numbers in order."""
    values = [float(text) for text in texts]
    return values == sorted(values, reverse=downwards)


def shows(page: Any, table: str, name: str, wanted: Callable[[list[str]], bool]) -> None:
    """Wait until what a column shows is wanted: a table is drawn some time after the event, later on a busy machine."""
    until = time.monotonic() + 60
    while not wanted(found := column(page, table, name)):
        assert time.monotonic() < until, f"{name} shows {found}"
        page.wait_for_timeout(50)


def test_a_click_sorts_by_numbers_and_another_turns_it_round(visit: Any) -> None:
    page = visit(BOARD)
    ranks = column(page, "#ranked", "rank")
    assert ranks[0] == "1–5"
    for name in ("avg rob", "worst std", "CAU"):
        header = page.locator("#ranked thead th", has_text=name.split()[-1]).filter(has_text=name.split()[0])
        for direction in ("ascending", "descending"):
            header.locator(".dt-column-title").click()
            sorts(header, direction)
            shows(page, "#ranked", name, partial(is_sorted, downwards=direction == "descending"))
    page.locator("#ranked thead th.rank .dt-column-title").click()
    shows(page, "#ranked", "rank", ranks.__eq__)


def test_the_keyboard_sorts_and_filters(visit: Any) -> None:
    page = visit(BOARD)
    header = page.locator("#ranked thead th", has_text="CRU_s")
    header.locator("[tabindex='0']").first.focus()
    page.keyboard.press("Enter")
    sorts(header, "ascending")
    shows(page, "#ranked", "CRU_s", is_sorted)
    page.locator(".filters").get_by_label("extra data").focus()
    page.keyboard.press("End")
    shows(page, "#ranked", "model", ["lenet5_fashion_adversarial"].__eq__)


def test_filters_narrow_all_entries(visit: Any, site: Path) -> None:
    page = visit("all.html")
    rows, said = page.locator("#entries tbody tr"), page.locator(".filters output")
    everything = rows.count()
    expect(said).to_have_text(f"{everything} entries")
    page.locator(".filters").get_by_label("dataset").select_option("adult")
    shows(page, "#entries", "dataset", lambda found: set(found) == {"adult"})
    page.locator(".filters").get_by_label("threat model").select_option("L-inf 15")
    expect(said).to_have_text(f"3 of {everything} entries")
    page.locator(".filters").get_by_label("attack").select_option("PGD-20")
    expect(rows).to_contain_text("no entry goes with these filters")
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function(f"document.querySelectorAll('#entries tbody tr').length === {everything}")
    page.locator(".filters").get_by_label("examples").select_option("sample of 1,000")
    expect(rows).to_have_count(len(list((site.parent / "results").glob("*.quick.*autoattack.json"))))
    page.get_by_role("button", name="Clear").click()
    page.locator(".filters").get_by_label("search").fill("refrl_re")
    margins = {"refrl_remargin", "refrl_remargin_as_published", "refrl_reweight"}
    shows(page, "#entries", "model", lambda found: {name.partition("_lenet5")[0] for name in found} == margins)
    page.locator(".filters").get_by_label("search").fill("")
    page.locator(".filters").get_by_label("extra data").select_option("some")
    expect(rows).to_have_count(1)
    assert "<script>alert(1)</script>" in rows.inner_text()


def test_a_models_page(visit: Any) -> None:
    page = visit(BOARD)
    page.get_by_role("link", name="bat_lenet5_fashion_mnist").first.click()
    page.wait_for_selector("html[data-tables=ready]")
    assert page.title().startswith("bat_lenet5_fashion_mnist")
    bars = page.locator(".bars").first
    assert bars.locator(".bar.rob").count() == 10
    worst = bars.locator(".bar-row", has=page.locator(".bar-name.worst"))
    assert worst.locator(".bar-name").inner_text() == "Shirt"
    width = worst.locator(".bar.rob").bounding_box()["width"] / worst.locator(".track").bounding_box()["width"]
    assert width == pytest.approx(0.637, abs=0.01)
    cells = page.locator(".heatmap").first.locator("td")
    assert cells.count() == 100
    assert page.locator("figure.curve polyline.average").count() == 1
    for summary in page.locator("summary").all():
        summary.click()
    assert page.locator("pre", has_text="weight_decay").is_visible()
    assert page.locator("dd.hash").first.is_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="outcomes of every example").first.click()
    assert download.value.suggested_filename == "bat_lenet5_fashion_mnist.standard.parquet"


@pytest.mark.parametrize("name", PAGES)
def test_a_telephone_shows_a_page_without_scrolling_sideways(visit: Any, name: str) -> None:
    page = visit(name, viewport={"width": 375, "height": 812})
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_text_stands_out_from_its_ground(visit: Any, name: str, scheme: str) -> None:
    page = visit(name, color_scheme=scheme)
    for summary in page.locator("summary").all():
        summary.click()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    found = page.evaluate(CONTRASTS)
    assert found["seen"] > 40
    assert found["poor"] == []


def test_without_scripts_the_tables_are_there(visit: Any, browser: Any, site: Path) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto((site / BOARD).as_uri())
    assert page.locator("#ranked tbody tr").count() > 10
    assert not page.locator(".filters").is_visible()
    page.context.close()


def test_a_long_word_of_a_submission_pushes_no_figure_away(visit: Any) -> None:
    page = visit("boards/toy_linf_8-255.html", viewport={"width": 1280, "height": 800})
    first = page.locator("#ranked tbody td.number").nth(1).bounding_box()
    assert page.locator("#ranked tbody .name").first.bounding_box()["width"] < 400
    assert first["x"] + first["width"] < 640
