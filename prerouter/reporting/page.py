"""The report as one page that loads nothing: sections in, HTML out.

Questions, titles, heads, rationales and names are strangers' text. Everything that a template shows
is escaped; a policy in the page forbids whatever would load, and any script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from prerouter.reporting.contents import Section, Table
from prerouter.reporting.cutting import cut_listings, cut_to
from prerouter.reporting.escaping import one_line
from prerouter.reporting.numbers import table_csv

TEMPLATES = Path(__file__).parent / "templates"
LARGEST_PAGE = 5_000_000
# A larger file of numbers is linked beside the page.
LARGEST_INSIDE = 100_000
# Bytes for each table and for each router's cases, less and less until the page is small enough.
_ROOMS = (200_000, 100_000, 50_000, 20_000, 5_000)
_LISTING_CHARACTERS = 50_000


def page_within(title: str, sections: Sequence[Section], drawings: Mapping[str, str]) -> bytes:
    """The page, in UTF-8, of under LARGEST_PAGE bytes: where all of it is more, it shows the first
    rows and cases, and says how many stand in the files of numbers alone. Where that is not enough
    it cuts listings, then tells figures by their alternatives. Words stay: a page of more than
    LARGEST_PAGE bytes of them is larger."""
    page = render_page(title, sections, drawings).encode()
    for cut, drawn, inside in _smaller(sections, drawings):
        if len(page) < LARGEST_PAGE:
            break
        page = render_page(title, cut, drawn, inside).encode()
    return page


def _smaller(
    sections: Sequence[Section], drawings: Mapping[str, str]
) -> Iterator[tuple[Sequence[Section], Mapping[str, str], int]]:
    """What to show instead, less and less: sections, drawings, bytes of a file inside."""
    cut = sections
    for room in _ROOMS:
        cut = [cut_to(section, room) for section in sections]
        yield cut, drawings, min(room, LARGEST_INSIDE)
    cut = [cut_listings(section, _LISTING_CHARACTERS) for section in cut]
    yield cut, drawings, _ROOMS[-1]
    yield cut, dict.fromkeys(drawings, ""), _ROOMS[-1]


def render_page(
    title: str,
    sections: Sequence[Section],
    drawings: Mapping[str, str],
    largest_inside: int = LARGEST_INSIDE,
) -> str:
    """One HTML page. `drawings` are SVG texts of our own making, by the figure's name; a figure
    without one is told by its alternative, and so is one whose drawing is blank: that stands beside
    the page alone. Files of numbers of up to `largest_inside` bytes stand in the page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = one_line
    environment.filters["numbers"] = partial(_link, largest=largest_inside)
    script = (TEMPLATES / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html.jinja").render(
        title=one_line(title),
        sections=sections,
        # Markup means: done, not to be escaped. All three are files of ours, or drawn by us.
        drawings={name: Markup(svg) for name, svg in drawings.items()},  # noqa: S704
        style=Markup((TEMPLATES / "report.css").read_text("utf-8")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy="; ".join(
            (
                "default-src 'none'",
                f"script-src 'sha256-{digest}'",
                "style-src 'unsafe-inline'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
    )


def _link(table: Table, largest: int) -> str:
    """Where the page's link to a table's numbers leads: into the page itself, or beside it."""
    text = table_csv(table).encode()
    if table.left_out or len(text) > largest:
        return f"data/{table.name}.csv"
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text).decode()}"
