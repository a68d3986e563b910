"""Probe studies in the report: rows kept apart, controls beside them, refusals by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import InputError
from prerouter.reporting.contents import Section
from prerouter.reporting.figures import draw
from prerouter.reporting.probe_table import curve_csv
from prerouter.reporting.sections.probes import probes

from .test_probe_table import result
from .test_report import column, table

HEADER = "layer,target,prompt,model,accuracy,low,high\n"


def section_of(*paths: Path) -> Section:
    return probes(paths, min_cases=30)


def written(folder: Path, text: str, name: str = "curve.csv") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    return folder / name


def test_rows_that_differ_by_their_metadata_only_are_two_lines(tmp_path: Path) -> None:
    rows = [result(layer, row=row) for row in ("full", "head only") for layer in range(5)]
    section = section_of(written(tmp_path, curve_csv(rows)))
    (figure,) = [part for part in section.parts if part.kind == "figure"]
    assert "a line for each of 2 rows" in figure.alternative
    assert set(column(table(section, "probes"), "Row")) == {"full", "head only"}


def test_rows_of_two_studies_that_are_called_alike_are_told_apart(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / name, curve_csv([result(model=model)]))
        for name, model in (("a", "small"), ("b", "small"), ("c", "large"))
    ]
    two = column(table(section_of(paths[0], paths[2]), "probes"), "Row")
    assert two == ["guided, small, guided", "guided, large, guided"]
    alike = column(table(section_of(*paths), "probes"), "Row")
    assert len(set(alike)) == 3


def test_one_layer_is_enough_and_its_control_stands_beside_it(tmp_path: Path) -> None:
    section = section_of(written(tmp_path, curve_csv([result(test_cases=40)])))
    made = table(section, "probes")
    for heading in ("Accuracy", "Majority", "Control", "Selectivity"):
        assert column(made, heading) == ["62.5%"]
    assert column(made, "AUC") == ["0.625"]
    assert column(made, "Test cases") == ["40"]
    assert made.notes == []
    (figure,) = [part for part in section.parts if part.kind == "figure"]
    assert "a bar for each of 1 rows" in figure.alternative
    assert draw(figure).svg.count(">guided</text>") == 1


def test_few_cases_and_notes_are_told(tmp_path: Path) -> None:
    section = section_of(written(tmp_path, curve_csv([result(test_cases=7, notes=("a note",))])))
    notes = table(section, "probes").notes
    assert "a note" in notes
    assert any("only 7 cases" in note for note in notes)


def test_a_refused_probe_is_named_with_its_reason(tmp_path: Path) -> None:
    rows = [result(), *(result(n, row="direct", value=None) for n in (2, 3))]
    section = section_of(written(tmp_path, curve_csv(rows)))
    told = [words for words in section.words if "direct" in words]
    assert told == ["direct, ideal_label: no probe, one class only, RAG."]
    assert column(table(section, "probes"), "Accuracy") == ["62.5%", "n/a", "n/a"]
    alone = section_of(written(tmp_path, curve_csv([result(value=None)])))
    assert [part.kind for part in alone.parts] == ["table"]


def test_an_older_file_is_read_and_what_it_lacks_is_said(tmp_path: Path) -> None:
    section = section_of(written(tmp_path, f"{HEADER}0,label,guided,small,0.5,0.4,0.6\n"))
    made = table(section, "probes")
    assert (column(made, "Row"), column(made, "Control")) == (["small, guided"], ["n/a"])
    assert "the file doesn't tell" in made.notes


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("0,label,guided,m,,,", "accuracy: blank"),
        ("-1,label,guided,m,0.5,,", "layer"),
        (f"0,{'x' * 3000},guided,m,0.5,,", "target"),
    ],
)
def test_a_hostile_or_blank_line_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"curve.csv:2: {problem}"):
        section_of(written(tmp_path, f"{HEADER}{line}\n"))
