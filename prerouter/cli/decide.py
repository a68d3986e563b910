"""`prerouter decide`: one question, one document, one decision with its reasons."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer
from pydantic import ValidationError

from prerouter.cli.options import Engine, Mode, Threshold
from prerouter.core.errors import CombinedError, InputError
from prerouter.core.records import (
    AnswerModel,
    Decision,
    DocumentProfile,
    RagConfig,
    Route,
    RoutingCase,
    StudentMode,
)

if TYPE_CHECKING:
    from prerouter.routers.learned import LearnedRouter


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
    document_tokens: int | None
    chunk_tokens: int | None
    overlap_tokens: int | None
    top_k: int | None
    mode: str | None
    threshold: float | None
    engine: Literal["transformers", "vllm"]


def make_case(request: Request, body: str, router: LearnedRouter) -> RoutingCase:
    """The routing case for `body`, with what isn't given as the router was trained for it.

    A length that isn't given is counted in the router's own tokens.
    """
    from prerouter.sources.text_files import head_of

    given = {
        "chunk_tokens": request.chunk_tokens,
        "overlap_tokens": request.overlap_tokens,
        "top_k": request.top_k,
    }
    rag = router.rag.model_dump() | {
        key: value for key, value in given.items() if value is not None
    }
    tokens = request.document_tokens
    try:
        return RoutingCase(
            case_id="case",
            question_id="question",
            group_id="document",
            question=request.question,
            task_type=request.task_type,
            document=DocumentProfile(
                document_id="document",
                title=request.title,
                type=request.document_type,
                tokens=router.count_text_tokens(body) if tokens is None else tokens,
                head=head_of(body, router.head_characters),
            ),
            answer_model=AnswerModel(
                name=request.answer_model, context_window=request.context_window
            ),
            rag=RagConfig.model_validate(rag),
        )
    except ValidationError as error:
        raise CombinedError(
            [
                InputError(
                    _option(found["loc"]),
                    found["msg"].removeprefix("Value error, "),
                    next_step="see --help",
                )
                for found in error.errors()
            ]
        ) from None


def _option(place: tuple[int | str, ...]) -> str:
    """The option that gave what stands at `place` of a case; a rule over two has no place."""
    names = {"name": "answer_model", "tokens": "document_tokens"}
    name = str(place[-1]) if place else "overlap_tokens"
    return "--" + names.get(name, name).replace("_", "-")


def decide_one(request: Request, *, as_json: bool) -> None:
    from prerouter.cli.console import plain

    try:
        body = request.document.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(request.document), f"can't be read as UTF-8 text: {error}") from None
    from prerouter.routers.learned import LearnedRouter

    router = LearnedRouter.from_pretrained(
        request.router,
        mode=StudentMode(request.mode) if request.mode else None,
        threshold=request.threshold,
        engine=request.engine,
    )
    decision = router.decide(make_case(request, body, router))[0]
    if as_json:
        plain(to_json(decision, router.fallback))
    else:
        _print(decision, router.fallback)


def to_json(decision: Decision, fallback: Route) -> str:
    """The decision as one line; one without a route says what its maker advises to do then."""
    shown = decision.model_dump(mode="json", exclude_none=True, exclude={"case_id"})
    if decision.route is None:
        shown["fallback"] = fallback.value
    return json.dumps(shown, ensure_ascii=False)


def _print(decision: Decision, fallback: Route) -> None:
    from prerouter.cli.console import plain

    if decision.route is None:
        plain(f"no decision ({decision.failure}); the router's fallback is {fallback.value}")
        if decision.raw:
            plain(f"it wrote: {decision.raw}")
        return
    certainty = "" if decision.p_lc is None else f" (p_lc {decision.p_lc:.3f})"
    plain(f"{decision.route.value}{certainty}")
    if decision.rationale is None:
        return
    for step, text in decision.rationale.steps.items():
        plain(f"  {step.value.replace('_', ' ')}: {text}")
    if decision.rationale.reflection:
        plain(f"  reflection: {decision.rationale.reflection}")


def decide(
    router: Annotated[Path, typer.Option(help="A router's folder.")],
    question: Annotated[str, typer.Option(help="The question.")],
    document: Annotated[Path, typer.Option(help="The document, as UTF-8 text.")],
    answer_model: Annotated[str, typer.Option(help="Name of the model that will answer.")],
    context_window: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Its context window, in tokens.", min=1),
    ] = None,
    title: Annotated[Optional[str], typer.Option(help="The document's title.")] = None,  # noqa: UP045
    document_type: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The document's type."),
    ] = None,
    task_type: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The task's type."),
    ] = None,
    document_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Its length in tokens; counted where it isn't given.", min=0),
    ] = None,
    chunk_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Tokens of a chunk; as trained for by default.", min=1),
    ] = None,
    overlap_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Tokens that chunks share; as trained for by default.", min=0),
    ] = None,
    top_k: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Chunks retrieved; as trained for by default.", min=1),
    ] = None,
    mode: Mode = None,
    threshold: Threshold = None,
    engine: Engine = "transformers",
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Route one question over one document, and say why."""
    decide_one(
        Request(
            router=router,
            question=question,
            document=document,
            answer_model=answer_model,
            context_window=context_window,
            title=title,
            document_type=document_type,
            task_type=task_type,
            document_tokens=document_tokens,
            chunk_tokens=chunk_tokens,
            overlap_tokens=overlap_tokens,
            top_k=top_k,
            mode=mode,
            threshold=threshold,
            engine=engine,
        ),
        as_json=as_json,
    )
