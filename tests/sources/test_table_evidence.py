"""Evidence of a user's own questions: in each kind of table, found in the document or refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.core.records import Evidence, RagConfig
from prerouter.recipe.base import validate
from prerouter.recipe.cases import TableSource
from prerouter.sources.loaded import Loaded
from prerouter.sources.table import load_table

BODY = (
    "The harbour froze in March.\nNothing else is told of\u00a0it. "
    "The mill burned\n in June. Amen. Amen."
)
HARBOUR = "The harbour froze in March."
ROW = {"question": "When?", "question_id": "q", "document_path": "a.txt", "answer_model": "m"}


def load(folder: Path, rows: list[dict[str, Any]], suffix: str = ".jsonl", **given: bool) -> Loaded:
    (folder / "a.txt").write_text(BODY, encoding="utf-8")
    path = folder / f"mine{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    section = validate(TableSource, {"source": "table", "path": path}, "recipe.yaml")
    return load_table(section, RagConfig(), **given)


def evidence(folder: Path, value: Any, suffix: str = ".jsonl") -> tuple[Evidence, ...]:
    (reference,) = load(folder, [ROW | {"evidence": value}], suffix).references
    return reference.evidence


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_one_text_is_one_passage(tmp_path: Path, suffix: str) -> None:
    assert evidence(tmp_path, f" {HARBOUR}\n", suffix) == (
        Evidence(text=HARBOUR, start=0, end=len(HARBOUR)),
    )


@pytest.mark.parametrize(
    ("suffix", "as_text"),
    [(".csv", True), (".jsonl", True), (".jsonl", False), (".parquet", False)],
)
def test_a_list_is_several_passages_in_its_order(
    tmp_path: Path, suffix: str, as_text: bool
) -> None:
    listed = ["Nothing else is told", HARBOUR]
    found = evidence(tmp_path, json.dumps(listed) if as_text else listed, suffix)
    assert [piece.text for piece in found] == listed
    assert [BODY[piece.start : piece.end] for piece in found] == listed


def test_white_space_may_differ_and_the_documents_own_is_kept(tmp_path: Path) -> None:
    (found,) = evidence(tmp_path, "told of it.  The mill burned in\tJune.")
    assert (
        found.text == BODY[found.start : found.end] == "told of\u00a0it. The mill burned\n in June."
    )


def test_a_passage_at_several_places_has_no_span(tmp_path: Path) -> None:
    assert evidence(tmp_path, "Amen.") == (Evidence(text="Amen."),)


@pytest.mark.parametrize("blank", [None, "", "  ", []])
def test_no_evidence_is_none(tmp_path: Path, blank: Any) -> None:
    assert evidence(tmp_path, blank) == ()


def test_a_bracket_does_not_make_a_list(tmp_path: Path) -> None:
    with pytest.raises(CombinedError, match=r"'\[1\] The harbour' does not stand"):
        load(tmp_path, [ROW | {"evidence": "[1] The harbour"}])


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        ("The harbour froze in May.", "evidence_not_found", "does not stand in the document"),
        ([HARBOUR, "The mill."], "evidence_not_found", "'The mill.' does not stand"),
        (7, "not_text", "is 7"),
        ([HARBOUR, None], "not_text", "a text, a list of texts"),
        ([HARBOUR, " "], "not_text", "lists a blank text"),
    ],
)
def test_a_row_with_bad_evidence_is_refused_with_its_reason(
    tmp_path: Path, value: Any, reason: str, message: str
) -> None:
    rows = [ROW, ROW | {"question_id": "bad", "evidence": value}]
    with pytest.raises(CombinedError) as caught:
        load(tmp_path, rows)
    (line,) = caught.value.lines
    assert line.startswith(f"{tmp_path}/mine.jsonl:2, column evidence: ")
    assert message in line
    loaded = load(tmp_path, rows, skip_bad=True)
    assert [case.question_id for case in loaded.cases] == ["q"]
    assert [reject.reason for reject in loaded.rejects] == [reason]


def test_the_path_may_stand_in_another_row_of_the_document(tmp_path: Path) -> None:
    bare = {"question": "Why?", "question_id": "p", "answer_model": "m", "evidence": "In May."}
    rows = [bare | {"document_id": "d"}, ROW | {"document_id": "d"}]
    with pytest.raises(CombinedError, match=r"mine.jsonl:1, column evidence: 'In May.' does not"):
        load(tmp_path, rows)


def test_without_a_document_evidence_stands_as_it_is_given(tmp_path: Path) -> None:
    row = {"question": "Why?", "answer_model": "m", "evidence": "In May."}
    assert load(tmp_path, [row]).references[0].evidence == (Evidence(text="In May."),)


def test_evidence_is_counted(tmp_path: Path) -> None:
    counts = load(tmp_path, [ROW | {"evidence": [HARBOUR, "Amen."]}]).counts
    assert counts["evidence_passages"] == 2
    assert counts["evidence_passages_without_place"] == 1
