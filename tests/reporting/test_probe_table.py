from __future__ import annotations

import csv
import io
from pathlib import Path

from rich.console import Console

from prerouter.measures.probes import ProbeMeasure, ProbeResult
from prerouter.measures.statistics import Interval, Measured
from prerouter.reporting.probe_table import (
    CURVE_COLUMNS,
    curve_csv,
    penultimate_only,
    probe_csv,
    probe_markdown,
    probe_terminal,
)
from prerouter.reporting.sections.probes import read_probes


def result(layer: int = 3, value: float | None = 0.625, **changes: object) -> ProbeResult:
    interval = Interval(low=0.5, high=0.75, confidence=0.95, n_groups=9, resamples=100)
    measured = Measured(note="one class only, RAG") if value is None else None
    measures = dict.fromkeys(ProbeMeasure, measured or Measured(value=value, interval=interval))
    fields: dict[str, object] = {
        "row": "guided",
        "model": "Qwen/Qwen3-1.7B",
        "prompt": "guided",
        "distilled": False,
        "target": "ideal_label",
        "layer": layer,
        "layers": 4,
        "train_cases": 100,
        "test_cases": 40,
        "test_documents": 9,
        "classes": {"LC": 50, "RAG": 50},
        "measures": measures,
    }
    return ProbeResult.model_validate(fields | changes)


def shown(results: list[ProbeResult]) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        for table in probe_terminal(results):
            console.print(table)
    return captured.get()


def test_the_tables_show_values_and_intervals() -> None:
    for text in (probe_markdown([result()], 0.95), shown([result()])):
        assert "Probes for ideal label" in text
        assert "0.625" in text
        assert "[0.500, 0.750]" in text


def test_what_has_no_value_says_why() -> None:
    results = [result(), result(value=None, row="direct", left_out={"no_target": 7})]
    for text in (probe_markdown(results, 0.95), shown(results)):
        assert "n/a" in text
        assert "direct: one class only, RAG." in text
        assert "direct: 7 cases left out: no target." in text


def test_a_hostile_name_is_shown_and_not_obeyed() -> None:
    results = [result(row="<b>|[x](http://e)\x1b[31m", distilled=True)]
    markdown = probe_markdown(results, 0.95)
    assert "<b>" not in markdown
    assert "\x1b" not in markdown
    assert "(distilled)" in markdown
    assert "[x]" in shown(results)
    assert "\x1b" not in shown(results)


def test_of_a_curve_the_table_has_the_penultimate_layer() -> None:
    curve = [result(layer) for layer in range(5)]
    assert [each.layer for each in penultimate_only(curve)] == [3]
    assert [each.layer for each in penultimate_only([result(1)])] == [1]


def test_the_numbers_come_back_unrounded() -> None:
    value = 1 / 3
    (row,) = csv.DictReader(io.StringIO(probe_csv([result(value=value, notes=("few, very",))])))
    assert float(row["accuracy"]) == value
    assert float(row["selectivity_low"]) == 0.5
    assert row["notes"] == "few, very"
    (empty,) = csv.DictReader(io.StringIO(probe_csv([result(value=None)])))
    assert empty["accuracy"] == ""
    assert empty["notes"] == "one class only, RAG"


def test_no_cell_is_a_formula_or_breaks_its_line() -> None:
    hostile = result(row="=1+1", model="@SUM(A1)", notes=("-2\n+3",))
    for text in (probe_csv([hostile]), curve_csv([hostile])):
        (row,) = csv.DictReader(io.StringIO(text))
        assert (row["row"], row["model"], row["notes"]) == ("'=1+1", "'@SUM(A1)", "'-2 +3")
        # A number below zero is a number.
        assert float(row["layer"]) == 3
    low = Measured(value=-0.25)
    (row,) = csv.DictReader(
        io.StringIO(curve_csv([result(measures=dict.fromkeys(ProbeMeasure, low))]))
    )
    assert row["selectivity"] == "-0.25"


def test_the_report_reads_the_curve(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(curve_csv([result(0), result(1), result(2, value=None)]), "utf-8")
    points = read_probes(path)
    assert [(point.layer, point.accuracy, point.low, point.notes) for point in points] == [
        (0, 0.625, 0.5, None),
        (1, 0.625, 0.5, None),
        (2, None, None, "one class only, RAG"),
    ]
    assert (points[0].row, points[0].test_cases, points[0].selectivity) == ("guided", 40, 0.625)
    assert path.read_text("utf-8").splitlines()[0] == ",".join(CURVE_COLUMNS)
