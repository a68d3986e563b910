"""A small made clone with each fault that the slice of the real one does not show, and mistakes."""

from __future__ import annotations

import gzip
import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError, InputError
from prerouter.core.records import MissingReason, RagConfig, Route
from prerouter.recipe.cases import LaraSource
from prerouter.sources.lara import load_lara
from prerouter.sources.loaded import Loaded

PAPER = (
    "\ufeff<paper 0>\n# A Study of Cafe\u0301s\u2028\nAda\u200bLovelace\n"
    "<paper 1>\n# Another Study\nmore words\n"
)


def _row(question: str, order: int | str = 0, **more: Any) -> dict[str, Any]:
    return {"type": "paper", "file": "32k_paper_0.md", "context_order": order} | {
        "question": question,
        **more,
    }


def _lines(rows: list[Any]) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


class Clone:
    """Writes the files of a clone; a query asks `question`, its gold answer is `gold QUESTION`."""

    def __init__(self, root: Path, data: str = "datasets") -> None:
        self.root = root
        self.data = root / data
        (self.data / "query").mkdir(parents=True)

    def document(self, folder: str, name: str, text: str | bytes) -> None:
        path = self.data / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    def queries(self, name: str, rows: list[Any]) -> None:
        (self.data / "query" / f"{name}.jsonl").write_bytes(_lines(rows))

    def predictions(self, model: str, name: str, rows: list[Any]) -> None:
        folder = self.root / "evaluation" / "prediction" / model
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_bytes(_lines(rows))

    def load(self, skip_bad: bool = False, **settings: Any) -> Loaded:
        section = LaraSource(source="lara", path=self.root, **settings)
        return load_lara(section, RagConfig(), skip_bad=skip_bad)


def _asked(*questions: str) -> list[Any]:
    return [_row(q, order, answer=f"gold {q}") for order, q in enumerate(questions)]


def _told(*predictions: Any) -> list[Any]:
    """Prediction rows for questions q0, q1, ... in order."""
    return [
        _row(f"q{order}", order, prediction=prediction, ground_truth=f"gold q{order}")
        for order, prediction in enumerate(predictions)
    ]


@pytest.fixture
def made(tmp_path: Path) -> Clone:
    made = Clone(tmp_path)
    made.document("32k/paper", "32k_paper_0.md", PAPER)
    made.queries("32k_paper_location", _asked("q0", "q1", "q2"))
    made.predictions("m", "full_preds_m_32k_paper_location", _told("a", "b", "c"))
    made.predictions("m", "rag_preds_m_32k_paper_location", _told("x", "y", "z"))
    return made


def _arms(loaded: Loaded, route: Route) -> dict[str, str | MissingReason | None]:
    question = {case.case_id: case.question for case in loaded.cases}
    return {
        question[answer.case_id]: answer.text if answer.missing is None else answer.missing
        for answer in loaded.answers
        if answer.route is route
    }


def test_fault_3_a_shorter_file_leaves_arms_not_given_and_shifts_no_answer(made: Clone) -> None:
    short = _told("x", "y", False)
    made.predictions("m", "rag_preds_m_32k_paper_location", [short[2], short[0]])
    loaded = made.load()
    assert _arms(loaded, Route.RAG) == {
        "q0": "x",
        "q1": MissingReason.NOT_GIVEN,
        "q2": MissingReason.CALL_FAILED,
    }
    assert _arms(loaded, Route.LC) == {"q0": "a", "q1": "b", "q2": "c"}
    assert loaded.counts["prediction_file_pairs_of_unequal_length"] == 1
    assert loaded.counts["arms_not_given"] == 1
    assert loaded.counts["arms_call_failed"] == 1


def test_fault_2_all_calls_of_a_document_failed(made: Clone) -> None:
    made.predictions("m", "full_preds_m_32k_paper_location", _told(False, False, False))
    loaded = made.load()
    assert len(loaded.cases) == 3
    assert loaded.counts["documents_that_always_failed_for_a_model_and_route"] == 1


def test_faults_4_and_5_names_of_models(made: Clone) -> None:
    for model in ("m-0806", "m-mini"):
        made.predictions(model, "rag_preds_m-mini_32k_paper_location", _told(f"by {model}"))
    loaded = made.load()
    assert [case.answer_model.name for case in loaded.cases if case.question == "q0"] == [
        "m",
        "m-0806",
        "m-mini",
    ]
    assert loaded.counts["model_folders_named_otherwise"] == 1
    texts = {answer.text for answer in loaded.answers if answer.case_id.endswith("/m-0806")}
    assert texts == {"by m-0806", None}


def test_faults_6_and_8_names_of_fields_and_types(made: Clone) -> None:
    rows = [row | {"type": "book", "level": "comp", "length": "128k"} for row in _asked("q0")]
    made.queries("32k_paper_location", rows)
    made.predictions("m", "full_preds_m_32k_paper_location", _told("a"))
    made.predictions("m", "rag_preds_m_32k_paper_location", _told("x"))
    loaded = made.load()
    (reference,) = loaded.references
    assert (reference.context_length, reference.level) == ("32k", "location")
    assert reference.answer == "gold q0"
    assert loaded.cases[0].document.type == "paper"
    assert loaded.counts["questions_with_another_type_name"] == 1


def test_fault_11_one_question_at_two_places_of_one_file(made: Clone) -> None:
    rows = [_row("same", order, answer=f"gold {order}") for order in (0, 1)]
    told = [
        _row("same", order, prediction=f"told {order}", ground_truth=f"gold {order}")
        for order in (1, 0)
    ]
    made.queries("32k_paper_location", rows)
    for kind in ("rag", "full"):
        made.predictions("m", f"{kind}_preds_m_32k_paper_location", told)
    loaded = made.load()
    assert loaded.counts["file_and_question_collisions"] == 1
    gold = {reference.question_id: reference.answer for reference in loaded.references}
    question = {case.case_id: case.question_id for case in loaded.cases}
    pairs = {(gold[question[answer.case_id]], answer.text) for answer in loaded.answers}
    assert pairs == {("gold 0", "told 0"), ("gold 1", "told 1")}


def test_fault_12_a_name_stored_decomposed_is_found(tmp_path: Path) -> None:
    made = Clone(tmp_path)
    name = "Caf\u00e9; a Tale (Vol. 1), O\u2019Brien\u2019s Inc..txt"
    made.document("128k/book", unicodedata.normalize("NFD", name), "CHAPTER I. It rained.")
    row = _row("q0", answer="gold q0") | {"file": name}
    made.queries("128k_book_location", [row])
    told = _told("a")[0] | {"file": name}
    made.predictions("m", "rag_preds_m_128k_book_location", [told])
    (case,) = made.load().cases
    assert case.document.title == "Caf\u00e9; a Tale (Vol. 1), O\u2019Brien\u2019s Inc."
    assert case.document.head == "CHAPTER I. It rained."


def test_faults_13_and_15_what_documents_hold(made: Clone) -> None:
    loaded = made.load()
    document = loaded.cases[0].document
    assert document.title == "A Study of Caf\u00e9s"
    assert document.head == (
        "<paper 0> # A Study of Caf\u00e9s AdaLovelace <paper 1> # Another Study more words"
    )
    for name in (
        "documents_with_byte_order_mark",
        "documents_not_in_nfc",
        "zero_width_characters",
        "unusual_line_separators",
        "bundles_of_papers",
    ):
        assert loaded.counts[name] == 1, name


@pytest.mark.parametrize("text", ["None", "1", "9", " spaced \n", "ответ", "x " * 15_000])
def test_fault_16_any_text_is_an_answer(made: Clone, text: str) -> None:
    made.predictions("m", "rag_preds_m_32k_paper_location", _told(text))
    assert _arms(made.load(), Route.RAG)["q0"] == text


def test_fault_16_white_space_alone_is_none(made: Clone) -> None:
    made.predictions("m", "rag_preds_m_32k_paper_location", _told(" \n"))
    loaded = made.load()
    assert _arms(loaded, Route.RAG)["q0"] is MissingReason.EMPTY
    assert loaded.counts["arms_empty"] == 1


def test_fault_18_queries_without_predictions_and_the_reverse(made: Clone) -> None:
    made.queries("128k_paper_hallu", _asked("never answered"))
    hallu = [_row("made up", prediction="no", ground_truth="not told")]
    made.predictions("m", "rag_preds_m_32k_paper_hallu", hallu)
    loaded = made.load()
    assert loaded.counts["query_files_missing"] == 1
    assert loaded.counts["query_files_without_predictions"] == 1
    assert loaded.counts["questions_without_any_answer"] == 1
    assert loaded.counts["answers_whose_query_is_missing"] == 1
    by_answer = {reference.answer: reference for reference in loaded.references}
    assert by_answer["not told"].answerable is False
    assert "never answered" not in {case.question for case in loaded.cases}


def test_another_ground_truth_is_set_aside_and_never_joined(made: Clone) -> None:
    told = _told("x", "y", "z")
    told[1]["ground_truth"] = "gold of something else"
    made.predictions("m", "rag_preds_m_32k_paper_location", told)
    loaded = made.load()
    assert _arms(loaded, Route.RAG)["q1"] is MissingReason.NOT_GIVEN
    (reject,) = loaded.rejects
    assert reject.reason == "answer_without_question"
    assert reject.place.endswith("rag_preds_m_32k_paper_location.jsonl:2")


def test_the_older_name_of_the_data_folder(tmp_path: Path) -> None:
    made = Clone(tmp_path, data="dataset")
    made.document("32k/paper", "32k_paper_0.md", PAPER)
    made.queries("32k_paper_location", _asked("q0"))
    made.predictions("m", "rag_preds_m_32k_paper_location", _told("x"))
    loaded = made.load()
    assert len(loaded.documents) == 1
    assert loaded.counts["query_files"] == 1


def test_documents_that_are_absent_leave_their_cases(made: Clone) -> None:
    (made.data / "32k" / "paper" / "32k_paper_0.md").unlink()
    loaded = made.load()
    assert len(loaded.cases) == 3
    document = loaded.cases[0].document
    assert (document.head, document.tokens, document.title) == (None, None, None)
    assert loaded.counts["documents_without_text"] == 1
    assert not loaded.bodies


@pytest.mark.parametrize("file", ["../../../secret.txt", "/etc/hostname", "link.md", "..", ""])
def test_no_row_reads_outside_the_clone(made: Clone, tmp_path: Path, file: str) -> None:
    secret = tmp_path.parent / "secret.txt"
    secret.write_text("sentinel of the secret")
    os.symlink(secret, made.data / "32k" / "paper" / "link.md")
    rows = [row | {"file": file} for row in _asked("q0")]
    made.queries("32k_paper_location", rows)
    told = [row | {"file": file} for row in _told("x")]
    made.predictions("m", "rag_preds_m_32k_paper_location", told)
    loaded = made.load(skip_bad=True)
    assert "sentinel of the secret" not in str(loaded)


MISTAKES: list[tuple[str, str, str]] = [
    ("{not json", "unreadable_line", "is not JSON"),
    ('["a list"]', "unreadable_line", "not an object"),
    ("[" * 100_000, "unreadable_line", "is not JSON"),
    (json.dumps(_row("\ud800", 7, answer="x")), "invalid_utf8", "surrogate"),
    (json.dumps({"context_order": 0, "question": "q", "answer": "a"}), "missing_field", "`file`"),
    (json.dumps(_row("q9", answer=9)), "not_text", "`answer` is not a text"),
    (json.dumps(_row("  ", answer="a")), "not_text", "`question` is not a text"),
    (json.dumps(_row("q9", answer="a") | {"context_order": None}), "missing_field", "no place"),
    (json.dumps(_row("q9", answer="a") | {"context_order": True}), "missing_field", "no place"),
    (json.dumps(_row("q0", 0, answer="gold q0")), "duplicate", "repeats a question"),
    (json.dumps(_row("q0", 0, answer="other")), "conflicting_question", "another answer"),
]


@pytest.mark.parametrize(
    ("line", "reason", "told"), [pytest.param(*case, id=case[0][:60]) for case in MISTAKES]
)
def test_a_malformed_query_is_an_error_with_its_line(
    made: Clone, line: str, reason: str, told: str
) -> None:
    made.queries("32k_paper_location", [*_asked("q0", "q1", "q2"), line])
    with pytest.raises(CombinedError) as caught:
        made.load()
    (message,) = caught.value.lines
    assert "32k_paper_location.jsonl:4:" in message
    assert told in message
    loaded = made.load(skip_bad=True)
    (reject,) = loaded.rejects
    assert (reject.stage, reject.reason) == ("cases", reason)
    assert reject.place.endswith("32k_paper_location.jsonl:4")
    assert reject.raw == line
    assert len(loaded.cases) == 3
    assert loaded.counts["rows_rejected"] == 1


@pytest.mark.parametrize("prediction", [True, 3, ["a"], {"text": "a"}])
def test_a_prediction_of_another_kind_is_refused(made: Clone, prediction: Any) -> None:
    made.predictions("m", "rag_preds_m_32k_paper_location", _told("x", prediction))
    with pytest.raises(CombinedError, match="false for a failed call"):
        made.load()
    loaded = made.load(skip_bad=True)
    assert [reject.reason for reject in loaded.rejects] == ["not_text"]
    assert _arms(loaded, Route.RAG)["q1"] is MissingReason.NOT_GIVEN


def test_a_second_prediction_is_refused_and_the_first_kept(made: Clone) -> None:
    made.predictions("m", "rag_preds_m_32k_paper_location", [*_told("x"), *_told("another x")])
    with pytest.raises(CombinedError, match="second RAG answer"):
        made.load()
    assert _arms(made.load(skip_bad=True), Route.RAG)["q0"] == "x"


def test_a_document_that_is_not_utf8(made: Clone) -> None:
    made.document("32k/paper", "32k_paper_0.md", b"# Title\n\xff\xfe")
    with pytest.raises(CombinedError, match="byte 8 is not UTF-8"):
        made.load()
    loaded = made.load(skip_bad=True)
    assert [reject.reason for reject in loaded.rejects] == ["document_unreadable"]
    assert len(loaded.cases) == 3


def test_bytes_that_are_not_utf8_in_a_row(made: Clone) -> None:
    path = made.data / "query" / "32k_paper_location.jsonl"
    path.write_bytes(path.read_bytes() + b'\n{"file": "\xe9"}\n')
    with pytest.raises(CombinedError, match=r"jsonl:4: byte 10 of the line \(0xe9\)"):
        made.load()


def test_files_of_other_names_are_counted(made: Clone) -> None:
    made.queries("notes", ["free text"])
    made.predictions("m", "summary", ["free text"])
    made.predictions("m", "other_preds_m_32k_paper_location", ["free text"])
    assert made.load().counts["files_not_recognised"] == 3


@pytest.mark.parametrize(
    ("make", "told"),
    [
        ([], "is no LaRA data"),
        (["LaRA/datasets/query"], "did you mean"),
        (["datasets/query"], "holds no predictions"),
    ],
)
def test_a_folder_that_is_neither_form(tmp_path: Path, make: list[str], told: str) -> None:
    for folder in make:
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(InputError, match=told):
        load_lara(LaraSource(source="lara", path=tmp_path), RagConfig())


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        load_lara(LaraSource(source="lara", path=tmp_path / "nowhere"), RagConfig())


class Compact:
    """Copies a few questions of the compact form, so that its mistakes can be made."""

    def __init__(self, root: Path, source: Path) -> None:
        self.root = root
        with gzip.open(source / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
            self.queries = [json.loads(next(lines)) for _ in range(3)]
        self.predictions: list[Any] = [
            {"id": row["id"], "rag_prediction": "r", "lc_prediction": "l"} for row in self.queries
        ]

    def load(self, skip_bad: bool = False) -> Loaded:
        (self.root / "predictions").mkdir(exist_ok=True)
        for name, rows in (
            ("queries.jsonl.gz", self.queries),
            ("predictions/m.jsonl.gz", self.predictions),
        ):
            (self.root / name).write_bytes(gzip.compress(_lines(rows)))
        section = LaraSource(source="lara", path=self.root)
        return load_lara(section, RagConfig(), skip_bad=skip_bad)


@pytest.fixture
def small(tmp_path: Path, lara_dir: Path) -> Compact:
    return Compact(tmp_path, lara_dir)


def test_compact_status_tells_why_an_arm_is_missing(small: Compact) -> None:
    first, second, third = (row["id"] for row in small.queries)
    small.predictions = [
        {"id": first, "rag_prediction": None, "lc_prediction": "l", "rag_status": "failed"},
        {"id": second, "rag_prediction": None, "lc_prediction": "l", "rag_status": "missing"},
        {"id": third, "rag_prediction": None, "lc_prediction": None}
        | {"rag_status": "missing", "lc_status": "missing"},
    ]
    loaded = small.load()
    assert [answer.missing for answer in loaded.answers if answer.route is Route.RAG] == [
        MissingReason.CALL_FAILED,
        MissingReason.NOT_GIVEN,
    ]
    assert loaded.counts["questions_without_any_answer"] == 1


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("id", "0123456789ab", "conflicting_question"),
        ("question", " ", "empty_question"),
        ("doc_type", "book", "missing_field"),
        ("context_length", "64k", "missing_field"),
        ("n_tokens", -1, "bad_count"),
        ("n_tokens", True, "bad_count"),
        ("ground_truth", None, "not_text"),
    ],
)
def test_compact_rows_with_mistakes(small: Compact, key: str, value: Any, reason: str) -> None:
    small.queries[1] = small.queries[1] | {key: value}
    del small.predictions[1]
    with pytest.raises(CombinedError, match=r"queries\.jsonl\.gz:2"):
        small.load()
    loaded = small.load(skip_bad=True)
    assert [reject.reason for reject in loaded.rejects] == [reason]
    assert len(loaded.cases) == 2


@pytest.mark.parametrize("key", ["nobody", ["a"], None])
def test_compact_predictions_of_no_question(small: Compact, key: Any) -> None:
    small.predictions.append({"id": key, "rag_prediction": "r", "lc_prediction": "l"})
    with pytest.raises(CombinedError, match=r"m\.jsonl\.gz:4: answers a question"):
        small.load()
    assert [r.reason for r in small.load(skip_bad=True).rejects] == ["answer_without_question"]


def test_compact_file_that_is_cut_off(small: Compact) -> None:
    small.load()
    path = small.root / "queries.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"queries\.jsonl\.gz: can't be read"):
        load_lara(LaraSource(source="lara", path=small.root), RagConfig())


def test_compact_document_that_was_altered(small: Compact) -> None:
    row = small.queries[0]
    path = small.root / "clone" / "datasets" / "32k" / "book" / row["file"]
    path.parent.mkdir(parents=True)
    path.write_text("another text")
    described = {name: row[name] for name in ("context_length", "doc_type", "file")}
    described |= {"path": f"32k/book/{row['file']}", "sha256": "0" * 64}
    (small.root / "documents.jsonl").write_text(json.dumps(described))
    with pytest.raises(CombinedError, match="is not the document that"):
        small.load()
    loaded = small.load(skip_bad=True)
    assert [reject.reason for reject in loaded.rejects] == ["document_altered"]
    assert not loaded.bodies


def test_a_model_whose_name_is_no_text_is_told(made: Clone) -> None:
    name = os.fsdecode(b"m\xff")
    made.predictions(name, f"rag_preds_{name}_32k_paper_location", _told("a"))
    with pytest.raises(InputError, match=r"has predictions of 'm\\udcff', a name that can't be"):
        made.load()
