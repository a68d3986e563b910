"""A model that is prompted for a decision: as a teacher, whose traces are kept, and as a router."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prerouter.core.protocols import Completion, Engine, GenerationRequest, Sampling
from prerouter.core.records import Decision, Reject, RoutingCase, Trace
from prerouter.prompts.render import prompt_hash, render_teacher
from prerouter.prompts.trace import (
    TraceError,
    TraceReason,
    decision_schema,
    parse_trace,
    trace_schema,
)
from prerouter.recipe.teach import TeachSection
from prerouter.routers.failures import reply_failure
from prerouter.runs.rejects import cut_raw

Due = tuple[RoutingCase, int]


@dataclass
class Usage:
    """What calls took, replies that were refused and attempts before the last among them. Tokens
    that a server doesn't tell are not in it."""

    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, completion: Completion) -> None:
        self.calls += 1
        self.failed += completion.finish_reason == "error"
        self.prompt_tokens += completion.prompt_tokens + completion.lost_prompt_tokens
        self.completion_tokens += completion.completion_tokens + completion.lost_completion_tokens


def trace_key(trace: Trace) -> str:
    return f"{trace.case_id}|{trace.sample}"


def engine_traces(
    due: list[Due], engine: Engine, section: TeachSection, seed: int, usage: Usage | None = None
) -> Generator[Trace | Reject, None, None]:
    """Traces from a model, as they get done. Each (case, sample) has a seed of its own; a reply
    that is no whole trace is a Reject with its reason and raw text, a failed call a transient one.
    `usage` is added to with every call.
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
        counted = _counted(completions, usage or Usage())
        yield from _judged(counted, due, engine.info.model, section, fixed)


def _counted(
    completions: Iterable[tuple[int, Completion]], usage: Usage
) -> Iterator[tuple[int, Completion]]:
    for index, completion in completions:
        usage.add(completion)
        yield index, completion


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
                raw=cut_raw(completion.text),
            )
            continue
        reasoning = completion.reasoning or parsed.reasoning
        yield Trace(
            case_id=case.case_id,
            teacher=teacher,
            sample=sample,
            rationale=parsed.rationale,
            decision=parsed.decision,
            # A count of 0 is a server that doesn't tell.
            prompt_tokens=completion.prompt_tokens or None,
            completion_tokens=completion.completion_tokens or None,
            prompt_hash=fixed,
            reasoning=reasoning if section.keep_reasoning else None,
        )


def request_seed(seed: int, case: RoutingCase, sample: int) -> int:
    """A seed for one sample of one case, the same whatever else is in the batch."""
    text = f"{seed}|{case.case_id}|{sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def as_decision(result: Trace | Reject, router: str) -> Decision:
    """What a trace, or a reply that was none, is as a router's decision. A rejected reply's tokens
    aren't known any more: its call is counted, and they are not."""
    if isinstance(result, Trace):
        return Decision(
            case_id=result.case_id,
            router=router,
            route=result.decision,
            rationale=result.rationale,
            model=result.teacher,
            calls=1,
            prompt_tokens=result.prompt_tokens or 0,
            completion_tokens=result.completion_tokens or 0,
        )
    return Decision(
        case_id=result.key.rpartition("|")[0],
        router=router,
        failure=reply_failure(TraceReason(result.reason), result.detail),
        raw=result.raw or result.detail,
        calls=1,
    )
