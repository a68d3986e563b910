"""From a kept trace to a training example, and an example's token ids as the student meets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from prerouter.core.records import (
    Example,
    Message,
    MetadataSetting,
    Reject,
    RoutingCase,
    Split,
    StudentMode,
    Trace,
)
from prerouter.prompts.render import StudentForm, render_student
from prerouter.prompts.trace import format_trace
from prerouter.recipe.teach import PromptPart

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ExampleReject(StrEnum):
    TOO_LONG = "too_long"


@dataclass(frozen=True)
class TokenisedExample:
    """Token ids of one example. `ids` is the whole training sequence; `prompt_ids` is the prompt
    as an engine sends it at inference, generation prompt included."""

    example: Example
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]

    @property
    def key(self) -> str:
        example = self.example
        return f"{example.case_id}#{example.sample}#{example.mode}"

    @property
    def completion_ids(self) -> tuple[int, ...]:
        return self.ids[len(self.prompt_ids) :]


def make_example(
    case: RoutingCase,
    trace: Trace,
    split: Split,
    form: StudentForm,
    metadata: MetadataSetting,
    without: Sequence[PromptPart] = (),
    mode: StudentMode = StudentMode.EXPLAIN,
) -> Example:
    """The student's prompt for `case`, and `trace` as the reply it learns to give: whole, or its
    decision alone where `mode` is `decide`.

    `without` names the parts that the teacher's prompt left out, so that the trace lacks them.
    Raises TraceError for a trace that is not of that form.

    The student sees the prompt that it will decide by, which need not be the teacher's: what the
    guidelines say is learnt from the traces. Chen et al., 2026, arXiv 2605.10235, train on the
    guided prompt; form `compact` is our own.
    """
    if trace.case_id != case.case_id:
        raise ValueError(f"trace of case {trace.case_id} given with case {case.case_id}")
    if mode is StudentMode.DECIDE:
        reply = trace.decision.value
    else:
        reply = format_trace(trace.rationale, trace.decision, without)
    return Example(
        case_id=case.case_id,
        sample=trace.sample,
        mode=mode,
        split=split,
        prompt=render_student(case, form, metadata, mode),
        completion=(Message(role="assistant", content=reply),),
    )


def tokenise(
    example: Example, tokenizer: PreTrainedTokenizerBase, thinking: bool
) -> TokenisedExample:
    """Token ids of `example` under the tokenizer's chat template and the thinking switch."""
    prompt = as_chat(example.prompt)
    prompt_ids = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, enable_thinking=thinking, return_dict=False
    )
    ids = tokenizer.apply_chat_template(
        prompt + as_chat(example.completion), enable_thinking=thinking, return_dict=False
    )
    return TokenisedExample(example, tuple(prompt_ids), tuple(ids))


def keep_fitting(
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    thinking: bool,
    max_length: int,
) -> tuple[list[TokenisedExample], list[Reject]]:
    """Examples of `max_length` tokens at most, and a reject for each longer one.

    None is ever cut: a cut takes the decision and the end of turn first.
    """
    kept, rejects = [], []
    for example in examples:
        tokenised = tokenise(example, tokenizer, thinking)
        if len(tokenised.ids) <= max_length:
            kept.append(tokenised)
        else:
            rejects.append(
                Reject(
                    stage="train",
                    key=tokenised.key,
                    reason=ExampleReject.TOO_LONG,
                    detail=f"{len(tokenised.ids)} tokens, {max_length} at most",
                )
            )
    return kept, rejects


def as_chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as chat templates take them."""
    return [{"role": message.role, "content": message.content} for message in messages]
