"""Pictures as SVG and PNG, the same byte for byte from the same numbers.

Matplotlib is an extra (`prerouter[report]`): only what is called here loads it. Text stays text in
SVG, so that it can be searched and read out.
"""

from __future__ import annotations

import io
import warnings
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from prerouter.reporting.contents import Figure

# Colours that people with any colour vision tell apart (after Okabe and Ito, 2008), dark enough on
# white and light enough on black; nothing is told by colour alone, so a marker goes with each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C0609A", "#3A9BD9", "#C98600", "#7A7A7A")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
# On the page the foreground is that of the page, light or dark.
FOREGROUND = "#222222"
QUIET = "#8A8A8A"

_STYLE: dict[str, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "none",
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.edgecolor": FOREGROUND,
    "axes.labelcolor": FOREGROUND,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": QUIET,
    "grid.alpha": 0.28,
    "grid.linewidth": 0.7,
    "text.color": FOREGROUND,
    # A dollar sign in a stranger's name begins no formula.
    "text.parse_math": False,
    "xtick.color": FOREGROUND,
    "ytick.color": FOREGROUND,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 7,
    "svg.fonttype": "none",
}
_DOTS_PER_INCH = 144
_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"


@dataclass(frozen=True)
class Drawn:
    """One figure: `svg` and `png` stand alone on white; `inline` is for a page, where it takes the
    page's foreground and no name of an element is in another figure."""

    svg: str
    inline: str
    png: bytes


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def look(index: int) -> tuple[str, str]:
    """Colour and marker of the router with this number: both differ for the first seven, one or
    the other for the first 77."""
    return COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]


def draw(figure: Figure) -> Drawn:
    """Paint a figure and save it in both forms. Needs matplotlib."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    style: Any = {**_STYLE, "svg.hashsalt": figure.name}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # A script that the font lacks is left out of the PNG; in SVG its text is the browser's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas = Canvas(figsize=figure.size, layout="constrained")
        FigureCanvasAgg(canvas)
        figure.paint(canvas)
        png = io.BytesIO()
        canvas.savefig(png, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
        svg = io.StringIO()
        canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    text = svg.getvalue()
    return Drawn(svg=text, inline=_for_a_page(text, figure.name), png=png.getvalue())


def _for_a_page(svg: str, name: str) -> str:
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    # What matplotlib has just written: no stranger's markup, and no entity of a stranger's.
    root = ET.fromstring(svg)  # noqa: S314
    width, height = root.get("viewBox", "0 0 1 1").split()[2:]
    for element in root.iter():
        for child in list(element):
            # Its metadata says nothing on a page, its style would reach the whole of it, and its
            # background would be white in the dark.
            unwanted = child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style")
            if unwanted or child.get("id") == "patch_1":
                element.remove(child)
        if named := element.get("id"):
            element.set("id", f"{name}-{named}")
        if (link := element.get(_LINK)) and link.startswith("#"):
            element.set(_LINK, f"#{name}-{link[1:]}")
        for key in ("clip-path", "fill", "style"):
            if value := element.get(key):
                value = value.replace("url(#", f"url(#{name}-")
                element.set(key, value.replace(FOREGROUND, "currentColor"))
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.set("aria-hidden", "true")
    root.set("focusable", "false")
    root.set("style", f"--width: {float(width) / 0.72:.0f}px; --ratio: {width} / {height}")
    return ET.tostring(root, encoding="unicode")
