from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import Completion, SilentProgress
from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Reject,
    Route,
    RoutingCase,
    Split,
    SplitAssignment,
    Trace,
)
from prerouter.prompts.trace import format_trace
from prerouter.recipe.teach import TeachSection
from prerouter.routers.guideline import judge
from prerouter.routers.prompted import Usage, engine_traces, request_seed
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rejects import MOST_RAW
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, teach
from prerouter.stages.teach import cases_to_teach, guideline_traces

from .tables import Scripted, table_recipe


def case(number: int) -> RoutingCase:
    return RoutingCase(
        case_id=f"case-{number}",
        question_id=f"question-{number}",
        group_id="document",
        question="Compare the two harbours.",
        document=DocumentProfile(document_id="document", tokens=9000),
        answer_model=AnswerModel(name="reader", context_window=16384),
    )


GOOD = format_trace(*judge(case(0)))


def section(**changes: object) -> TeachSection:
    engine = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    return TeachSection.model_validate({"engine": engine, **changes})


def taught(completions: list[Completion], **changes: object) -> tuple[list[object], Scripted]:
    engine = Scripted(lambda index, _: completions[index])
    due = [(case(number), 0) for number in range(len(completions))]
    return list(engine_traces(due, engine, section(**changes), seed=3)), engine


def test_a_whole_trace_is_kept_with_its_tokens() -> None:
    [trace], engine = taught([Completion(GOOD, "stop", 1200, 130)])
    assert isinstance(trace, Trace)
    assert (trace.teacher, trace.prompt_tokens, trace.completion_tokens) == (
        "scripted-teacher",
        1200,
        130,
    )
    assert (trace.rationale, trace.decision) == judge(case(0))
    assert engine.sampling is not None
    assert engine.sampling.schema is not None


@pytest.mark.parametrize(
    ("completion", "reason", "transient"),
    [
        (Completion(GOOD[:40], "length"), "cut_off", False),
        (Completion("<think>so LC is better", "stop"), "unclosed_thinking", False),
        (Completion("I would say LC.", "stop"), "no_json", False),
        (Completion("", "stop"), "empty", False),
        (Completion("", "error", error="429"), "call_failed", True),
        (Completion("", "error", error="too long", passing=False), "call_failed", False),
    ],
)
def test_what_is_no_trace_is_a_reject_with_its_reason(
    completion: Completion, reason: str, transient: bool
) -> None:
    results, _ = taught([Completion(GOOD, "stop"), completion, Completion(GOOD, "stop")])
    assert [type(result) for result in results] == [Trace, Reject, Trace]
    reject = results[1]
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.transient) == (reason, transient)
    assert reject.key == "case-1|0"


def test_traces_belong_to_their_cases_in_whatever_order_they_come() -> None:
    results, _ = taught([Completion(GOOD, "stop") for _ in range(4)])
    assert [result.case_id for result in results if isinstance(result, Trace)] == [
        "case-3",
        "case-2",
        "case-1",
        "case-0",
    ]


OTHER = GOOD.replace('"decision": "LC"', '"decision": "RAG"')


@pytest.mark.parametrize(
    "completion",
    [
        Completion(f"<think>{OTHER}</think>{GOOD}", "stop"),
        Completion(f"{OTHER}</think>\n{GOOD}", "stop"),
        Completion(GOOD, "stop", reasoning=OTHER),
    ],
)
@pytest.mark.parametrize("keep", [False, True])
def test_reasoning_never_decides_and_is_kept_only_where_asked_for(
    completion: Completion, keep: bool
) -> None:
    changes = {"keep_reasoning": True} if keep else {}
    [trace], _ = taught([completion], thinking=True, **changes)
    assert isinstance(trace, Trace)
    assert trace.decision is Route.LC
    assert trace.reasoning == (OTHER if keep else None)


@pytest.mark.parametrize(
    "completion",
    [
        Completion("", "stop", reasoning=GOOD),
        Completion(f"<think>{GOOD}</think>", "stop"),
        Completion(f"<think>{GOOD}", "stop"),
        Completion(f"<think>{GOOD}", "length", reasoning=GOOD),
        Completion("So it is.", "stop", reasoning=GOOD),
    ],
)
def test_a_whole_trace_inside_the_reasoning_is_none(completion: Completion) -> None:
    [reject], _ = taught([completion], thinking=True, keep_reasoning=True)
    assert isinstance(reject, Reject)


def test_tokens_that_a_server_does_not_tell_are_no_zeros() -> None:
    [trace], _ = taught([Completion(GOOD, "stop", 0, 0)])
    assert isinstance(trace, Trace)
    assert (trace.prompt_tokens, trace.completion_tokens) == (None, None)


def test_all_calls_are_counted_refused_replies_too() -> None:
    completions = [
        Completion(GOOD, "stop", 100, 10),
        Completion("no", "stop", 100, 2),
        Completion("", "error", error="429"),
    ]
    usage = Usage()
    engine = Scripted(lambda index, _: completions[index])
    list(engine_traces([(case(n), 0) for n in range(3)], engine, section(), 3, usage))
    assert usage == Usage(calls=3, failed=1, prompt_tokens=200, completion_tokens=12)


def run_teach(
    folder: Path, scripted: Scripted | None, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> Path:
    """cases and teach over ten questions for two models; a real engine where none is given."""
    spec = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    recipe = table_recipe(
        folder, 10, teach={"engine": spec, "samples": 2, "max_failed_share": 0.5, **changes}
    )
    if scripted is not None:
        monkeypatch.setattr(teach, "start_engine", lambda _: scripted)
    for stage in (cases.STAGE, teach.STAGE):
        execute(stage, recipe, SilentProgress())
    return recipe.run_dir / "teach"


def test_the_manifest_tells_of_schema_cache_tokens_and_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(index: int, _: str) -> Completion:
        if index == 0:
            return Completion("no", "stop", 50, 1)
        return Completion(GOOD if index % 2 else OTHER, "stop", 50, 20 + index % 2)

    engine = Scripted(answer)
    engine.honours, engine.cached_share = False, 0.25
    manifest = read_manifest(run_teach(tmp_path, engine, monkeypatch))
    assert manifest is not None
    report, calls = manifest.report, len(engine.requests)
    assert report["traces_wanted"] == calls
    assert report["traces_written"] == calls - 1
    assert manifest.rejects == {"no_json": 1}
    assert report["honours_schema"] is False
    assert report["cached_prompt_share"] == 0.25
    assert report["distinct_samples"] == {"samples": calls - 1, "distinct": calls - 1}
    # Each case but the first has one of each.
    assert report["agreement"] == {
        "cases": calls // 2 - 1, "unanimous": 0, "mean_pairwise": 0.0,
    }  # fmt: skip
    assert report["prompt_tokens"]["n"] == calls - 1
    assert report["completion_tokens"]["max"] == 21
    attempt = report["last_attempt"]
    assert attempt["seconds"] >= 0
    assert (attempt["calls"], attempt["failed"]) == (calls, 0)
    assert attempt["prompt_tokens"] == 50 * calls


def test_a_schema_is_not_asked_after_where_none_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Scripted(lambda *_: Completion("It is long.\nDecision: RAG", "stop"))
    folder = run_teach(tmp_path, engine, monkeypatch, prompt={"paradigm": "unconstrained"})
    manifest = read_manifest(folder)
    assert manifest is not None
    assert "honours_schema" not in manifest.report
    assert "cached_prompt_share" not in manifest.report
    assert "completion_tokens" not in manifest.report


def test_a_dead_server_ends_it_and_a_rerun_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        spec = {"kind": "openai", "model": "m", "base_url": address, "backoff_seconds": 0.001}
        with pytest.raises(StageError, match=r"calls in a row failed alike.*engine\.base_url"):
            run_teach(tmp_path, None, monkeypatch, engine=spec)
    folder = tmp_path / "runs" / "mine" / "teach"
    assert read_manifest(folder) is None
    rejects = list(read_rows(folder / "rejects.jsonl", Reject))
    assert 0 < len(rejects) < 10
    assert all(reject.transient for reject in rejects)
    engine = Scripted(lambda *_: Completion(GOOD, "stop"))
    run_teach(tmp_path, engine, monkeypatch, engine=spec)
    traces = list(read_rows(folder / "rows.jsonl", Trace))
    assert len(traces) == len(engine.requests)
    assert not list(read_rows(folder / "rejects.jsonl", Reject))


def keys_of(engine: Scripted) -> set[int | None]:
    """Requests by their seeds, of which each sample of each case has its own."""
    return {request.seed for request in engine.requests}


@pytest.mark.parametrize(
    "mended",
    [
        {"max_failed_share": 0.6},
        {"engine": {"base_url": "http://127.0.0.1:2/v1"}},
        {"engine": {"concurrency": 3, "timeout_seconds": 9, "max_attempts": 2}},
    ],
)
def test_what_shapes_no_trace_is_mended_and_no_call_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mended: dict[str, Any]
) -> None:
    spec = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    engine = Scripted(lambda index, _: Completion(GOOD if index % 2 else "no", "stop"))
    with pytest.raises(StageError, match=r"teach\.max_failed_share"):
        run_teach(tmp_path, engine, monkeypatch, engine=spec, max_failed_share=0.4)
    before = (tmp_path / "runs/mine/teach/rows.jsonl").read_bytes()
    assert before.count(b"\n") == len(engine.requests) // 2
    nobody = Scripted(lambda *_: Completion(GOOD, "stop"))
    changes = {"max_failed_share": 0.6, **mended, "engine": spec | mended.get("engine", {})}
    folder = run_teach(tmp_path, nobody, monkeypatch, **changes)
    assert nobody.requests == []
    assert (folder / "rows.jsonl").read_bytes() == before
    assert read_manifest(folder) is not None


def test_a_finished_teacher_is_not_asked_again_where_its_server_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_teach(tmp_path, Scripted(lambda *_: Completion(GOOD, "stop")), monkeypatch)
    spec = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:2/v1"}
    nobody = Scripted(lambda *_: Completion(GOOD, "stop"))
    run_teach(tmp_path, nobody, monkeypatch, engine=spec, max_failed_share=0.1)
    assert nobody.requests == []


def test_more_samples_ask_for_the_new_ones_and_fewer_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(index: int, _: str) -> Completion:
        return Completion(GOOD if index else "no", "stop")

    first, more, nobody = (Scripted(answer) for _ in range(3))
    folder = run_teach(tmp_path, first, monkeypatch, samples=2)
    two = (folder / "rows.jsonl").read_bytes()
    run_teach(tmp_path, more, monkeypatch, samples=4)
    assert len(more.requests) == len(first.requests)
    assert not keys_of(first) & keys_of(more)
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest.report["traces_wanted"] == 2 * len(first.requests)
    assert manifest.rejects == {"no_json": 2}
    # Each case's four stand together, as if they had been asked for at once.
    samples = [trace.sample for trace in read_rows(folder / "rows.jsonl", Trace)]
    assert samples[-8:] == [0, 1, 2, 3] * 2

    run_teach(tmp_path, nobody, monkeypatch, samples=2)
    assert nobody.requests == []
    assert (folder / "rows.jsonl").read_bytes() == two
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest.rejects == {"no_json": 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.2},
        {"max_tokens": 100},
        {"thinking": True},
        {"keep_reasoning": True},
        {"engine": {"kind": "openai", "model": "other", "base_url": "http://127.0.0.1:1/v1"}},
    ],
)
def test_what_shapes_a_trace_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    first, again = (Scripted(lambda *_: Completion(GOOD, "stop")) for _ in range(2))
    run_teach(tmp_path, first, monkeypatch)
    run_teach(tmp_path, again, monkeypatch, **changes)
    assert keys_of(first) == keys_of(again) != set()


def test_a_refused_reply_of_any_size_is_a_reject_of_bounded_size() -> None:
    [reject], _ = taught([Completion("no" * 30_000_000, "stop")])
    assert isinstance(reject, Reject)
    assert reject.raw is not None
    assert len(reject.raw) < MOST_RAW + 100


def test_every_sample_of_every_case_has_a_seed_of_its_own() -> None:
    seeds = {request_seed(1, case(number), sample) for number in range(50) for sample in range(8)}
    assert len(seeds) == 400
    assert request_seed(1, case(3), 2) == request_seed(1, case(3), 2)
    assert request_seed(1, case(3), 2) != request_seed(2, case(3), 2)


def test_closing_the_stage_closes_the_engine() -> None:
    engine = Scripted(lambda *_: Completion(GOOD, "stop"))
    traces = engine_traces([(case(n), 0) for n in range(3)], engine, section(), seed=3)
    next(traces)
    traces.close()
    assert engine.closed


def test_the_guideline_names_itself() -> None:
    [trace] = guideline_traces([(case(0), 0)])
    assert trace.teacher == "guideline"
    assert trace.prompt_tokens is None


def test_only_the_splits_asked_for_are_taught() -> None:
    sides = (Split.TRAIN, Split.VALIDATION, Split.TEST)
    assignments = [
        SplitAssignment(question_id=f"question-{n}", group_id="g", split=side)
        for n, side in enumerate(sides)
    ]
    found = cases_to_teach([case(n) for n in range(3)], assignments, (Split.TRAIN,))
    assert [taught.case_id for taught in found] == ["case-0"]
