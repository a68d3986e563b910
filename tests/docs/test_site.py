"""The site builds without a warning, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY

LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "link": "href",
    "source": "src",
    "video": "src",
    "object": "data",
}


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY, folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Loaded(HTMLParser):
    """The addresses that a page loads by itself, when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("canonical", "prev", "next"):
            return
        address = given.get(LOADING.get(tag, ""))
        if address:
            self.addresses.append(address)


def loaded(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return parser.addresses


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(list((REPOSITORY / "docs").rglob("*.md")))
    for page in pages:
        html = page.read_text("utf-8")
        assert loaded(html), page
        assert [at for at in loaded(html) if at.startswith(("http:", "https:", "//"))] == [], page
        assert 'class="mermaid"' not in html, "mermaid is loaded from elsewhere"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text("utf-8")
        assert "url(http" not in text
        assert "@import" not in text


def test_what_is_loaded_from_elsewhere_would_be_found() -> None:
    html = '<link rel="stylesheet" href="https://fonts.example/a.css"><a href="https://arxiv.org">'
    assert loaded(html) == ["https://fonts.example/a.css"]


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    shutil.copy(REPOSITORY / "mkdocs.yml", tmp_path)
    (tmp_path / "docs/limits.md").write_text("# Limits\n\n[nowhere](recipe.md#no-such-section)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "no-such-section" in done.stderr


@pytest.mark.parametrize(
    "page", sorted((REPOSITORY / "docs").rglob("*.md")), ids=lambda page: page.name
)
def test_a_page_that_is_written_by_hand_can_be_read_at_a_sitting(page: Path) -> None:
    text = page.read_text("utf-8")
    if "Made by scripts/" not in text:
        assert len(text.splitlines()) <= 200
    assert text.count("\n# ") + text.startswith("# ") == 1
