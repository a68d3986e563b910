"""The HTTP service: `POST /v1/route`, `/healthz`, `/metrics`, `/openapi.json` and `/docs`."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import jinja2
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError
from starlette.exceptions import HTTPException

import prerouter
from prerouter.core.records import Record
from prerouter.serving.batching import Batcher, QueueFullError
from prerouter.serving.gate import OPEN_PATHS, Gate, refusal
from prerouter.serving.metrics import Metrics
from prerouter.serving.served import ServedRouter
from prerouter.serving.wire import (
    MAX_BODY_BYTES,
    REQUEST,
    AskedCase,
    Health,
    Refusal,
    Routed,
    RoutedCases,
    routed,
    to_case,
)

_REFUSALS: dict[int | str, dict[str, Any]] = {
    408: {"model": Refusal, "description": "The body did not arrive in time."},
    413: {"model": Refusal, "description": "The body is too large."},
}
_BUSY: dict[int | str, dict[str, Any]] = {
    503: {
        "model": Refusal,
        "description": "The queue is full, or too many requests are in hand.",
        "headers": {"Retry-After": {"schema": {"type": "integer", "minimum": 1}}},
    },
}
_ROUTE_REFUSALS: dict[int | str, dict[str, Any]] = {
    415: {"model": Refusal, "description": "The body is not announced as JSON."},
    422: {"model": Refusal, "description": "The body is not what the schema says."},
}
_MAX_PROBLEMS = 5
_DESCRIPTION = (
    "Decides from metadata alone whether a question over a long document is to be answered from "
    "retrieved chunks (RAG) or by reading all of it (LC). A document's body is never sent here."
)


@dataclass(frozen=True)
class Limits:
    """What the service takes. A request that isn't decided after `timeout_seconds` gets the
    fallback route; one that finds `queue` cases waiting, or `requests` in hand, is refused with
    503. Checks of health are always answered."""

    max_batch: int = 16
    queue: int = 1024
    timeout_seconds: float = 60.0
    requests: int = 2048
    max_body_bytes: int = MAX_BODY_BYTES
    body_seconds: float = 10.0


def make_app(served: ServedRouter, limits: Limits, api_key: str | None = None) -> FastAPI:
    """The ASGI application. With `api_key`, all but `/healthz` ask for it as a bearer token."""
    batcher = Batcher(served.router, max_batch=limits.max_batch, queue_limit=limits.queue)
    metrics = Metrics(lambda: batcher.waiting)
    numbers = itertools.count()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        try:
            yield
        finally:
            await batcher.stop()

    app = FastAPI(
        title="prerouter",
        version=prerouter.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        # FastAPI's own pages load their scripts from another server.
        docs_url=None,
        redoc_url=None,
    )

    async def decide(cases: Sequence[AskedCase]) -> list[Routed]:
        """Raises QueueFullError."""
        named = [
            to_case(case, str(next(numbers)), served.rag, served.head_characters) for case in cases
        ]
        futures = batcher.submit(named)
        _, late = await asyncio.wait(futures, timeout=limits.timeout_seconds)
        for future in late:
            future.cancel()
        return [
            routed(
                None if future in late else future.result(),
                case.case_id,
                served.fallback,
                served.identity,
            )
            for case, future in zip(cases, futures, strict=True)
        ]

    def refuse(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
        metrics.refused(status)
        return refusal(status, error, headers)

    @app.post(
        "/v1/route",
        response_model=Routed | RoutedCases,
        responses=_REFUSALS | _ROUTE_REFUSALS | _BUSY,
        summary="Decide one case, or several",
    )
    async def route(request: Request) -> Response:
        """One case, or `{"cases": [...]}`: the answers come in the order of the cases. Where the
        router gives no route, the fallback is answered and `fallback_reason` says why."""
        arrived = time.monotonic()
        # Demanded, too, so that no web page can post here without asking the browser first.
        kind = request.headers.get("content-type", "").partition(";")[0]
        if kind.strip().lower() != "application/json":
            return refuse(415, "content-type: is not JSON; application/json")
        try:
            asked = REQUEST.validate_json(await request.body(), strict=True)
        except ValidationError as error:
            return refuse(422, _problems(error))
        cases = [asked] if isinstance(asked, AskedCase) else asked.cases
        if len(cases) > limits.queue:
            return refuse(413, f"cases: {len(cases)} of them; {limits.queue} at most")
        try:
            decisions = await decide(cases)
        except QueueFullError as error:
            return refuse(503, str(error), {"retry-after": str(error.retry_after)})
        metrics.answered(decisions, time.monotonic() - arrived)
        several = RoutedCases(decisions=tuple(decisions))
        return _json(decisions[0] if isinstance(asked, AskedCase) else several)

    @app.get(
        "/healthz",
        response_model=Health,
        responses=_REFUSALS | {503: {"model": Health, "description": "The router is stalled."}},
        summary="Whether it decides",
    )
    async def ready() -> Response:
        stalled = batcher.busy_seconds > limits.timeout_seconds
        health = Health(
            status="stalled" if stalled else "ready",
            router=served.identity,
            mode=served.mode,
            fallback=served.fallback,
            head_characters=served.head_characters,
            rag=served.rag,
            waiting=batcher.waiting,
        )
        return _json(health, 503 if stalled else 200)

    @app.get(
        "/healthz/live",
        response_class=PlainTextResponse,
        responses=_REFUSALS,
        summary="Whether the process answers",
    )
    async def live() -> PlainTextResponse:
        return PlainTextResponse("live\n")

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=_REFUSALS | _BUSY,
        summary="Figures for Prometheus",
    )
    async def figures() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = _docs_page(app.openapi())
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(page, headers={"content-security-policy": policy})

    @app.exception_handler(HTTPException)
    async def not_found(_: Request, error: HTTPException) -> Response:
        return refuse(error.status_code, f"request: {error.detail}", dict(error.headers or {}))

    app.add_middleware(
        Gate,
        api_key=api_key,
        max_body_bytes=limits.max_body_bytes,
        body_seconds=limits.body_seconds,
        max_requests=limits.requests,
        refused=metrics.refused,
    )
    app.openapi = lambda: _describe(app, api_key is not None)  # type: ignore[method-assign]
    return app


def _json(record: Record, status: int = 200) -> Response:
    return Response(record.model_dump_json(), status, media_type="application/json")


def _problems(error: ValidationError) -> str:
    """Where and what, of the first few; never what the client sent."""
    problems = []
    for found in error.errors(include_input=False, include_url=False, include_context=False):
        place = ".".join(str(part) for part in found["loc"][1:]) or "body"
        problems.append(f"{place[:100]}: {found['msg'].removeprefix('Value error, ')[:200]}")
    more = len(problems) - _MAX_PROBLEMS
    shown = "; ".join(problems[:_MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    return shown.encode("utf-8", "replace").decode()


def _describe(app: FastAPI, with_key: bool) -> dict[str, Any]:
    """The OpenAPI document. The route reads its body itself, strictly, so its schema is put in."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    body = REQUEST.json_schema(ref_template="#/components/schemas/{model}")
    schemas = document["components"]["schemas"]
    schemas |= body.pop("$defs")
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["paths"]["/v1/route"]["post"]["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": body}},
    }
    if with_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        denied = {
            "description": "No valid key.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
            "headers": {"WWW-Authenticate": {"schema": {"type": "string"}}},
        }
        for path, operations in document["paths"].items():
            if path not in OPEN_PATHS:
                for operation in operations.values():
                    operation["security"] = [{"key": []}]
                    operation["responses"]["401"] = denied
    app.openapi_schema = document
    return document


def _docs_page(document: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("prerouter.serving", ""),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
    )
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2)
    return environment.get_template("docs.jinja").render(document=document)
