"""`prerouter decide`: one question, one document, one decision with its reasons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from prerouter.cli.console import plain
from prerouter.core.errors import InputError
from prerouter.core.records import AnswerModel, Decision, DocumentProfile, RagConfig, RoutingCase

HEAD_CHARACTERS = 600


@dataclass(frozen=True)
class Request:
    """What the options of the command say."""

    router: Path
    question: str
    document: Path
    answer_model: str
    context_window: int | None
    title: str | None
    document_type: str | None
    task_type: str | None
    chunk_tokens: int
    overlap_tokens: int
    top_k: int


def make_case(request: Request, body: str, tokens: int) -> RoutingCase:
    """The routing case for `body`, which is `tokens` tokens long."""
    try:
        return RoutingCase(
            case_id="case",
            question_id="question",
            group_id="document",
            question=request.question,
            task_type=request.task_type,
            document=DocumentProfile(
                document_id="document",
                title=request.title or request.document.stem,
                type=request.document_type,
                tokens=tokens,
                head=body[:HEAD_CHARACTERS],
            ),
            answer_model=AnswerModel(
                name=request.answer_model, context_window=request.context_window
            ),
            rag=RagConfig(
                chunk_tokens=request.chunk_tokens,
                overlap_tokens=request.overlap_tokens,
                top_k=request.top_k,
            ),
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"--{where}", first["msg"], next_step="see --help") from None


def decide_one(request: Request, *, as_json: bool) -> None:
    try:
        body = request.document.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(request.document), f"can't be read as UTF-8 text: {error}") from None
    from prerouter.routers.learned import LearnedRouter

    router = LearnedRouter.from_pretrained(request.router)
    decision = router.decide(make_case(request, body, router.count_text_tokens(body)))[0]
    if as_json:
        plain(decision.model_dump_json(exclude_none=True, exclude={"case_id"}))
    else:
        _print(decision, router.fallback.value)


def _print(decision: Decision, fallback: str) -> None:
    if decision.route is None:
        plain(f"no decision ({decision.failure}); the router's fallback is {fallback}")
        if decision.raw:
            plain(f"it wrote: {decision.raw}")
        return
    plain(decision.route.value)
    if decision.rationale is None:
        return
    for step, text in decision.rationale.steps.items():
        plain(f"  {step.value.replace('_', ' ')}: {text}")
    if decision.rationale.reflection:
        plain(f"  reflection: {decision.rationale.reflection}")
