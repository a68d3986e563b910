"""The report as one page that loads nothing: sections in, HTML out.

Questions, titles, heads, rationales and names are strangers' text. Everything that a template shows
is escaped; a policy in the page forbids whatever would load, and any script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from prerouter.reporting.contents import Section, Table
from prerouter.reporting.escaping import one_line
from prerouter.reporting.numbers import table_csv

TEMPLATES = Path(__file__).parent / "templates"
# A larger file of numbers is linked beside the page, so that the page stays under 5 MB.
LARGEST_INSIDE = 100_000


def render_page(title: str, sections: Sequence[Section], drawings: Mapping[str, str]) -> str:
    """One HTML page. `drawings` are SVG texts of our own making, by the figure's name; a figure
    without one is told by its alternative."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = one_line
    environment.filters["numbers"] = _link
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


def _link(table: Table) -> str:
    """Where the page's link to a table's numbers leads: into the page itself, or beside it."""
    text = table_csv(table).encode()
    if len(text) > LARGEST_INSIDE:
        return f"data/{table.name}.csv"
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(text).decode()}"
