"""What every request passes before it is read: the key, how many are in hand, and the limits on its
body."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prerouter.serving.wire import Refusal

OPEN_PATHS = frozenset({"/healthz", "/healthz/live"})
"""Paths that need no key, for the probes of an orchestrator."""


def refusal(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return Response(
        Refusal(error=error).model_dump_json(), status, headers, media_type="application/json"
    )


class Gate:
    """ASGI middleware: 401 without the key, 503 where `max_requests` are in hand, 413 for a body
    over `max_body_bytes`, whether or not its length was announced, and 408 for one that isn't
    there after `body_seconds`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        max_body_bytes: int,
        body_seconds: float,
        max_requests: int,
        refused: Callable[[int], None],
    ) -> None:
        self._app = app
        self._key = None if api_key is None else _digest(api_key.encode())
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds
        self._max_requests = max_requests
        self._in_hand = 0
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._in_hand += 1
        try:
            await self._pass(scope, receive, send)
        finally:
            self._in_hand -= 1

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._without_key(scope) or self._too_many(scope)
        body = b""
        if refused is None:
            found = await self._read(scope, receive)
            if found is None:
                return
            if isinstance(found, Response):
                refused = found
            else:
                body = found
        if refused is not None:
            self._refused(refused.status_code)
            await refused(scope, receive, send)
            return
        told = False

        async def replay() -> Message:
            nonlocal told
            if told:
                return await receive()
            told = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    def _without_key(self, scope: Scope) -> Response | None:
        if self._key is None or scope["path"] in OPEN_PATHS:
            return None
        scheme, _, given = _header(scope, b"authorization").partition(b" ")
        # Of digests: neither the key's signs nor its length show in the time that it takes.
        if hmac.compare_digest(_digest(given.strip()), self._key) and scheme.lower() == b"bearer":
            return None
        return refusal(
            401,
            "authorization: no valid key; Authorization: Bearer KEY",
            {"www-authenticate": "Bearer"},
        )

    def _too_many(self, scope: Scope) -> Response | None:
        if self._in_hand <= self._max_requests or scope["path"] in OPEN_PATHS:
            return None
        error = f"the service has {self._max_requests} requests in hand; try again in 1 s"
        return refusal(503, error, {"retry-after": "1", "connection": "close"})

    async def _read(self, scope: Scope, receive: Receive) -> bytes | Response | None:
        """The body, why it is refused, or None where the client has gone."""
        too_large = f"body: too large; {self._max_body_bytes} bytes at most"
        announced = _header(scope, b"content-length")
        if announced.isdigit() and int(announced[:20]) > self._max_body_bytes:
            return refusal(413, too_large)
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._max_body_bytes:
                        return refusal(413, too_large)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            error = f"body: not complete after {self._body_seconds:g} s"
            return refusal(408, error, {"connection": "close"})


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")
