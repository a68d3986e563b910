"""LongBench-v2's `data.json`: what its records become, and every mistake one may hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError, InputError, PrerouterError
from prerouter.core.records import Answer, AnswerModel, RagConfig, Route
from prerouter.measures.qa import score_answer
from prerouter.recipe.cases import LongBenchV2Source
from prerouter.sources.loaded import Loaded
from prerouter.sources.longbench_v2 import load_longbench_v2

FIRST: dict[str, Any] = {
    "_id": "66f36490821e116aacb2cc22",
    "domain": "Single-Document QA",
    "sub_domain": "Financial",
    "difficulty": "easy",
    "length": "short",
    "question": "What did the harbour cost?",
    "choice_A": "One million",
    "choice_B": "Two million",
    "choice_C": "Three million",
    "choice_D": "It was never built",
    "answer": "C",
    "context": "The harbour.\r\nIt cost “three million”. \U0001f600" * 40,
}
SECOND = FIRST | {
    "_id": "2",
    "domain": "Code Repository Understanding",
    "sub_domain": "Code repo QA",
    "difficulty": "hard",
    "length": "long",
    "question": "Which function opens it?",
    "answer": "A",
}
MODELS = (AnswerModel(name="small", context_window=8192), AnswerModel(name="large", thinking=True))


def load(folder: Path, content: object, skip_bad: bool = False, **section: Any) -> Loaded:
    path = folder / "data.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    source = LongBenchV2Source(
        source="longbench_v2", path=path, answer_models=MODELS, head_characters=40, **section
    )
    return load_longbench_v2(source, RagConfig(top_k=7), skip_bad)


def mistakes(folder: Path, *records: object) -> list[str]:
    with pytest.raises(CombinedError) as caught:
        load(folder, list(records))
    return caught.value.lines


def test_questions_are_crossed_with_models_and_share_a_document(tmp_path: Path) -> None:
    loaded = load(tmp_path, [FIRST, SECOND], task_type="domain")
    assert [case.case_id for case in loaded.cases] == [
        "66f36490821e116aacb2cc22/small",
        "66f36490821e116aacb2cc22/large+thinking",
        "2/small",
        "2/large+thinking",
    ]
    assert [case.task_type for case in loaded.cases[::2]] == [FIRST["domain"], SECOND["domain"]]
    case = loaded.cases[0]
    assert case.question == FIRST["question"]
    assert case.rag.top_k == 7
    assert case.document.type == "Financial"
    assert case.document.title is None
    assert case.document.tokens == round(len(FIRST["context"]) / 4.28)
    assert case.document.head == "The harbour. It cost “three million”. \U0001f600T"
    [document] = loaded.documents
    content = FIRST["context"].encode()
    assert document.sha256 == hashlib.sha256(content).hexdigest()
    assert document.characters == len(FIRST["context"])
    assert loaded.bodies == {document.document_id: FIRST["context"]}
    assert {case.group_id for case in loaded.cases} == {document.document_id}
    assert loaded.counts["questions"] == 2
    assert loaded.counts["documents"] == 1
    assert loaded.counts["domain Single-Document QA"] == 1


@pytest.mark.parametrize(
    ("reply", "score"),
    [("(C)", 1), ("It cost three million.", 1), ("The answer is B", 0), ("I can't tell.", 0)],
)
def test_replies_are_scored_right_or_wrong(tmp_path: Path, reply: str, score: float) -> None:
    [reference] = load(tmp_path, [FIRST]).references
    answer = Answer(case_id="c", route=Route.RAG, text=reply)
    assert score_answer(answer, reference, "choice").score == score


def test_the_letter_and_the_choices_are_the_references_own(tmp_path: Path) -> None:
    loaded = load(tmp_path, [FIRST, SECOND])
    first, second = loaded.references
    assert (first.answer, second.answer) == ("C", "A")
    assert first.choices == ("One million", "Two million", "Three million", "It was never built")
    assert (first.level, first.context_length) == ("easy", "short")
    assert first.annotations == {"domain": "Single-Document QA"}
    seen = loaded.cases[0].model_dump_json()
    for text in ("Three million", "easy", "short", "Single-Document"):
        assert text not in seen


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"answer": "E"}, "answer is 'E'; A, B, C or D"),
        ({"answer": "c"}, "answer is 'c'; A, B, C or D"),
        ({"answer": 2}, "answer is 2; A, B, C or D"),
        ({"context": ""}, "context is blank"),
        ({"context": " \n\t"}, "context is blank"),
        ({"context": ["a"]}, "context is ['a']; a text"),
        ({"choice_D": "  "}, "choice_D is blank"),
        ({"choice_B": None}, "choice_B is None; a text"),
        ({"question": ""}, "question is blank"),
        ({"domain": ""}, "domain is blank"),
        ({"domain": "x" * 201}, "domain has too many characters; at most 200"),
        ({"retrieved_context": "x"}, "'retrieved_context' is no field; _id, domain, sub_domain"),
    ],
)
def test_a_mistake_is_told_with_its_record_and_field(
    tmp_path: Path, change: dict[str, Any], line: str
) -> None:
    [found] = mistakes(tmp_path, SECOND, FIRST | change)
    place = f"{tmp_path / 'data.json'}: record 2 ('66f36490821e116aacb2cc22'): "
    assert found.startswith(place + line)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    lines = mistakes(
        tmp_path,
        {key: value for key, value in FIRST.items() if key not in ("answer", "_id")},
        FIRST | {"answer": "", "choice_A": ""},
        ["no object"],
        SECOND,
        SECOND,
        FIRST | {"_id": "%" * 67},
    )
    path = tmp_path / "data.json"
    starts = [
        f"{path}: record 1: _id is not there; all of _id, domain",
        f"{path}: record 1: answer is not there",
        f"{path}: record 2 ('66f36490821e116aacb2cc22'): choice_A is blank",
        f"{path}: record 2 ('66f36490821e116aacb2cc22'): answer is ''",
        f"{path}: record 3: is a JSON list, not an object",
        f"{path}: record 5 ('2'): this _id stands at record 4 already",
    ]
    assert len(lines) == len(starts) + 1
    for line, start in zip(lines, starts, strict=False):
        assert line.startswith(start)
    assert lines[-1].endswith(
        "has too many characters; at most 66; mend the record, or leave it out with --skip-bad"
    )


def test_bad_records_are_set_aside_with_reasons_and_without_their_documents(
    tmp_path: Path,
) -> None:
    bad = [
        FIRST | {"_id": "a", "answer": "E"},
        FIRST | {"_id": "b", "context": ""},
        FIRST | {"_id": "c", "choice_A": "", "extra": 1},
        FIRST | {"_id": "d", "question": " "},
        {key: value for key, value in FIRST.items() if key != "length"},
        SECOND,
    ]
    loaded = load(tmp_path, [SECOND, *bad, FIRST], skip_bad=True)
    assert [(reject.key, reject.reason) for reject in loaded.rejects] == [
        ("a", "bad_letter"),
        ("b", "empty_field"),
        ("c", "empty_field"),
        ("d", "empty_question"),
        (FIRST["_id"], "missing_field"),
        ("2", "duplicate"),
    ]
    assert loaded.rejects[2].detail == "choice_A is blank | 'extra' is no field"
    assert all("harbour." not in (reject.raw or "") for reject in loaded.rejects)
    # A record that was refused doesn't keep its _id from a later one.
    assert [reference.question_id for reference in loaded.references] == ["2", FIRST["_id"]]
    assert loaded.counts["rows_rejected"] == 6


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "is not JSON: EOF"),
        (b'[{"_id": "1"', "is not JSON: EOF"),
        (b'{"_id": "1"}\n{"_id": "2"}', "is not JSON: trailing characters at line 2"),
        (b'{"data": []}', "is a JSON dict, not a list"),
        (b'[{"_id": "\xff"}]', "is not JSON: invalid unicode"),
        (b'[{"_id": "\\ud83d"}]', "is not JSON: "),
        (b"[" * 100_000, "is not JSON: recursion limit"),
    ],
)
def test_a_file_that_is_no_list_of_records_is_refused(
    tmp_path: Path, content: bytes, line: str
) -> None:
    for skip_bad in (False, True):
        with pytest.raises(InputError) as caught:
            load(tmp_path, content, skip_bad)
        assert caught.value.line.startswith(f"{tmp_path / 'data.json'}: {line}")
        assert "one JSON list of records" in caught.value.line


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    marked = FIRST | {"context": "\ufeff" + FIRST["context"]}
    loaded = load(tmp_path, b"\xef\xbb\xbf" + json.dumps([marked]).encode())
    assert list(loaded.bodies.values()) == [FIRST["context"]]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    source = LongBenchV2Source(
        source="longbench_v2", path=tmp_path / "none.json", answer_models=MODELS
    )
    with pytest.raises(PrerouterError, match="can't be read: No such file"):
        load_longbench_v2(source, RagConfig())
