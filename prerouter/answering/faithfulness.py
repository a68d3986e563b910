"""Faithfulness: the share of an answer's claims that its retrieved passages support.

Two steps, as in RAGAS (Es et al., 2024, arXiv 2309.15217): a judge takes the answer apart into
claims, and then says of each whether the passages support it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pydantic import model_validator

from prerouter.answering.prompted import answer_key
from prerouter.core.protocols import Completion, Engine, GenerationRequest, Sampling
from prerouter.core.records import Answer, Identifier, Record, Reject, Route
from prerouter.prompts.judge import (
    claims_schema,
    parse_claims,
    parse_support,
    render_claims,
    render_support,
    support_schema,
)
from prerouter.prompts.trace import TraceError
from prerouter.recipe.judge import FaithfulnessSection
from prerouter.runs.rejects import cut_raw

STAGE = "faithfulness"


class NoFaithfulness(StrEnum):
    """Why an answer has no faithfulness. None of these is a 0 or a 1."""

    NO_ANSWER = "no_answer"
    NO_PASSAGES = "no_passages"
    NO_CLAIMS = "no_claims"


class Claims(Record):
    """What one answer claims; nothing, perhaps."""

    case_id: Identifier
    route: Route
    claims: tuple[str, ...]


class CheckedClaim(Record):
    text: str
    supported: bool


class Faithfulness(Record):
    """One answer's claims with their verdicts, or why there are none: exactly one of the two."""

    case_id: Identifier
    route: Route
    claims: tuple[CheckedClaim, ...] = ()
    missing: NoFaithfulness | None = None

    @model_validator(mode="after")
    def _claims_or_reason(self) -> Self:
        if (not self.claims) == (self.missing is None):
            raise ValueError("an answer has either claims or a reason for having none")
        return self

    @property
    def score(self) -> float | None:
        """Claims supported / claims made, 0 to 1."""
        if not self.claims:
            return None
        return sum(claim.supported for claim in self.claims) / len(self.claims)


@dataclass(frozen=True)
class ReadAnswer:
    """An answer with the question and the texts of the passages that it was written from."""

    question: str
    answer: Answer
    passages: tuple[str, ...]

    @property
    def key(self) -> str:
        return answer_key(self.answer.case_id, self.answer.route)


def why_unchecked(answer: Answer) -> NoFaithfulness | None:
    """Why there is nothing to check about an answer; None where there is."""
    if answer.text is None or not answer.text.strip():
        return NoFaithfulness.NO_ANSWER
    return None if answer.retrieved else NoFaithfulness.NO_PASSAGES


def extract_claims(
    due: Sequence[ReadAnswer], engine: Engine, section: FaithfulnessSection
) -> Generator[Claims | Reject, None, None]:
    """The claims of each answer, as they get done; a reply that is no whole list is a Reject."""
    requests = [
        GenerationRequest(render_claims(item.question, item.answer.text or "")) for item in due
    ]
    sampling = Sampling(section.max_tokens, schema=claims_schema(), thinking=section.thinking)
    for index, completion in _completions(engine, requests, sampling):
        item = due[index]
        try:
            claims = parse_claims(completion.text, completion.finish_reason)
        except TraceError as error:
            yield refusal(f"{item.key}|claims", completion, error)
        else:
            answer = item.answer
            yield Claims(case_id=answer.case_id, route=answer.route, claims=claims)


def check_claims(
    due: Sequence[tuple[ReadAnswer, Sequence[str]]], engine: Engine, section: FaithfulnessSection
) -> Generator[Faithfulness | Reject, None, None]:
    """A verdict on each claim of each answer, as they get done. An answer without claims is told
    at once: it has no faithfulness, and no model is asked."""
    asked = []
    for item, claims in due:
        if claims:
            asked.append((item, claims))
        else:
            yield without(item.answer, NoFaithfulness.NO_CLAIMS)
    requests = [GenerationRequest(render_support(item.passages, claims)) for item, claims in asked]
    sampling = Sampling(section.max_tokens, schema=support_schema(), thinking=section.thinking)
    for index, completion in _completions(engine, requests, sampling):
        item, claims = asked[index]
        try:
            verdicts = parse_support(completion.text, completion.finish_reason, len(claims))
        except TraceError as error:
            yield refusal(f"{item.key}|support", completion, error)
        else:
            yield checked(item.answer, zip(claims, verdicts, strict=True))


def without(answer: Answer, reason: NoFaithfulness) -> Faithfulness:
    return Faithfulness(case_id=answer.case_id, route=answer.route, missing=reason)


def checked(answer: Answer, verdicts: Iterator[tuple[str, bool]]) -> Faithfulness:
    return Faithfulness(
        case_id=answer.case_id,
        route=answer.route,
        claims=tuple(CheckedClaim(text=text, supported=supported) for text, supported in verdicts),
    )


def refusal(key: str, completion: Completion, error: TraceError) -> Reject:
    """A reply that could not be read, or a call that failed (done again when the stage is)."""
    return Reject(
        stage=STAGE,
        key=key,
        reason=error.reason.value,
        detail=completion.error or error.detail,
        raw=cut_raw(completion.text) or None,
        transient=completion.finish_reason == "error" and completion.passing,
    )


def _completions(
    engine: Engine, requests: Sequence[GenerationRequest], sampling: Sampling
) -> Iterator[tuple[int, Completion]]:
    if requests:
        with contextlib.closing(engine.generate(requests, sampling)) as completions:
            yield from completions
