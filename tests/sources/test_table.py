"""A user's table: every mistake it may hold, one case each, and what good rows become."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError, InputError, PrerouterError
from prerouter.core.records import AnswerModel, ArmScore, MissingReason, RagConfig, Route
from prerouter.recipe.base import validate
from prerouter.recipe.cases import TableSource
from prerouter.sources.loaded import Loaded
from prerouter.sources.table import load_table

RAG = RagConfig(chunk_tokens=400, overlap_tokens=0, top_k=3)
GOOD = {
    "question": "What was the revenue?",
    "question_id": "q1",
    "document_id": "d1",
    "title": "Annual report",
    "document_type": "financial",
    "document_tokens": 1200,
    "head": "In the year under review",
    "answer_model": "m1",
    "context_window": 8192,
    "thinking": False,
    "answer": "12 million",
    "answerable": True,
    "level": "location",
    "context_length": "32k",
    "rag_score": 0.5,
    "lc_score": 1.0,
    "rag_answer": "12 m",
    "lc_answer": "12 million",
}
SECOND = GOOD | {"question": "Who leads the firm?", "question_id": "q2"}


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        path.write_bytes(_csv(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def _load(path: Path, skip_bad: bool = False, **settings: Any) -> Loaded:
    section = validate(TableSource, {"source": "table", "path": path} | settings, "recipe.yaml")
    return load_table(section, RAG, skip_bad=skip_bad)


def _lines(path: Path, **settings: Any) -> list[str]:
    with pytest.raises(PrerouterError) as caught:
        _load(path, **settings)
    assert isinstance(caught.value, InputError | CombinedError)
    return caught.value.lines


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_good_rows_of_each_kind_become_the_same_records(tmp_path: Path, suffix: str) -> None:
    loaded = _load(_write(tmp_path / f"cases{suffix}", [GOOD, SECOND]), judge="people")
    assert [case.case_id for case in loaded.cases] == ["q1/m1", "q2/m1"]
    case = loaded.cases[0]
    assert case.question == "What was the revenue?"
    assert case.group_id == case.document.document_id == "d1"
    assert case.document.tokens == 1200
    assert case.document.head == "In the year under review"
    assert case.answer_model == AnswerModel(name="m1", context_window=8192)
    assert case.rag == RAG
    assert loaded.references[0].answer == "12 million"
    assert loaded.references[0].level == "location"
    assert loaded.scores[0].arms == {Route.RAG: ArmScore(score=0.5), Route.LC: ArmScore(score=1.0)}
    assert loaded.scores[0].judge == "people"
    assert [answer.text for answer in loaded.answers[:2]] == ["12 m", "12 million"]
    assert loaded.counts["rows"] == loaded.counts["questions"] == 2
    assert loaded.counts["documents"] == 1
    assert not loaded.rejects


# What is wrong with the second of two rows: (changes, reason, column in the message, message).
BAD_ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "empty question": ({"question": ""}, "empty_question", "column question: is empty"),
    "blank question": ({"question": "  "}, "empty_question", "column question: is empty"),
    "score above the scale": ({"lc_score": 1.5}, "off_scale", "column lc_score: is 1.5, off"),
    "score below the scale": ({"rag_score": -0.1}, "off_scale", "a number from 0 to 1"),
    "NaN score": ({"rag_score": float("nan")}, "not_finite", "column rag_score: is nan"),
    "infinite score": ({"lc_score": float("inf")}, "not_finite", "column lc_score: is inf"),
    "negative length": ({"document_tokens": -5}, "bad_count", "column document_tokens: is -5"),
    "a length past all measure": ({"document_tokens": 1e30}, "bad_count", "to 1,000,000,000"),
    "a window past all measure": ({"context_window": 2e9}, "bad_count", "to 1,000,000,000"),
    "window of nothing": ({"context_window": 0}, "bad_count", "a whole number from 1"),
    "second row of one id": ({"question_id": "q1", "question": GOOD["question"]}, "duplicate", ""),
    "one id, two questions": ({"question_id": "q1"}, "conflicting_question", "the question is not"),
    "one id, two references": (
        {"question_id": "q1", "question": GOOD["question"], "answer": "13", "answer_model": "m2"},
        "conflicting_reference",
        "answer is not the one at",
    ),
    "one document, two titles": ({"title": "Other"}, "conflicting_document", "title is not the"),
    "one document, two lengths": (
        {"document_tokens": 1300},
        "conflicting_document",
        "tokens is not the one at",
    ),
    "an id of slashes": ({"question_id": "/" * 67}, "too_long", "has 201 characters"),
    "an id too long": ({"question_id": "q" * 300}, "too_long", "has 300 characters"),
}
# What only a file without types can hold.
BAD_TEXTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "score of words": ({"rag_score": "good"}, "not_a_number", "is 'good'"),
    "score with a comma": ({"lc_score": "0,5"}, "not_a_number", "is '0,5'"),
    "score with an underscore": ({"lc_score": "0_1"}, "not_a_number", "is '0_1'"),
    "NaN as text": ({"rag_score": "NaN"}, "not_finite", "is 'NaN'"),
    "half a token": ({"document_tokens": "12.5"}, "bad_count", "is '12.5'"),
    "length of words": ({"document_tokens": "12 thousand"}, "bad_count", "is '12 thousand'"),
    "endless length": ({"document_tokens": "inf"}, "bad_count", "is 'inf'"),
    "boolean of another spelling": ({"thinking": "ja"}, "bad_boolean", "true, false, yes, no"),
    "answerable of another spelling": ({"answerable": "2"}, "bad_boolean", "is '2'"),
}
BAD_VALUES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a question that is no text": ({"question": ["a"]}, "not_text", "is ['a'], not a text"),
    "a failed call as false": ({"rag_answer": False}, "not_text", "is False, not a text"),
    "a score that is a boolean": ({"rag_score": True}, "not_a_number", "is True"),
    "a title that is a number": ({"title": 1.5}, "not_text", "is 1.5, not a text"),
}


def _bad(names: dict[str, tuple[dict[str, Any], str, str]], suffixes: tuple[str, ...]) -> Any:
    return [
        pytest.param(suffix, *case, id=f"{name}, {suffix}")
        for name, case in names.items()
        for suffix in suffixes
    ]


@pytest.mark.parametrize(
    ("suffix", "changes", "reason", "told"),
    [
        *_bad(BAD_ROWS, (".csv", ".jsonl", ".parquet")),
        *_bad(BAD_TEXTS, (".csv", ".jsonl")),
        *_bad(BAD_VALUES, (".jsonl",)),
    ],
)
def test_a_bad_row_is_an_error_with_its_place_or_a_reject(
    tmp_path: Path, suffix: str, changes: dict[str, Any], reason: str, told: str
) -> None:
    path = _write(tmp_path / f"cases{suffix}", [GOOD, SECOND | changes])
    place = {".csv": f"{path}:3", ".jsonl": f"{path}:2", ".parquet": f"{path}: row 2"}[suffix]
    (message,) = _lines(path)
    assert message.startswith(place)
    # A CSV cell is shown in quotes, a number of the other kinds without.
    assert told.replace("'", "") in message.replace("'", "")
    loaded = _load(path, skip_bad=True)
    (reject,) = loaded.rejects
    assert (reject.stage, reject.reason) == ("cases", reason)
    assert reject.place.startswith(place)
    assert reject.raw
    assert [case.case_id for case in loaded.cases] == ["q1/m1"]
    assert loaded.counts["rows_rejected"] == 1


BAD_CSV = [
    (b"question,answer_model\nq,m\nonly one\n", "wrong_field_count", ":3: has 1 fields; 2, as in"),
    (b"question,answer_model\nq,m\na,b,c\n", "wrong_field_count", ":3: has 3 fields; 2, as in"),
    (b"question,answer_model\nq,m\nq\xe9,m\n", "invalid_utf8", ":3: byte 27 of the file is not"),
    (b"\xef\xbb\xbfquestion,answer_model\nq,m\nq\xe9,m\n", "invalid_utf8", ":3: byte 30 of the"),
    (b'question,answer_model\nq,m\n"a"b,m\n', "unreadable_line", ":3: is not CSV"),
    (b'question,answer_model\nq,m\n"a\nb\n', "unreadable_line", "a quoted field runs on to line 4"),
]
BAD_JSONL = [
    (b"{broken\n", "unreadable_line", ":2: is not JSON"),
    (b"[1, 2]\n", "unreadable_line", ":2: is a JSON list, not an object"),
    (b'"text"\n', "unreadable_line", ":2: is a JSON str, not an object"),
    (b'{"question": "\xff"}\n', "invalid_utf8", ":2: byte 14 of the line (0xff) is not UTF-8"),
    (b'{"question": "\\udc00", "answer_model": "m"}\n', "invalid_utf8", ":2: holds half of a"),
]


@pytest.mark.parametrize(
    ("suffix", "content", "reason", "told"),
    [(".csv", *case) for case in BAD_CSV]
    + [
        (".jsonl", b'{"question": "q", "answer_model": "m"}\n' + content, reason, told)
        for content, reason, told in BAD_JSONL
    ],
)
def test_an_unreadable_line_costs_itself_only(
    tmp_path: Path, suffix: str, content: bytes, reason: str, told: str
) -> None:
    path = tmp_path / f"cases{suffix}"
    path.write_bytes(content)
    (message,) = _lines(path)
    assert told in message
    loaded = _load(path, skip_bad=True)
    assert [reject.reason for reject in loaded.rejects] == [reason]
    assert loaded.rejects[0].raw
    assert [case.question for case in loaded.cases] == ["q"]
    json.dumps([r.model_dump() for r in loaded.rejects], ensure_ascii=False).encode()


def _folder(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("sentinel outside")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "good.txt").write_bytes(b"\xef\xbb\xbfThe   body\n of it. " + b"word " * 100)
    (documents / "latin.txt").write_bytes(b"caf\xe9")
    os.symlink(tmp_path / "outside.txt", documents / "link.txt")
    return documents


@pytest.mark.parametrize(
    ("document", "reason", "told"),
    [
        ("/etc/hostname", "document_outside", "is absolute"),
        ("C:\\texts\\a.txt", "document_outside", "is absolute"),
        ("\\\\server\\a.txt", "document_outside", "is absolute"),
        ("../outside.txt", "document_outside", "leads out of the folder"),
        ("good.txt/../../outside.txt", "document_outside", "leads out of the folder"),
        ("link.txt", "document_outside", "leads out of the folder"),
        ("nothing.txt", "document_missing", "can't be read: No such file"),
        (".", "document_missing", "can't be read: Is a directory"),
        ("nul\0.txt", "document_missing", "can't be read"),
        ("x" * 5000, "document_missing", "can't be read: File name too long"),
        ("latin.txt", "document_unreadable", "is not UTF-8 at byte 3"),
    ],
)
def test_a_bad_document_path(tmp_path: Path, document: str, reason: str, told: str) -> None:
    documents = _folder(tmp_path)
    rows = [{"question": "q", "document_path": "good.txt"}, {"question": "r"}]
    rows[1]["document_path"] = document
    path = _write(tmp_path / "cases.jsonl", rows)
    settings: dict[str, Any] = {"documents": documents, "answer_models": [{"name": "m"}]}
    (message,) = _lines(path, **settings)
    assert f"{path}:2, column document_path: " in message
    assert told in message
    loaded = _load(path, skip_bad=True, **settings)
    assert [reject.reason for reject in loaded.rejects] == [reason]
    assert "sentinel outside" not in str(loaded)
    assert len(loaded.cases) == 1


def test_an_error_of_the_system_without_a_number_is_told_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> str:
        raise OSError("the share is gone")

    monkeypatch.setattr("prerouter.sources.table_documents.read_document", fail)
    rows = [{"question": "q", "document_path": "good.txt"}]
    path = _write(tmp_path / "cases.jsonl", rows)
    (message,) = _lines(path, documents=_folder(tmp_path), answer_models=[{"name": "m"}])
    assert "can't be read: the share is gone" in message


def test_a_document_file_gives_head_length_and_body(tmp_path: Path) -> None:
    documents = _folder(tmp_path)
    rows = [
        {"question": "q", "document_path": "good.txt"},
        {"question": "r", "document_path": "./good.txt"},
    ]
    path = _write(tmp_path / "cases.jsonl", rows)
    loaded = _load(path, documents=documents, answer_models=[{"name": "m"}], head_characters=15)
    (document,) = loaded.documents
    assert document.path == "good.txt"
    assert document.characters == len(loaded.bodies[document.document_id])
    profile = loaded.cases[0].document
    assert profile.head == "The body of it."
    assert profile.tokens == round(document.characters / 4.28)
    assert loaded.counts["document_tokens_estimated"] == 1
    assert loaded.counts["documents_with_text"] == 1
    assert {case.document.document_id for case in loaded.cases} == {document.document_id}


def test_documents_lie_beside_the_table_by_default(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("body")
    rows = [{"question": "q", "document_path": "a.txt", "document_tokens": 9, "head": "own"}]
    path = _write(tmp_path / "cases.csv", rows)
    loaded = _load(path, answer_models=[{"name": "m"}])
    assert loaded.cases[0].document.head == "own"
    assert loaded.cases[0].document.tokens == 9


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("cases.csv", b"", "is empty"),
        ("cases.jsonl", b"", "is empty"),
        ("cases.parquet", b"", "is empty"),
        ("cases.csv", b"question,answer_model\n", "holds no rows"),
        ("cases.jsonl", b"\n\n", "holds no rows"),
        ("cases.parquet", b"PAR1 is not all it takes", "can't be read as Parquet"),
        ("cases.xlsx", b"x", "the suffix '.xlsx' tells no kind of table; .csv, .jsonl, .parquet"),
        ("cases", b"x", "the suffix '' tells no kind"),
        ("cases.csv", b"question,question\na,b\n", "several columns have the name 'question'"),
        ("cases.csv", b"quest\xe9on\na\n", "byte 5 of the file is not UTF-8"),
    ],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_that_is_no_table(
    tmp_path: Path, name: str, content: bytes, told: str, skip_bad: bool
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        _load(tmp_path / name, skip_bad=skip_bad)
    assert told in caught.value.line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "can't be read: No such file" in _lines(tmp_path / "cases.csv")[0]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_missing_question_column_names_the_nearest(tmp_path: Path, suffix: str) -> None:
    path = _write(tmp_path / f"cases{suffix}", [{"Questions": "q", "answer_model": "m"}])
    (message,) = _lines(path)
    assert "has no column 'question'; it has 'Questions', 'answer_model'" in message
    assert "write `cases.columns: {question: 'Questions'}`" in message
    assert _load(path, columns={"question": "Questions"}).cases[0].question == "q"


def test_columns_that_the_user_named_must_be_there(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.csv", [{"question": "q", "answer_model": "m", "titel": "t"}])
    (title, tokens) = _lines(path, columns={"title": "Title", "document_tokens": "length"})
    assert "has no column 'Title'" in title
    assert "{title: 'titel'}" in title
    assert "has no column 'length'" in tokens


def test_all_mistakes_are_told_and_none_is_lost(tmp_path: Path) -> None:
    rows = [GOOD | {"question_id": f"q{i}", "rag_score": 2 + i} for i in range(50)]
    path = _write(tmp_path / "cases.csv", rows)
    lines = _lines(path)
    assert len(lines) == 21
    assert lines[0].startswith(f"{path}:2, column rag_score: is '2'")
    assert "and 30 more mistakes of 50" in lines[-1]
    with pytest.raises(InputError, match="no good row is left: 50 were refused"):
        _load(path, skip_bad=True)


def test_several_mistakes_of_one_row_are_one_reject(tmp_path: Path) -> None:
    bad = SECOND | {"rag_score": "x", "lc_score": 7, "document_tokens": -1}
    path = _write(tmp_path / "cases.csv", [GOOD, bad])
    assert len(_lines(path)) == 3
    (reject,) = _load(path, skip_bad=True).rejects
    assert reject.reason == "bad_count"
    assert reject.detail.count("|") == 2


def test_an_error_shows_no_line_break_of_the_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.jsonl", [GOOD | {"rag_score": "bad\nrecipe.yaml: all fine"}])
    (message,) = _lines(path)
    assert "\n" not in message


def test_two_columns_are_enough(tmp_path: Path) -> None:
    rows = [{"question": "q", "head": "It was a dark"}, {"question": "r", "head": "It was  a dark"}]
    path = _write(tmp_path / "cases.csv", rows)
    models = [{"name": "a", "context_window": 1000}, {"name": "a", "thinking": True}]
    loaded = _load(path, answer_models=models)
    assert len(loaded.cases) == len({case.case_id for case in loaded.cases}) == 4
    assert len({case.question_id for case in loaded.cases}) == 2
    assert len({case.document.document_id for case in loaded.cases}) == 1
    assert loaded.counts["question_ids_derived"] == 2
    assert loaded.references[0].answer is None
    assert not loaded.scores
    assert not loaded.answers
    # Ids are the content's: the same in every file and on every machine.
    again = _load(_write(tmp_path / "other.jsonl", rows[::-1]), answer_models=models)
    assert {c.question_id for c in again.cases} == {c.question_id for c in loaded.cases}
    assert all(case.question_id.startswith("question-") for case in loaded.cases)


def test_without_any_document_each_question_has_its_own(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.csv", [{"question": "q"}, {"question": "r"}])
    loaded = _load(path, answer_models=[{"name": "m"}])
    assert len({case.group_id for case in loaded.cases}) == 2


def test_the_same_question_twice_is_a_duplicate_without_ids_too(tmp_path: Path) -> None:
    rows = [{"question": "q", "title": "A long title"}] * 2
    path = _write(tmp_path / "cases.csv", rows)
    (message,) = _lines(path, answer_models=[{"name": "m"}])
    assert f"stands at {path}:2 already" in message


def test_no_answer_model_anywhere(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.csv", [{"question": "q"}, {"question": "r"}])
    (message,) = _lines(path)
    assert message.startswith(f"{path}: names no answer model, and neither does the recipe")
    assert "`cases.answer_models: [{name: NAME, context_window: TOKENS}]`" in message


def test_a_row_without_an_answer_model_where_others_have_one(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.jsonl", [GOOD, {"question": "q"}])
    (message,) = _lines(path)
    assert message.startswith(f"{path}:2, column answer_model: names no answer model")


def test_the_recipe_fills_what_a_row_leaves_open_of_its_model(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer_model": "m"}, {"question": "r", "answer_model": None}]
    path = _write(tmp_path / "cases.jsonl", rows)
    models = [{"name": "m", "context_window": 500, "thinking": True}, {"name": "n"}]
    loaded = _load(path, answer_models=models)
    assert [(c.question, c.answer_model.name) for c in loaded.cases] == [
        ("q", "m"),
        ("r", "m"),
        ("r", "n"),
    ]
    assert loaded.cases[0].answer_model == AnswerModel(name="m", context_window=500, thinking=True)


def test_scores_belong_to_one_answer_model(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.csv", [{"question": "q", "rag_score": 1}])
    assert _load(path, answer_models=[{"name": "m"}]).scores
    (message,) = _lines(path, answer_models=[{"name": "m"}, {"name": "n"}])
    assert "2 answer models to give them to" in message


def test_missing_arms_are_missing_and_counted(tmp_path: Path) -> None:
    rows = [
        GOOD | {"question_id": "both"},
        GOOD | {"question_id": "rag", "lc_score": None, "lc_answer": None},
        GOOD | {"question_id": "none", "rag_score": None, "lc_score": None, "rag_answer": " "},
    ]
    loaded = _load(_write(tmp_path / "cases.jsonl", rows))
    assert [score.case_id for score in loaded.scores] == ["both/m1", "rag/m1"]
    assert loaded.scores[1].arms[Route.LC] == ArmScore(missing=MissingReason.NOT_GIVEN)
    assert loaded.counts["cases_without_scores"] == 1
    assert loaded.counts["lc_scores_missing"] == 1
    missing = {(a.case_id, a.route): a.missing for a in loaded.answers if a.missing}
    assert missing == {
        ("rag/m1", Route.LC): MissingReason.NOT_GIVEN,
        ("none/m1", Route.RAG): MissingReason.EMPTY,
    }
    assert loaded.counts["lc_answers_not_given"] == loaded.counts["rag_answers_empty"] == 1


def test_metadata_may_be_told_once_a_document(tmp_path: Path) -> None:
    rows = [
        {"question": "q", "document_id": "d", "title": None, "document_tokens": 1200.0},
        {"question": "r", "document_id": "d", "title": "T", "document_tokens": None},
    ]
    path = _write(tmp_path / "cases.parquet", rows)
    loaded = _load(path, answer_models=[{"name": "m"}])
    assert {(c.document.title, c.document.tokens) for c in loaded.cases} == {("T", 1200)}


def test_columns_of_no_use_are_counted(tmp_path: Path) -> None:
    rows = [GOOD, SECOND | {"comment": "x", "annotator": 3}]
    assert _load(_write(tmp_path / "cases.jsonl", rows)).counts["columns_not_used"] == 2


def test_csv_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "cases.CSV"
    path.write_bytes(
        "\ufeffquestion,answer_model,answerable,title\r\n"
        '"Two\r\nlines, ""quoted""",m,YES,\r\n'
        "\r\n"
        "Ünïcode\u2028line,m,0,Größe\r\n".encode()
    )
    loaded = _load(path)
    assert [c.question for c in loaded.cases] == ['Two\r\nlines, "quoted"', "Ünïcode\u2028line"]
    assert [reference.answerable for reference in loaded.references] == [True, False]
    assert [case.document.title for case in loaded.cases] == [None, "Größe"]


def test_a_long_cell_is_read_and_the_limit_of_csv_stays_as_it_was(tmp_path: Path) -> None:
    csv.field_size_limit(131_072)
    path = _write(tmp_path / "cases.csv", [GOOD | {"head": "word " * 60_000}])
    assert len(_load(path).cases[0].document.head or "") == 599
    assert csv.field_size_limit() == 131_072


def test_line_numbers_count_lines_inside_quotes_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text('question,answer_model\n"a\nb",m\n\nq,m\n,m\n')
    (message,) = _lines(path)
    assert message.startswith(f"{path}:6, column question")


SCORES = [
    {"question_id": "q1", "answer_model": "m1", "rag_score": 3, "lc_score": 4},
    {"question_id": "q2", "answer_model": "m1", "rag_score": "", "lc_score": 2},
]
CASES = [
    {key: row[key] for key in ("question", "question_id", "answer_model")} for row in (GOOD, SECOND)
]
GRADES = {"low": 0, "high": 4}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_scores_beside_the_cases(tmp_path: Path, suffix: str) -> None:
    scores = _write(tmp_path / f"scores{suffix}", SCORES)
    cases = [*CASES, {"question": "unscored", "question_id": "q3", "answer_model": "m1"}]
    path = _write(tmp_path / "cases.csv", cases)
    loaded = _load(path, scores={"path": scores}, scale=GRADES)
    assert [score.arms[Route.LC].score for score in loaded.scores] == [4.0, 2.0]
    assert loaded.scores[1].arms[Route.RAG].missing is MissingReason.NOT_GIVEN
    assert (loaded.scores[0].low, loaded.scores[0].high) == (0.0, 4.0)
    assert loaded.counts["cases_without_scores"] == 1
    assert loaded.counts["rag_scores_missing"] == 1


@pytest.mark.parametrize(
    ("rows", "reason", "told"),
    [
        ([SCORES[0] | {"question_id": "q9"}], "score_without_case", ":2: scores question 'q9'"),
        ([SCORES[0] | {"answer_model": "m9"}], "score_without_case", "and model 'm9', of which"),
        ([SCORES[0] | {"question_id": ""}], "score_without_case", "of which there is no case"),
        ([SCORES[0], SCORES[0]], "duplicate", ":3: scores question 'q1' and model 'm1' again"),
        ([SCORES[0] | {"rag_score": 5}], "off_scale", ":2, column rag_score: is '5', off the"),
        ([SCORES[0] | {"rag_score": "nan"}], "not_finite", "column rag_score: is 'nan'"),
    ],
)
def test_a_bad_row_of_scores(
    tmp_path: Path, rows: list[dict[str, Any]], reason: str, told: str
) -> None:
    path = _write(tmp_path / "cases.csv", CASES)
    settings = {"scores": {"path": _write(tmp_path / "scores.csv", rows)}, "scale": GRADES}
    (message,) = _lines(path, **settings)
    assert message.startswith(str(tmp_path / "scores.csv"))
    assert told in message
    loaded = _load(path, skip_bad=True, **settings)
    assert [reject.reason for reject in loaded.rejects] == [reason]
    assert len(loaded.cases) == 2


def test_a_bad_case_is_not_told_again_as_a_score_without_case(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.csv", [CASES[0], CASES[1] | {"question": ""}])
    settings = {"scores": {"path": _write(tmp_path / "scores.csv", SCORES)}, "scale": GRADES}
    (message,) = _lines(path, **settings)
    assert message.startswith(f"{path}:3, column question")
    rejects = _load(path, skip_bad=True, **settings).rejects
    assert [reject.reason for reject in rejects] == ["empty_question", "score_without_case"]


def test_scores_without_answer_model_need_one_case_a_question(tmp_path: Path) -> None:
    rows = [{"question_id": "q1", "rag_score": 1, "lc_score": 2}]
    settings = {"scores": {"path": _write(tmp_path / "scores.csv", rows)}, "scale": GRADES}
    one = _write(tmp_path / "one.csv", CASES)
    assert [score.case_id for score in _load(one, **settings).scores] == ["q1/m1"]
    two = _write(tmp_path / "two.csv", [*CASES, CASES[0] | {"answer_model": "m2"}])
    (message,) = _lines(two, **settings)
    assert "of which there are 2 cases" in message
    assert "add a column answer_model" in message


def test_files_of_scores_that_do_not_fit(tmp_path: Path) -> None:
    with_scores = _write(tmp_path / "with.csv", [GOOD])
    cases = _write(tmp_path / "cases.csv", CASES)
    scores = {"path": _write(tmp_path / "scores.csv", SCORES)}
    assert "one place for scores" in _lines(with_scores, scores=scores, scale=GRADES)[0]
    unnamed = {"path": _write(tmp_path / "unnamed.csv", [{"question_id": "q1", "score": 1}])}
    assert "has neither a column 'rag_score' nor 'lc_score'" in _lines(cases, scores=unnamed)[0]
    no_id = {"path": _write(tmp_path / "no_id.csv", [{"id": "q1", "rag_score": 1}])}
    assert "has no column 'question_id'" in _lines(cases, scores=no_id)[0]


def test_two_loads_are_equal(tmp_path: Path) -> None:
    path = _write(tmp_path / "cases.parquet", [GOOD, SECOND])
    assert _load(path) == _load(path)


def test_questions_and_models_with_slashes_do_not_collide(tmp_path: Path) -> None:
    rows = [
        GOOD | {"question_id": "a/b", "answer_model": "c"},
        GOOD | {"question_id": "a", "answer_model": "b/c"},
    ]
    loaded = _load(_write(tmp_path / "cases.jsonl", rows))
    assert [case.case_id for case in loaded.cases] == ["a%2Fb/c", "a/b/c"]
    assert len(loaded.scores) == 2


def test_a_parquet_column_that_nobody_uses_can_not_cost_a_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    far = pa.array([2**62, 1], type=pa.int64()).cast(pa.timestamp("ms"))
    table = pa.Table.from_pylist([GOOD, SECOND])
    path = tmp_path / "cases.parquet"
    pq.write_table(table.append_column("when", far), path)
    loaded = _load(path)
    assert len(loaded.cases) == 2
    assert loaded.counts["columns_not_used"] == 1


def test_a_parquet_value_that_can_not_be_read_costs_its_row(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([GOOD, SECOND])
    spoilt = pa.array([b"location", b"\xff"]).buffers()
    levels = pa.Array.from_buffers(pa.string(), 2, spoilt)
    path = tmp_path / "cases.parquet"
    pq.write_table(table.set_column(table.column_names.index("level"), "level", levels), path)
    (line,) = _lines(path)
    assert line.startswith(f"{path}: row 2, column level: can't be read: 'utf-8' codec")
    loaded = _load(path, skip_bad=True)
    assert [case.question_id for case in loaded.cases] == ["q1"]
    assert [reject.reason for reject in loaded.rejects] == ["unreadable_line"]


def test_a_table_divided_by_semicolons_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("question;answer_model\nWhy?;m\n")
    (line,) = _lines(path)
    assert line == (
        f"{path}:1: is one column, 'question;answer_model'; fields divided by commas; "
        "save the table with commas instead of ';'"
    )


def test_the_longest_names_make_a_case(tmp_path: Path) -> None:
    longest = {"question_id": "/" * 66 + "ab", "document_id": "/" * 200, "answer_model": "%" * 66}
    row = GOOD | longest | {"thinking": True}
    (case,) = _load(_write(tmp_path / "cases.jsonl", [row])).cases
    assert case.document.document_id == "/" * 200
    assert case.case_id.startswith("%2F%2F")
