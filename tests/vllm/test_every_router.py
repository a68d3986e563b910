"""LaRA's documents answered by the real vLLM with entropies, graded by a judge that is held to its
schema, and routed by every system that decides after retrieval."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from prerouter.core.records import (
    Answer,
    Decision,
    DecisionFailure,
    PairedScore,
    Route,
    RoutingCase,
)
from prerouter.prompts.judge import Judgement
from prerouter.recipe.route import CHECKED
from prerouter.runs.rows import read_rows

REPOSITORY = Path(__file__).parents[2]
RECIPE = REPOSITORY / "recipes" / "lara_answering.yaml"
QUESTIONS, WINDOW, REPLY, FIRST = 36, 1024, 96, 8
MODEL = "embedded:SmolLM2-135M-Instruct"
ENGINE = (
    f"{{kind: vllm, model: '{MODEL}', dtype: bfloat16, max_model_len: 2048, "
    "arguments: {enforce_eager: true}}"
)
SETTINGS = {
    "cases.questions": QUESTIONS,
    "cases.own_models": f"[{{name: smollm2-135m, context_window: {WINDOW}}}]",
    "split": "{train: 0.5, validation: 0.25, test: 0.25}",
    "rag": "{chunk_tokens: 120, overlap_tokens: 20, top_k: 3}",
    "answer.engine": ENGINE,
    "answer.long_rag": "{unit_tokens: 200, top_k: 2}",
    "answer.entropy_tokens": FIRST,
    "answer.max_tokens": REPLY,
    "answer.documents_per_call": 12,
    # So small a judge goes on past its tokens now and then: those grades are missing.
    "score": f"{{judge: {{engine: {ENGINE}, max_tokens: 200, max_failed_share: 0.5}}, "
    "max_failed_share: 1.0}",
    "route.checks": "{pre_route: guideline, query_types: {synthesis: [comparison, reasoning], "
    f"engine: {ENGINE}}}}}",
    "evaluate": "{split: test, resamples: 100}",
}


@pytest.fixture(scope="module")
def finished(short_lara: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm")
    settings = {
        "runs_dir": folder,
        "cases.path": short_lara,
        "retrieval.cache_dir": folder / "vectors",
        **SETTINGS,
    }
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "prerouter", "run", RECIPE, *given],
        cwd=REPOSITORY,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "lara_answering"


def test_every_answer_has_its_entropies(finished: Path) -> None:
    answers = list(read_rows(finished / "answer" / "rows.jsonl", Answer))
    assert len(answers) == 3 * QUESTIONS
    written = [answer for answer in answers if answer.text is not None]
    assert {answer.route for answer in written} == set(Route)
    cases = read_rows(finished / "cases" / "rows.jsonl", RoutingCase)
    assert len({case.document.document_id for case in cases}) == 12
    for answer in written:
        assert len(answer.entropies) == min(FIRST, answer.completion_tokens or 0)
        assert not answer.entropies_are_bounds
        assert all(0 <= bits < 16 for bits in answer.entropies)


def test_the_judge_is_held_to_its_schema(finished: Path) -> None:
    report = json.loads((finished / "judge" / "manifest.json").read_bytes())["report"]
    assert report["honours_schema"] is True
    judgements = list(read_rows(finished / "judge" / "rows.jsonl", Judgement))
    assert judgements
    assert all(0 <= judgement.grade <= 4 and judgement.reason for judgement in judgements)
    pairs = list(read_rows(finished / "score" / "rows.jsonl", PairedScore))
    assert len(pairs) == QUESTIONS
    assert {pair.high for pair in pairs} == {4.0}
    assert {route for pair in pairs for route in pair.arms} == set(Route)


def test_every_system_decides(finished: Path) -> None:
    decisions = list(read_rows(finished / "route" / "rows.jsonl", Decision))
    by_router: dict[str, list[Decision]] = {}
    for decision in decisions:
        by_router.setdefault(decision.router, []).append(decision)
    assert {*CHECKED} < by_router.keys()
    report = json.loads((finished / "route" / "manifest.json").read_bytes())["report"]
    assert 0.5 <= report["tau"]["point"]["tau"] <= 64
    assert sum(decision.calls for decision in by_router["edar_prompted"]) > 0
    for decision in by_router["self_route_verdict"]:
        assert decision.p_lc is None or 0 <= decision.p_lc <= 1
        # Where the RAG answer was cut off, nobody knows what it read.
        assert decision.failure in (None, DecisionFailure.NO_ANSWER)
    assert any(decision.p_lc is not None for decision in by_router["self_route_verdict"])
    table = (finished / "evaluate" / "table.md").read_text("utf-8")
    assert "| long_rag_self_route " in table
