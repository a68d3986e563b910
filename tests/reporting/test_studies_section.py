"""Prompt studies in the report, from folders that may have been edited since."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prerouter.core.errors import InputError
from prerouter.core.records import Route
from prerouter.measures.best_of_n import best_of_n
from prerouter.measures.routing import routing_table
from prerouter.reporting.report import make_sections
from prerouter.reporting.sections.studies import BEST_OF, missing_studies, read_study, studies
from prerouter.runs.manifest import FileEntry, Fingerprint, Manifest, write_json
from prerouter.runs.rows import file_sha256, write_rows

from .made import material
from .test_report import column, table, usual

VARIANT = "large, full"


def make_study(folder: Path, name: str = "tried", stage: str = "study") -> Path:
    folder.mkdir(parents=True)
    made = usual()
    decisions = {
        "always_rag": made.decisions["always_rag"],
        VARIANT: [d.model_copy(update={"router": VARIANT}) for d in made.decisions["student"]],
    }
    rows = routing_table(decisions, made.labels, made.scores, made.cases, resamples=100)
    samples = {case.case_id: [Route.RAG, Route.LC] for case in made.cases}
    best = best_of_n(samples, made.labels, made.cases, numbers=(1, 2), resamples=100)
    write_rows(folder / "rows.jsonl", rows)
    write_json(folder / BEST_OF, {VARIANT: [row.model_dump(mode="json") for row in best]})
    sign(folder, name, stage)
    return folder


def sign(folder: Path, name: str = "tried", stage: str = "study") -> None:
    files = {
        file: FileEntry(rows=1, sha256=file_sha256(folder / file))
        for file in ("rows.jsonl", BEST_OF)
        if (folder / file).exists()
    }
    manifest = Manifest(
        fingerprint=Fingerprint(stage=stage, seed=1, sections={"name": name}, parents={}),
        files=files,
        seconds=1.0,
    )
    write_json(folder / "manifest.json", manifest.model_dump(mode="json", exclude_none=True))


def test_variants_and_best_of_n_are_shown(tmp_path: Path) -> None:
    folders = [make_study(tmp_path / "a"), make_study(tmp_path / "b", "second")]
    section = studies(folders)
    assert [part.name for part in section.parts if part.kind == "figure"] == [
        "study-1",
        "study-1-best-of",
        "study-2",
        "study-2-best-of",
    ]
    assert VARIANT in column(table(section, "study-1"), "router")
    best = table(section, "study-2-best-of")
    assert best.caption == "second: best of N samples"
    assert column(best, "N") == ["1", "2"]
    assert column(best, "best of N") == ["0.500", "1.000"]


def test_the_report_has_them(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "a")
    sections = {each.name: each for each in make_sections(material(usual(), studies=[folder]))}
    assert table(sections["studies"], "study-1").rows
    none = {each.name: each for each in make_sections(material(usual()))}["studies"]
    assert none.words == ["No prompt study was given (evaluate.studies)."]


def test_a_study_of_one_sample_has_no_best_of_n(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "a")
    (folder / BEST_OF).unlink()
    sign(folder)
    assert [part.name for part in studies([folder]).parts] == ["study-1", "study-1"]


def test_a_file_that_the_study_did_not_leave_is_passed_over(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "a")
    best = (folder / BEST_OF).read_bytes()
    (folder / BEST_OF).unlink()
    sign(folder)
    (folder / BEST_OF).write_bytes(best)
    assert read_study(folder).best_of == {}


def edited(folder: Path) -> None:
    text = (folder / "rows.jsonl").read_text()
    (folder / "rows.jsonl").write_text(text.replace("student", "stupid").replace("0.", "1."))


def signed_nonsense(folder: Path) -> None:
    (folder / BEST_OF).write_text(json.dumps({VARIANT: [{"samples": "many"}]}))
    sign(folder)


def signed_bad_rows(folder: Path) -> None:
    (folder / "rows.jsonl").write_text("{}\n")
    sign(folder)


def signed_no_rows(folder: Path) -> None:
    (folder / "rows.jsonl").write_text("")
    sign(folder)


def gone(folder: Path) -> None:
    (folder / "rows.jsonl").unlink()


def older(folder: Path) -> None:
    for name in ("rows.jsonl", BEST_OF):
        (folder / name).rename(folder / f"{name}.old")
    sign(folder)


def broken(folder: Path) -> None:
    (folder / "manifest.json").write_text("[")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (edited, "was altered"),
        (gone, "is gone"),
        (signed_nonsense, BEST_OF),
        (signed_bad_rows, "rows.jsonl:1"),
        (signed_no_rows, "holds no row"),
        (older, "no finished study of this version"),
        (broken, "no finished study of this version"),
    ],
)
def test_what_is_no_study_as_it_was_left_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    folder = make_study(tmp_path / "a")
    spoil(folder)
    with pytest.raises(InputError) as caught:
        studies([folder])
    assert words in caught.value.line


def test_a_folder_of_another_stage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no finished study"):
        studies([make_study(tmp_path / "a", stage="evaluate")])


def test_a_missing_study_is_named(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "a")
    (error,) = missing_studies([folder, tmp_path / "gone"])
    assert error.line.startswith(f"{tmp_path / 'gone'}: holds no finished study")
