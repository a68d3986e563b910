"""The real page in a real browser: sorting, filters, keyboard, contrast, and no request outside."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.reporting.small_run import run, small_recipe

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# WCAG 2.2, level AA, for text of usual size.
LEAST_CONTRAST = 4.5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(small_recipe(tmp_path_factory.mktemp("browser"))) / "report" / "index.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


class Watched:
    """A page, what its console says, and what it asks for beside its own file."""

    def __init__(self, browser: Browser, report: Path, **context: object) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**context)  # type: ignore[arg-type]
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        own = report.as_uri()
        self.page.route(
            "**/*",
            lambda route: (
                route.continue_()
                if route.request.url.startswith((own, "data:"))
                else (self.asked.append(route.request.url), route.abort())
            ),
        )
        self.page.goto(own)


@pytest.fixture
def watched(browser: Browser, report: Path) -> Iterator[Watched]:
    watched = Watched(browser, report, viewport={"width": 1280, "height": 900})
    yield watched
    assert watched.complaints == []
    assert watched.asked == []
    watched.context.close()


def shown(page: Page, name: str, place: int) -> list[str]:
    """The texts of a column, by its place from 0, in the rows that are to be seen."""
    cells = page.locator(f"[data-table={name}] tbody tr:visible > :nth-child({place + 1})")
    return [re.split(r"[\s\[]", text.strip())[0] for text in cells.all_inner_texts()]


def test_clicks_sort_both_ways_and_tell_so(watched: Watched) -> None:
    page = watched.page
    head = page.locator("[data-table=routing] th", has_text="QA").first
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    numbers = [float(text) for text in shown(page, "routing", 2)]
    assert len(numbers) == 7
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in shown(page, "routing", 2)] == sorted(numbers)
    status = page.locator("[data-table=routing] [role=status]")
    assert "Sorted by QA, ascending. 7 of 21 rows shown." in status.inner_text()
    assert page.locator("[data-table=routing] th[aria-sort=ascending]").count() == 1


def test_filters_choose_rows_by_answer_model(watched: Watched) -> None:
    page = watched.page
    assert set(shown(page, "routing", 1)) == {"pooled"}
    select = page.locator("[data-table=routing] select")
    select.select_option("reader-4k")
    assert set(shown(page, "routing", 1)) == {"reader-4k"}
    assert len(shown(page, "routing", 1)) == 7
    select.select_option("")
    assert set(shown(page, "routing", 1)) == {"pooled", "reader-4k", "reader-16k"}
    assert "21 of 21 rows shown." in page.locator("[data-table=routing] [role=status]").inner_text()
    # Another table is left as it was.
    assert set(shown(page, "cost", 1)) == {"pooled"}


def test_what_has_no_value_stays_last(watched: Watched) -> None:
    page = watched.page
    heads = page.locator("[data-table=comparisons] th[data-heading]").all()
    place = next(
        i for i, h in enumerate(heads) if h.get_attribute("data-heading") == "QA difference"
    )
    for _ in range(2):
        heads[place].get_by_role("button").click()
        texts = shown(page, "comparisons", place)
        assert texts == sorted(texts, key=lambda text: text == "n/a")


def test_the_keyboard_reaches_and_works_everything(watched: Watched) -> None:
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    button = page.locator("[data-table=routing] thead button").first
    button.focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    head = page.locator("[data-table=routing] thead th").first
    assert head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    # From a button to the next one, and back.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('th').dataset.heading") == "Answer model"
    summary = page.locator("details summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert summary.locator("xpath=..").get_attribute("open") is not None


def test_a_screen_reader_is_told_what_things_are(watched: Watched) -> None:
    page = watched.page
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("navigation", name="Sections").count() == 1
    assert page.get_by_role("table", name="Routers compared on the same cases").count() == 1
    assert page.get_by_role("rowheader", name="always_rag").count() > 1
    assert page.get_by_role("img").count() > 8
    for link in page.locator("nav a").all():
        target = link.get_attribute("href")
        assert target is not None
        assert page.locator(target).count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(browser: Browser, report: Path, scheme: str) -> None:
    watched = Watched(browser, report, color_scheme=scheme)
    weak = watched.page.evaluate(_CONTRAST, LEAST_CONTRAST)
    background = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
    watched.context.close()
    assert weak == []
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) == (scheme == "dark")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(
    browser: Browser, report: Path, width: int
) -> None:
    watched = Watched(browser, report, viewport={"width": width, "height": 800})
    for fold in watched.page.locator("details").all():
        fold.evaluate("fold => { fold.open = true; }")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    watched.context.close()


def test_without_scripts_every_row_is_there(browser: Browser, report: Path) -> None:
    watched = Watched(browser, report, java_script_enabled=False)
    assert watched.page.locator("[data-table=routing] tbody tr").count() == 21
    assert watched.page.locator("[data-table=routing] .filters").is_hidden()
    watched.context.close()


def test_the_policy_stops_a_script_and_a_request(browser: Browser, report: Path) -> None:
    """Were a text not escaped after all, nothing would run and nothing be asked for."""
    watched = Watched(browser, report)
    watched.page.evaluate(
        """() => {
            document.body.insertAdjacentHTML("beforeend",
                '<img src="https://evil.test/a.png" onerror="window.hit = 1">' +
                '<iframe src="https://evil.test/b"></iframe>');
            const script = document.createElement("script");
            script.textContent = "window.hit = 2";
            document.body.append(script);
        }"""
    )
    watched.page.wait_for_timeout(200)
    assert watched.page.evaluate("window.hit") is None
    assert any("Content Security Policy" in text for text in watched.complaints)
    assert watched.asked == []
    watched.context.close()


# Contrast as WCAG has it, of every text against the nearest background that is painted.
_CONTRAST = """
(least) => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)" && colour !== "transparent") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const weak = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const painted = element.ownerSVGElement ? style.fill : style.color;
    const [a, b] = [light(painted), light(behind(element))].sort((one, other) => other - one);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least) weak.add(`${element.tagName} ${painted} ${ratio.toFixed(2)}`);
  }
  return [...weak];
}
"""
