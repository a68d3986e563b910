"""Pictures: the same from the same numbers, text as text, and strangers' names obeyed nowhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from prerouter.reporting import charts
from prerouter.reporting.contents import Figure
from prerouter.reporting.figures import FOREGROUND, draw, look

pytest.importorskip("matplotlib")

# U+FFFE is no character: XML refuses a text that holds it.
HOSTILE = "\ufffe\uffff<script>alert(1)</script> $\\frac{1}{0 & \"'> 统计 \x1b[31m\u202e"


def bars(*names: str, name: str = "bars") -> Figure:
    panels = [charts.BarPanel("panel", [charts.Bar(0.5, 0.4, 0.6) for _ in names])]
    return Figure(
        name, "Bars", "Bars of equal length", (4, 2), charts.bar_panels(names, panels, "x")
    )


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert draw(bars("a", "b")) == draw(bars("a", "b"))
    assert draw(bars("a", "b")).png != draw(bars("a", "c")).png


def test_no_date_and_text_stays_text() -> None:
    drawn = draw(bars("guideline"))
    assert ">guideline</text>" in drawn.svg
    assert "dc:date" not in drawn.svg
    assert b"Software" not in drawn.png[:200]


def test_hostile_names_are_shown_and_not_obeyed() -> None:
    drawn = draw(bars(HOSTILE, "plain"))
    for text in (drawn.svg, drawn.inline):
        root = ET.fromstring(text)
        assert not [e for e in root.iter() if e.tag.endswith("script")]
        shown = "".join(root.itertext())
        assert "<script>aler" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_on_a_page_it_takes_the_pages_foreground_and_has_no_background() -> None:
    drawn = draw(bars("a"))
    assert FOREGROUND in drawn.svg
    assert FOREGROUND not in drawn.inline
    assert "currentColor" in drawn.inline
    assert "#ffffff" not in drawn.inline
    assert "<style" not in drawn.inline
    assert 'aria-hidden="true"' in drawn.inline


def test_no_element_has_the_name_of_one_in_another_figure() -> None:
    def names(text: str) -> set[str]:
        return set(re.findall(r' id="([^"]+)"', text))

    hatched = charts.stacked_bars(["a"], [("x", [0.3]), ("y", [0.4]), ("z", [0.1])], "share")
    one = draw(Figure("one", "", "", (4, 2), hatched)).inline
    two = draw(Figure("two", "", "", (4, 2), hatched)).inline
    assert names(one)
    assert not names(one) & names(two)
    # Whatever is referred to is there: clips, marks, hatches.
    referred = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", one))
    assert referred
    assert {a or b for a, b in referred} <= names(one)


def test_routers_differ_by_marker_too() -> None:
    looks = [look(number) for number in range(77)]
    assert len(set(looks)) == 77
    assert len({marker for _, marker in looks[:11]}) == 11
    assert len({colour for colour, _ in looks[:7]}) == 7


def test_long_names_that_begin_alike_keep_lines_of_their_own() -> None:
    names = [f"embedded:SmolLM2-135M-Instruct, {prompt}" for prompt in ("guided", "direct")]
    names += [f"x{'y' * 60}{number}{'z' * 60}" for number in range(12)]
    shown = charts.shortened(names)
    assert len(set(shown)) == len(names)
    assert max(map(len, shown)) <= charts.SHORT
    assert shown[0].endswith(", guided")
    assert charts.shortened([names[0], names[0], "short"]) == [shown[0], shown[0], "short"]
    lines = [charts.Line(name, [(0.0, 0.1), (1.0, 0.2)], n) for n, name in enumerate(names)]
    paint = charts.line_panels([charts.LinePanel("", lines)], "x", "y")
    svg = draw(Figure("lines", "", "", (6, 6), paint)).svg
    for name in shown:
        assert f">{name}</text>" in svg


def test_a_value_that_is_missing_is_no_bar_of_length_0() -> None:
    panels = [charts.BarPanel("p", [charts.Bar(None), charts.Bar(0.0)])]
    figure = Figure("missing", "", "", (4, 2), charts.bar_panels(["a", "b"], panels, "x"))
    assert draw(figure).svg.count(">n/a</text>") == 1
