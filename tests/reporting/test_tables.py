from __future__ import annotations

import json

import pytest
from rich.console import Console

from prerouter.core.records import Route
from prerouter.measures.routing import POOLED, Measure, RoutingRow
from prerouter.measures.statistics import Interval, Measured
from prerouter.reporting.tables import render_markdown, table_json, terminal_table


def measured(value: float, low: float, high: float, note: str | None = None) -> Measured:
    found = Interval(low=low, high=high, confidence=0.95, n_groups=40, resamples=1000)
    return Measured(value=value, interval=found, note=note)


def make_row(**fields: object) -> RoutingRow:
    measures = {
        Measure.QA: measured(0.46251, 0.4, 0.5),
        Measure.LC_RATE: measured(0.24567, 0.2, 1.0),
        Measure.ACCURACY: measured(0.7, 0.65, 0.75),
        Measure.BALANCED_ACCURACY: Measured(note="no case has LC as its ideal route"),
        Measure.LC_RECALL: Measured(note="no case has LC as its ideal route"),
        Measure.GAP_RECOVERED: measured(-0.00001, -1.5, 0.2, "the interval leaves out 9 resamples"),
    }
    row = {
        "router": "student",
        "answer_model": "gpt-4o",
        "n": 500,
        "unlabelled": 12,
        "undecided": 3,
        "n_groups": 40,
        "scale": (0.0, 4.0),
        "measures": measures,
        "collapsed": None,
        "few_cases": False,
    }
    return RoutingRow.model_validate(row | fields)


def on_terminal(rows: list[RoutingRow], width: int = 120) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for table in terminal_table(rows, width):
            console.print(table)
    return capture.get()


def test_markdown_shows_values_intervals_and_counts() -> None:
    text = render_markdown([make_row()])
    line = next(line for line in text.splitlines() if line.startswith("| student"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "student",
        "0.463 [0.400, 0.500]",
        "24.6% [20.0, 100.0]",
        "70.0% [65.0, 75.0]",
        "n/a (1)",
        "n/a (1)",
        "0.0% (2) [-150.0, 20.0]",
        "3",
    ]
    assert "500 cases with a label, 12 without, over 40 documents" in text
    assert "QA lies in 0 to 4." in text
    assert "95% intervals from 1000 resamples of documents" in text
    assert "(1) no case has LC as its ideal route." in text
    assert "(2) the interval leaves out 9 resamples." in text


def test_terminal_and_markdown_agree_on_every_number() -> None:
    rows = [make_row(), make_row(router="always_lc", collapsed=Route.LC)]
    shown = on_terminal(rows)
    for number in (
        "0.463",
        "[0.400, 0.500]",
        "24.6%",
        "[20.0, 100.0]",
        "[-150.0, 20.0]",
        "n/a (1)",
    ):
        assert number in shown
        assert number in render_markdown(rows)
    assert "-0.0" not in shown


def test_it_fits_a_terminal_of_120_columns() -> None:
    wide = {measure: measured(1.0, 1.0, 1.0) for measure in Measure}
    wide[Measure.GAP_RECOVERED] = measured(-1.0, -2.0, -1.5)
    shown = on_terminal([make_row(router="student_before", measures=wide)])
    assert max(map(len, shown.splitlines())) <= 120
    assert shown.count("[100.0, 100.0]") == 4
    assert shown.count("[-200.0, -150.0]") == 1
    assert "student_before " in shown
    absurd = on_terminal([make_row(router="x" * 60, measures=wide)])
    assert max(map(len, absurd.splitlines())) <= 120
    assert absurd.count("x") == 60


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_name_of_up_to_22_characters_is_not_broken(width: int) -> None:
    usual = {measure: measured(0.5, 0.4, 0.6) for measure in Measure}
    names = ("logistic_regression", "gradient_boosting", "long_rag_self_route", "n" * 22)
    shown = on_terminal([make_row(router=name, measures=usual) for name in names], width)
    assert max(map(len, shown.splitlines())) <= width
    for name in names:
        assert shown.count(f"{name} ") == (2 if width < 100 else 1)
    assert shown.count("[40.0, 60.0]") == (0 if width == 100 else 5 * len(names))


NAMES = ("always_rag", "task_majority", "decision_tree", "random_forest", "student_before")


@pytest.mark.parametrize("width", [80, 99])
def test_in_80_columns_neither_a_name_nor_an_interval_is_broken(width: int) -> None:
    wide = {measure: measured(-1.0, -2.0, -1.5) for measure in Measure}
    shown = on_terminal([make_row(router=name, measures=wide) for name in NAMES], width)
    assert max(map(len, shown.splitlines())) <= width
    # Two tables, half of the measures in each.
    for name in NAMES:
        assert shown.count(f"{name} ") == 2
    assert shown.count("[-2.000, -1.500]") == len(NAMES)
    assert shown.count("[-200.0, -150.0]") == 5 * len(NAMES)
    assert shown.count("500 cases with a label") == shown.count("QA lies in") == 1


@pytest.mark.parametrize("width", [100, 110])
def test_from_100_columns_on_all_measures_stand_side_by_side(width: int) -> None:
    shown = on_terminal([make_row(router=name) for name in NAMES], width)
    assert max(map(len, shown.splitlines())) <= width
    for name in NAMES:
        assert shown.count(f"{name} ") == 1


def test_a_narrow_terminal_loses_no_digit() -> None:
    shown = on_terminal([make_row()], width=60)
    assert "…" not in shown
    assert "0.463" in shown


def test_collapse_is_named_in_words_unless_it_is_meant() -> None:
    rows = [
        make_row(router="student", collapsed=Route.RAG),
        make_row(router="always_rag", collapsed=Route.RAG),
        make_row(router="oracle", collapsed=Route.RAG),
    ]
    text = render_markdown(rows)
    assert text.count("collapsed") == 1
    assert "| student **collapsed: always RAG** |" in text
    assert on_terminal(rows).count("collapsed:") == 1
    assert "always RAG" in on_terminal(rows)


def test_few_cases_carry_a_footnote() -> None:
    text = render_markdown([make_row(n=1, n_groups=1, few_cases=True)])
    assert "1 case with a label (1), 12 without, over 1 document" in text
    assert "(1) so few cases say little" in text
    assert "so few cases" not in render_markdown([make_row()])


def test_what_cases_without_a_label_lack_is_said_below_the_table() -> None:
    missing = {"RAG": {"call_failed": 9}, "LC": {"call_failed": 2, "cut_off": 1}}
    note = (
        "Scores that the cases without a label lack: RAG call_failed 9; LC call_failed 2, "
        "cut_off 1."
    )
    rows = [make_row(missing_arms=missing), make_row(router="oracle", missing_arms=missing)]
    assert render_markdown(rows).count(note) == 1
    assert on_terminal(rows).count(note) == 1
    assert "Scores that" not in render_markdown([make_row()])


def test_a_name_of_absurd_length_is_shortened_in_its_title() -> None:
    title = render_markdown([make_row(answer_model="a" * 300 + "z" * 300)]).splitlines()[0]
    assert "Answer model " + "a" * 40 + "…" + "z" * 23 + ": 500 cases" in title


def test_pooled_rows_are_shown_where_they_say_something_new() -> None:
    one = [make_row(), make_row(answer_model=POOLED)]
    assert "All answer models" not in render_markdown(one)
    assert "Answer model gpt-4o" in render_markdown(one)
    two = [make_row(), make_row(answer_model="qwen"), make_row(answer_model=POOLED)]
    text = render_markdown(two)
    order = ("Answer model gpt-4o", "Answer model qwen", "All answer models")
    assert sorted(order, key=text.index) == list(order)


HOSTILE = (
    "a|b `c` <script>alert(1)</script> [x](http://evil.test) *d* _e_\n# f\x1b[31m\u202e "
    "[bold]g[/bold]"
)


def test_names_are_escaped_for_markdown() -> None:
    text = render_markdown([make_row(router=HOSTILE, answer_model=HOSTILE)])
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 3
    unescaped = table[2].replace("\\|", "")
    assert unescaped.count("|") == table[0].count("|")
    assert "<script>" not in text
    assert "\\[x\\](" in text
    assert "://" not in text
    assert "`c`" not in text.replace("\\`", "")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\n# f" not in text
    assert "always_rag" in render_markdown([make_row(router="always_rag")])


def test_names_are_shown_and_not_obeyed_in_the_terminal() -> None:
    shown = on_terminal([make_row(router="[bold]g[/bold]", answer_model="[red]m[/red]")])
    assert "[bold]g[/bold]" in shown
    assert "[red]m[/red]" in shown
    assert "\x1b" not in on_terminal([make_row(router="x\x1b[31my")])


def test_json_is_plain_unrounded_and_reads_back() -> None:
    rows = [make_row(), make_row(router=HOSTILE, collapsed=Route.LC)]
    data = json.loads(json.dumps(table_json(rows), allow_nan=False))
    assert data[0]["measures"]["qa"]["value"] == 0.46251
    assert data[0]["measures"]["lc_recall"] == {
        "value": None,
        "interval": None,
        "note": "no case has LC as its ideal route",
    }
    assert data[1]["router"] == HOSTILE
    assert [RoutingRow.model_validate(row) for row in data] == rows


@pytest.mark.parametrize("render", [table_json, terminal_table])
def test_no_rows_give_no_table(render: object) -> None:
    assert callable(render)
    assert render([]) == []
