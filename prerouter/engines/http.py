"""The HTTP client of the `openai` engine: what leaves, by which way, and how much may come back."""

from __future__ import annotations

import ipaddress
import os
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from prerouter.core.errors import RecipeError
from prerouter.engines.dead_server import SettingError
from prerouter.engines.retries import ServerError
from prerouter.recipe.engine import OpenAIEngine

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MAX_REPLY_BYTES = 8 * 2**20
"""Far beyond the longest reasoning, and little enough for many replies at once."""
MAX_SCORES_BYTES = 128 * 2**20
"""What is no chat: token ids and log-probabilities of a whole document."""

_CHAT = "/chat/completions"
_CONNECT_SECONDS = 20.0
_NO_KEY = "EMPTY"
_SENT = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)


@asynccontextmanager
async def open_client(section: OpenAIEngine) -> AsyncIterator[AsyncOpenAI]:
    """A client of one server. Raises RecipeError where its key or the proxy can't be used."""
    import openai

    key = api_key(section)
    limit = section.timeout_seconds
    # No redirect is followed, and with trust_env off only `_proxy` says whether one is used, so
    # that prompts and key go to this server and no other.
    http = httpx2.AsyncClient(
        transport=BoundedTransport(key, _transport(section)),
        timeout=httpx2.Timeout(limit, connect=min(limit, _CONNECT_SECONDS)),
        follow_redirects=False,
        trust_env=False,
    )
    async with openai.AsyncOpenAI(
        api_key=key, base_url=section.base_url, max_retries=0, http_client=http
    ) as client:
        yield client


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Sends the headers that a call needs and no other, and reads a reply up to a limit.

    The openai library adds headers of its own and of the environment (OPENAI_ORG_ID,
    OPENAI_CUSTOM_HEADERS), the HTTP library a server's cookies: none of them leaves. A reply comes
    back as plain bytes with its status and Retry-After; SettingError where it is over
    `MAX_REPLY_BYTES`, or `MAX_SCORES_BYTES` for what is no chat.
    """

    def __init__(self, key: str, inner: httpx2.AsyncBaseTransport) -> None:
        self._key = key
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for name in set(request.headers) - _SENT:
            del request.headers[name]
        request.headers["authorization"] = f"Bearer {self._key}"
        request.headers["accept-encoding"] = "gzip"
        limit = MAX_REPLY_BYTES if request.url.path.endswith(_CHAT) else MAX_SCORES_BYTES
        response = await self._inner.handle_async_request(request)
        try:
            content = await _read(response, limit)
        finally:
            await response.aclose()
        kept = {
            name: response.headers[name] for name in ("retry-after",) if name in response.headers
        }
        return httpx2.Response(response.status_code, headers=kept, content=content)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _read(response: httpx2.Response, limit: int) -> bytes:
    raw = bytearray()
    async for part in response.aiter_raw():
        raw += part
        if len(raw) > limit:
            raise _too_large(limit)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return bytes(raw)
    if encoding != "gzip":
        raise ServerError(f"content-encoding {encoding[:20]!r} was not asked for", passing=True)
    # A few kilobytes of gzip may hold gigabytes: the limit is on what comes out.
    decoder = zlib.decompressobj(wbits=31)
    try:
        plain = decoder.decompress(bytes(raw), limit + 1)
    except zlib.error:
        raise ServerError("malformed reply: not gzip", passing=True) from None
    if len(plain) > limit:
        raise _too_large(limit)
    if not decoder.eof:
        raise ServerError("malformed reply: half a gzip", passing=True)
    return plain


def _too_large(limit: int) -> SettingError:
    return SettingError(
        f"a reply of over {limit >> 20} MiB",
        passing=False,
        mend="look at what stands at engine.base_url",
    )


def _transport(section: OpenAIEngine) -> httpx2.AsyncHTTPTransport:
    # The pool is as large as the semaphore, so that neither limits the other in silence.
    size = section.concurrency
    limits = httpx2.Limits(max_connections=size, max_keepalive_connections=size)
    try:
        return httpx2.AsyncHTTPTransport(limits=limits, proxy=_proxy(section.base_url))
    except (ImportError, ValueError, httpx2.InvalidURL):
        # The address of a proxy may hold a password: it is not shown.
        raise RecipeError(
            "HTTPS_PROXY",
            "is no proxy that can be used here",
            "http://HOST:PORT",
            f"mend it, or name the server in NO_PROXY ({section.base_url})",
        ) from None


def _proxy(base_url: str) -> str | None:
    """The environment's proxy for an https server elsewhere, which it can't listen to. One for
    http would read prompts and key."""
    address = urlsplit(base_url)
    host = address.hostname or ""
    if address.scheme == "http" or _is_loopback(host) or proxy_bypass(host):
        return None
    found = getproxies()
    proxy = found.get("https") or found.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def api_key(section: OpenAIEngine) -> str:
    """The key in the variable that the section names; a placeholder for a server that needs none.

    Raises RecipeError where an https server elsewhere would be called without a key, and where the
    variable holds what no header takes.
    """
    name = section.api_key_variable
    key = os.environ.get(name, "").strip()
    if key:
        if not re.fullmatch("[!-~]+", key):
            raise RecipeError(
                "engine.api_key_variable",
                f"the environment variable {name} holds a sign that no key has",
                "letters, digits and signs of ASCII, without spaces and line breaks",
                f"export {name} anew: pasting may have brought quotation marks or a second line",
            )
        return key
    address = urlsplit(section.base_url)
    if address.scheme == "http" or _is_loopback(address.hostname or ""):
        return _NO_KEY
    raise RecipeError(
        "engine.api_key_variable",
        f"the environment variable {name} is not set",
        f"a key for {section.base_url}",
        f"export {name}, or name another variable",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
