"""The client of a service: typed, with a time limit, and one layer of retries."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from prerouter.core.errors import InputError, PrerouterError, first_mistake
from prerouter.core.records import RoutingCase
from prerouter.engines.retries import is_passing, retry_after_seconds
from prerouter.serving.wire import (
    MAX_BODY_BYTES,
    MAX_CASES,
    AskedCase,
    AskedCases,
    Health,
    Refusal,
    Routed,
    RoutedCases,
    to_asked,
)

if TYPE_CHECKING:
    import httpx2

BACKOFF_SECONDS = 0.2
_CONNECT_SECONDS = 5.0

Asked = RoutingCase | AskedCase


class ServiceError(PrerouterError):
    """The service could not be asked, or refused; `status` is its HTTP status, if it gave one."""

    status: int | None = None


class _PassingError(Exception):
    """What may be over at the next attempt, with what to raise where there is none."""

    def __init__(self, error: ServiceError, retry_after: float | None) -> None:
        self.error = error
        self.retry_after = retry_after
        super().__init__(error.line)


class Client:
    """Asks a `prerouter serve` for decisions. Public as prerouter.Client.

    `timeout` is in seconds, of one attempt; keep it above the service's own. Connections that fail,
    429 and 5xx are tried again, `attempts` times in all, after Retry-After where it was sent and a
    drawn back-off; each wait is `max_wait_seconds` at most. A decision changes nothing, so asking
    twice does no harm. Neither redirects nor the environment's proxies are followed: the key goes
    to `base_url` alone. Safe to share between threads. Raises ServiceError for what stays refused.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 90.0,
        attempts: int = 4,
        max_wait_seconds: float = 30.0,
    ) -> None:
        import httpx2

        try:
            address = httpx2.URL(base_url)
        except httpx2.InvalidURL:
            raise InputError("base_url", "is no address", "http://HOST:PORT") from None
        if address.scheme not in ("http", "https") or not address.host:
            raise InputError("base_url", "is no address", "http://HOST:PORT")
        # Errors show the address, and would show a password in it.
        if address.userinfo:
            raise InputError(
                "base_url", "holds a name or a password", "http://HOST:PORT and api_key"
            )
        if attempts < 1:
            raise InputError("attempts", f"is {attempts}", "1 at least")
        self._base_url = base_url.rstrip("/")
        self._attempts = attempts
        self._max_wait_seconds = max_wait_seconds
        if api_key is not None and not re.fullmatch("[!-~]+", api_key):
            raise InputError("api_key", "is empty or holds a sign that no key has", "plain ASCII")
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._options: dict[str, Any] = {
            "headers": headers,
            "timeout": httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            "trust_env": False,
            # Made once: reading the certificates takes longer than a call.
            "verify": httpx2.create_ssl_context(trust_env=False),
        }
        self._http = httpx2.Client(**self._options)
        self._async_http: httpx2.AsyncClient | None = None

    def decide(self, cases: Asked | Sequence[Asked]) -> list[Routed]:
        """Decisions for one case or several, in their order."""
        found: list[Routed] = []
        parts = deque(_parts(cases))
        while parts:
            part = parts.popleft()
            try:
                found += self._ask(part)
            except ServiceError as error:
                parts.extendleft(reversed(_halves(part, error)))
        return found

    async def adecide(self, cases: Asked | Sequence[Asked]) -> list[Routed]:
        """The same without blocking the event loop. Inside `async with`, connections are kept for
        that loop; elsewhere they are closed after each call."""
        import httpx2

        found: list[Routed] = []
        parts = deque(_parts(cases))
        async with AsyncExitStack() as stack:
            http = self._async_http
            if http is None:
                http = await stack.enter_async_context(httpx2.AsyncClient(**self._options))
            while parts:
                part = parts.popleft()
                try:
                    found += await self._aask(http, part)
                except ServiceError as error:
                    parts.extendleft(reversed(_halves(part, error)))
        return found

    def health(self) -> Health:
        """What runs there, ready or stalled; asked once."""
        import httpx2

        place = f"{self._base_url}/healthz"
        try:
            return Health.model_validate_json(self._http.get(place).content)
        except httpx2.HTTPError as error:
            raise ServiceError(place, f"can't be asked: {_reason(error)}") from None
        except ValidationError:
            raise ServiceError(place, "is no service of prerouter's") from None

    def close(self) -> None:
        self._http.close()

    async def aclose(self) -> None:
        self._http.close()
        if self._async_http is not None:
            await self._async_http.aclose()
            self._async_http = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import httpx2

        self._async_http = httpx2.AsyncClient(**self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _ask(self, part: AskedCases) -> tuple[Routed, ...]:
        attempt = 1
        while True:
            try:
                return _read(self._post(part), part, self._base_url)
            except _PassingError as fault:
                time.sleep(self._pause(fault, attempt))
            attempt += 1

    async def _aask(self, http: httpx2.AsyncClient, part: AskedCases) -> tuple[Routed, ...]:
        attempt = 1
        while True:
            try:
                return _read(await self._apost(http, part), part, self._base_url)
            except _PassingError as fault:
                await asyncio.sleep(self._pause(fault, attempt))
            attempt += 1

    def _post(self, part: AskedCases) -> httpx2.Response:
        import httpx2

        try:
            return self._http.post(self._place, content=_body(part), headers=_JSON)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    async def _apost(self, http: httpx2.AsyncClient, part: AskedCases) -> httpx2.Response:
        import httpx2

        try:
            return await http.post(self._place, content=_body(part), headers=_JSON)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from None

    @property
    def _place(self) -> str:
        return f"{self._base_url}/v1/route"

    def _unreachable(self, error: httpx2.HTTPError) -> _PassingError:
        return _PassingError(
            ServiceError(
                self._base_url,
                f"can't be asked: {_reason(error)}",
                next_step="see whether `prerouter serve` runs there",
            ),
            None,
        )

    def _pause(self, fault: _PassingError, attempt: int) -> float:
        """Seconds to wait before the next attempt; where none is left, the fault is raised."""
        if attempt == self._attempts:
            raise fault.error from None
        backoff = random.uniform(0, BACKOFF_SECONDS * 2**attempt)  # noqa: S311 -- no secret
        return min((fault.retry_after or 0.0) + backoff, self._max_wait_seconds)


_JSON = {"content-type": "application/json"}
# A comma behind a case, and `{"cases":[]}` around them all.
_AROUND_CASE = 1
_AROUND_PART = 12


def _parts(cases: Asked | Sequence[Asked]) -> Iterator[AskedCases]:
    several = [cases] if isinstance(cases, Asked) else list(cases)
    part: list[AskedCase] = []
    size = 0
    for case in several:
        asked = _asked(case) if isinstance(case, RoutingCase) else case
        more = len(_body(asked)) + _AROUND_CASE
        if part and (len(part) == MAX_CASES or size + more > MAX_BODY_BYTES - _AROUND_PART):
            yield AskedCases(cases=tuple(part))
            part, size = [], 0
        part.append(asked)
        size += more
    if part:
        yield AskedCases(cases=tuple(part))


def _asked(case: RoutingCase) -> AskedCase:
    try:
        return to_asked(case)
    except ValidationError as error:
        raise InputError(f"case {case.case_id}", first_mistake(error)) from None


def _halves(part: AskedCases, error: ServiceError) -> list[AskedCases]:
    """What to ask instead of a part that the service finds too large; `error` is raised where a
    single case is, or where it is about something else."""
    if error.status != 413 or len(part.cases) == 1:
        raise error
    middle = len(part.cases) // 2
    return [AskedCases(cases=part.cases[:middle]), AskedCases(cases=part.cases[middle:])]


def _body(part: AskedCases | AskedCase) -> bytes:
    return part.model_dump_json(exclude_none=True).encode()


def _read(response: httpx2.Response, part: AskedCases, base_url: str) -> tuple[Routed, ...]:
    status = response.status_code
    if status != 200:
        error = ServiceError(base_url, f"answers {status}: {_told(response.content)}")
        error.status = status
        if is_passing(status):
            raise _PassingError(error, retry_after_seconds(response.headers.get("retry-after")))
        raise error
    try:
        decisions = RoutedCases.model_validate_json(response.content).decisions
    except ValidationError:
        raise ServiceError(base_url, "answers what is no decision") from None
    if [each.case_id for each in decisions] != [case.case_id for case in part.cases]:
        raise ServiceError(base_url, "answers other cases than it was asked")
    return decisions


def _told(content: bytes) -> str:
    try:
        return Refusal.model_validate_json(content).error[:300]
    except ValidationError:
        return "no reason that can be read"


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error!s:.200}".removesuffix(": ")
