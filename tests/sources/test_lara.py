"""LaRA's real files in both forms: what its README says they do, one test for each thing."""

from __future__ import annotations

import gzip
import json
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import InputError
from prerouter.core.records import (
    Answer,
    AnswerModel,
    MissingReason,
    RagConfig,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.recipe.cases import LaraSource
from prerouter.sources.lara import load_lara
from prerouter.sources.loaded import Loaded


def _load(path: Path, **settings: Any) -> Loaded:
    return load_lara(LaraSource(source="lara", path=path, **settings), RagConfig())


@pytest.fixture(scope="module")
def queries(lara_dir: Path) -> dict[str, dict[str, Any]]:
    with gzip.open(lara_dir / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {row["id"]: row for row in map(json.loads, lines)}


def _answers(loaded: Loaded) -> dict[tuple[str, Route], Answer]:
    return {(answer.case_id, answer.route): answer for answer in loaded.answers}


def _references(loaded: Loaded) -> dict[str, Reference]:
    return {reference.question_id: reference for reference in loaded.references}


def _cases(loaded: Loaded) -> dict[str, RoutingCase]:
    return {case.case_id: case for case in loaded.cases}


def test_sizes(compact: Loaded, clone: Loaded) -> None:
    assert len(compact.references) == 1800
    assert len(compact.cases) == 1800 * 6
    assert len(clone.references) == 245
    assert len(clone.cases) == 245 * 4
    for loaded in (compact, clone):
        assert not loaded.rejects
        assert len(loaded.answers) == 2 * len(loaded.cases)
        assert len(_cases(loaded)) == len(loaded.cases)


def test_both_forms_agree_on_ids_answers_and_references(compact: Loaded, clone: Loaded) -> None:
    """Ids computed from a clone's rows are the published ones, and carry the same predictions."""
    compact_references = _references(compact)
    shared_annotations = ("raw_type", "order")
    for reference in clone.references:
        other = compact_references[reference.question_id]
        skipped = {"annotations"}
        assert reference.model_dump(exclude=skipped) == other.model_dump(exclude=skipped)
        for name in shared_annotations:
            assert reference.annotations[name] == other.annotations[name]
    in_compact = _answers(compact)
    shared = [answer for answer in clone.answers if (answer.case_id, answer.route) in in_compact]
    assert len(shared) == 245 * 2 * 2  # gpt-4o and qwen2.5-7b-instruct are in both
    for answer in shared:
        assert answer == in_compact[answer.case_id, answer.route]


def test_both_forms_agree_on_documents(compact: Loaded, clone: Loaded) -> None:
    compact_cases = _cases(compact)
    for case in clone.cases:
        if case.case_id in compact_cases:
            other = compact_cases[case.case_id].document
            assert case.document.model_dump(exclude={"tokens"}) == other.model_dump(
                exclude={"tokens"}
            )
            assert case.document.tokens == pytest.approx(other.tokens, rel=0.17)
    assert clone.bodies == compact.bodies
    assert {d.document_id: d.sha256 for d in clone.documents} == {
        d.document_id: d.sha256 for d in compact.documents
    }


def test_documents_lie_where_their_path_says(lara_dir: Path, clone: Loaded) -> None:
    with (lara_dir / "documents.jsonl").open(encoding="utf-8") as lines:
        published = {row["file"]: row for row in map(json.loads, lines)}
    assert len(clone.documents) == len(published) == 12
    for document in clone.documents:
        row = published[document.document_id.split("/", 2)[2]]
        assert document.sha256 == row["sha256"]
        assert document.characters == row["n_chars"] == len(clone.bodies[document.document_id])
        assert (lara_dir / "clone" / document.path).is_file()


def test_fault_1_failed_calls_are_missing_and_never_the_word_false(
    compact: Loaded, clone: Loaded
) -> None:
    for loaded, failed in ((compact, 133), (clone, 7)):
        missing = [answer for answer in loaded.answers if answer.missing is not None]
        assert len(missing) == failed == loaded.counts["arms_call_failed"]
        assert all(answer.missing is MissingReason.CALL_FAILED for answer in missing)
        assert not any(answer.text in ("False", "false", "") for answer in loaded.answers)


def test_fault_2_a_document_that_always_fails_is_counted(compact: Loaded) -> None:
    assert compact.counts["documents_that_always_failed_for_a_model_and_route"] == 3
    cases = _cases(compact)
    failed = Counter(
        cases[answer.case_id].answer_model.name
        for answer in compact.answers
        if answer.missing
        and cases[answer.case_id].document.title == "Paratek Pharmaceuticals Inc"
        and answer.route is Route.LC
    )
    assert list(failed.values()).count(27) == 3


def test_fault_4_the_folder_names_the_model(clone: Loaded) -> None:
    assert {case.answer_model.name for case in clone.cases} == {
        "gemini-1.5-pro",
        "gpt-4o",
        "gpt-4o-0806",
        "qwen2.5-7b-instruct",
    }
    assert clone.counts["model_folders_named_otherwise"] == 1


def test_fault_5_a_name_that_starts_another_takes_only_its_own(lara_dir: Path) -> None:
    loaded = _load(lara_dir / "clone", answer_models=("gpt-4o",))
    assert {case.answer_model.name for case in loaded.cases} == {"gpt-4o"}
    assert len(loaded.cases) == 245


def test_fault_7_order_tells_the_place_of_a_comparison(compact: Loaded, clone: Loaded) -> None:
    for loaded, comparisons, whole in ((compact, 268, 124), (clone, 36, 23)):
        assert loaded.counts["comparisons_placed_by_two_parts"] == comparisons
        assert loaded.counts["questions_placed_in_the_whole_document"] == whole
        for reference in loaded.references:
            assert ("," in reference.annotations["order"]) is (reference.level == "comparison")


def test_fault_8_one_vocabulary(compact: Loaded, clone: Loaded) -> None:
    for loaded in (compact, clone):
        assert {case.document.type for case in loaded.cases} <= {"novel", "financial", "paper"}
        assert {reference.level for reference in loaded.references} == {
            "location",
            "reasoning",
            "comparison",
            "hallucination",
        }
        assert {reference.context_length for reference in loaded.references} == {"32k", "128k"}
        for reference in loaded.references:
            assert reference.answerable is (reference.level != "hallucination")
    assert compact.counts["questions_with_another_type_name"] == 660
    assert {r.annotations["raw_type"] for r in clone.references} >= {"novelette_fake", "book"}


def test_fault_9_the_context_of_a_query_reaches_nothing(lara_dir: Path, clone: Loaded) -> None:
    path = lara_dir / "clone" / "datasets" / "query" / "32k_book_location.jsonl"
    contexts = [json.loads(line)["context"] for line in path.read_text("utf-8").split("\n")]
    assert clone.counts["contexts_left_out"] == len(contexts) == 20
    told = " ".join(case.model_dump_json() for case in clone.cases if "novel" in case.group_id)
    told += " ".join(reference.model_dump_json() for reference in clone.references)
    for context in contexts:
        # Past the head, which is the router's to see.
        passage = json.dumps(context[2000:2100], ensure_ascii=False)[1:-1]
        assert passage not in told


def test_fault_10_no_final_newline_loses_no_row(clone: Loaded) -> None:
    # The fifteen query files, and one prediction file.
    assert clone.counts["files_without_final_newline"] == 16


def test_fault_11_a_question_is_no_key(compact: Loaded, queries: dict[str, dict[str, Any]]) -> None:
    assert compact.counts["file_and_question_collisions"] == 1
    assert compact.counts["questions_sharing_their_text"] == 8
    same = Counter((row["file"], row["question"]) for row in queries.values())
    ((file, question),) = [key for key, count in same.items() if count > 1]
    twins = [row for row in queries.values() if (row["file"], row["question"]) == (file, question)]
    references = _references(compact)
    assert [references[row["id"]].answer for row in twins] == [r["ground_truth"] for r in twins]
    assert len({row["id"] for row in twins}) == 2


def test_fault_12_files_are_found_whatever_their_names(compact: Loaded, clone: Loaded) -> None:
    assert clone.counts["documents_without_text"] == 0
    assert clone.counts["file_names_with_unusual_characters"] == 5
    assert compact.counts["file_names_with_unusual_characters"] == 27
    assert any(case.document.title == "Philosopher\u2019s Stone" for case in compact.cases)
    assert any(case.document.title == "C.H. ROBINSON WORLDWIDE, INC." for case in clone.cases)


def test_fault_13_heads_are_clean(clone: Loaded, queries: dict[str, dict[str, Any]]) -> None:
    assert clone.counts["documents_with_byte_order_mark"] == 1
    assert clone.counts["no_break_spaces"] == 2198 + 4102 + 2597
    assert clone.counts["zero_width_characters"] == 1
    for case in clone.cases:
        head = case.document.head
        assert head == queries[case.question_id]["head"].rstrip()
        assert not set(head or "") & set("\ufeff\u200b\u00a0\u2028\u2029\n\t")


def test_fault_14_names_that_the_novel_does_not_hold(compact: Loaded, clone: Loaded) -> None:
    assert compact.counts["novel_comparisons_not_renamed"] == 94
    for loaded in (compact, clone):
        assert loaded.counts["novel_comparisons_with_names_not_in_text"] == 21
    types = {case.question_id: case.document.type for case in clone.cases}
    marked = [r for r in clone.references if "names_not_in_text" in r.annotations]
    assert {(r.level, types[r.question_id]) for r in marked} == {("comparison", "novel")}


def test_fault_15_repeated_titles_are_counted(compact: Loaded) -> None:
    assert compact.counts["titles_on_several_files"] == 4
    assert compact.counts["files_sharing_a_title"] == 8


def test_fault_16_odd_answers_stay_as_they_are(compact: Loaded) -> None:
    assert compact.counts["answers_over_10000_characters"] == 3
    assert compact.counts["answers_with_outer_white_space"] == 56
    assert max(len(answer.text or "") for answer in compact.answers) > 30_000
    assert {"1", "9"} <= {answer.text for answer in compact.answers}


def test_fault_17_answers_that_tell_their_route(compact: Loaded) -> None:
    by_route = Counter(
        answer.route for answer in compact.answers if "chunk" in (answer.text or "").casefold()
    )
    assert compact.counts["rag_answers_that_say_chunk"] == by_route[Route.RAG] == 2408


def test_fault_18_questions_known_from_predictions_only(clone: Loaded) -> None:
    assert clone.counts["query_files_missing"] == 1
    assert clone.counts["answers_whose_query_is_missing"] == 30 * 4 * 2
    types = {case.question_id: case.document.type for case in clone.cases}
    found = [
        reference
        for reference in clone.references
        if (reference.context_length, reference.level) == ("128k", "location")
        and types[reference.question_id] == "novel"
    ]
    assert len(found) == 30
    assert all(reference.answer for reference in found)


def test_predictions_stand_with_their_questions(lara_dir: Path, compact: Loaded) -> None:
    with gzip.open(lara_dir / "predictions" / "gpt-4o.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = {row["id"]: row for row in map(json.loads, lines)}
    answers = _answers(compact)
    for case in compact.cases:
        if case.answer_model.name == "gpt-4o":
            row = rows[case.question_id]
            assert answers[case.case_id, Route.RAG].text == row["rag_prediction"]
            assert answers[case.case_id, Route.LC].text == row["lc_prediction"]


def test_what_a_case_shows_is_the_recipes_choice(lara_dir: Path) -> None:
    rag = RagConfig(chunk_tokens=300, overlap_tokens=0, top_k=7)
    section = LaraSource(
        source="lara",
        path=lara_dir / "clone",
        task_type="level",
        head_characters=40,
        answer_models=("gpt-4o",),
        context_windows={"gpt-4o": 128_000},
    )
    loaded = load_lara(section, rag)
    levels = {reference.question_id: reference.level for reference in loaded.references}
    for case in loaded.cases:
        assert case.task_type == levels[case.question_id]
        assert 30 < len(case.document.head or "") <= 40
        assert case.answer_model == AnswerModel(name="gpt-4o", context_window=128_000)
        assert case.rag == rag


def test_the_level_is_not_shown_by_default(compact: Loaded, clone: Loaded) -> None:
    assert {case.task_type for case in (*compact.cases, *clone.cases)} == {None}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"answer_models": ("gpt-4",)}, "did you mean gpt-4o?"),
        ({"context_windows": {"gemini-1.5-pr": 5}}, "did you mean gemini-1.5-pro?"),
    ],
)
def test_an_unknown_model_is_named(lara_dir: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        _load(lara_dir / "clone", **settings)
    assert named in caught.value.line


def test_heads_of_the_released_documents_are_in_nfc(compact: Loaded) -> None:
    heads = {case.document.head for case in compact.cases} - {None}
    assert len(heads) == 89
    assert all(unicodedata.is_normalized("NFC", head or "") for head in heads)
