"""Prompts on their way to an answering model, and its replies as answers."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from prerouter.core.protocols import Completion, Engine, FinishReason, GenerationRequest, Sampling
from prerouter.core.records import Answer, MissingReason, Reject, Route, RoutingCase, Span
from prerouter.prompts.answer import DECLINE
from prerouter.prompts.trace import CLOSE_THINKING, TraceError, TraceReason, bare_reply

# Whatever a reply lacks, it was cut off, or there is nothing in it.
_REASONS = {
    TraceReason.CALL_FAILED: MissingReason.CALL_FAILED,
    TraceReason.CUT_OFF: MissingReason.CUT_OFF,
    TraceReason.ENDLESS_WHITE_SPACE: MissingReason.CUT_OFF,
    TraceReason.UNCLOSED_THINKING: MissingReason.CUT_OFF,
    TraceReason.EMPTY: MissingReason.EMPTY,
    TraceReason.TOO_LONG: MissingReason.CUT_OFF,
}


@dataclass(frozen=True)
class Prompted:
    """One case on one route, ready to be asked, and what of the document its prompt shows.

    Without a `request` there is nothing to read, and the answer is that the document does not tell.
    `seconds` is what finding the text took.
    """

    case: RoutingCase
    route: Route
    request: GenerationRequest | None
    retrieved: tuple[Span, ...] = ()
    document_cut: bool = False
    seconds: float = 0.0


def answer_key(case_id: str, route: Route) -> str:
    return f"{case_id}|{route.value}"


def generate_answers(
    prompts: Sequence[Prompted],
    engine: Engine,
    sampling: Sampling,
    *,
    keep_cut_off: bool = False,
) -> Generator[Answer | Reject, None, None]:
    """An Answer for each prompt, as they get done, with entropies where `sampling` asks for them.

    A failed call, a reply that was cut off (unless those are to be kept, and it is past its
    thinking) and one that is empty are Rejects with their reason (a MissingReason); `transient`
    where the call may be made again.
    """
    asked = [prompt for prompt in prompts if prompt.request is not None]
    for prompt in prompts:
        if prompt.request is None:
            yield _answer(prompt, DECLINE, Completion("", "stop"))
    requests = [prompt.request for prompt in asked if prompt.request is not None]
    if not requests:
        return
    with contextlib.closing(engine.generate(requests, sampling)) as completions:
        for index, completion in completions:
            prompt = asked[index]
            try:
                _, text = bare_reply(completion.text, _finish(prompt, completion, keep_cut_off))
            except TraceError as error:
                yield Reject(
                    stage="answer",
                    key=answer_key(prompt.case.case_id, prompt.route),
                    reason=_REASONS[error.reason].value,
                    detail=completion.error or error.detail,
                    raw=completion.text or None,
                    transient=completion.finish_reason == "error" and completion.passing,
                )
                continue
            yield _answer(prompt, text, completion)


def _finish(prompt: Prompted, completion: Completion, keep_cut_off: bool) -> FinishReason:
    """`stop` for a reply that is kept though cut off."""
    # The tag that opens a model's thinking may stand in the prompt: the one that closes it tells.
    thought = completion.reasoning is not None or CLOSE_THINKING in completion.text
    past = thought or not prompt.case.answer_model.thinking
    kept = keep_cut_off and past and completion.finish_reason == "length"
    return "stop" if kept else completion.finish_reason


def _answer(prompt: Prompted, text: str, completion: Completion) -> Answer:
    read = prompt.request is not None
    return Answer(
        case_id=prompt.case.case_id,
        route=prompt.route,
        text=text,
        # A count of 0 is a server that doesn't tell, unless nothing was asked.
        prompt_tokens=(completion.prompt_tokens or None) if read else 0,
        completion_tokens=(completion.completion_tokens or None) if read else 0,
        seconds=prompt.seconds + completion.seconds,
        retrieved=prompt.retrieved,
        document_cut=prompt.document_cut,
        cut_off=completion.finish_reason == "length",
        entropies=completion.entropies,
        entropies_are_bounds=completion.entropies_are_bounds,
    )
