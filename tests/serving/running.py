"""A service on loopback in a thread of its own, and what tests ask it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn

from prerouter.core.protocols import Router
from prerouter.core.records import Route
from prerouter.serving.served import as_served
from prerouter.serving.server import open_socket
from prerouter.serving.service import Limits, make_app


@contextmanager
def running(
    router: Router,
    limits: Limits | None = None,
    api_key: str | None = None,
    fallback: Route | None = None,
    http: Any = "auto",
) -> Iterator[str]:
    """The address of a service of `router`; `http` is uvicorn's parser."""
    listening = open_socket("127.0.0.1", 0)
    app = make_app(as_served(router, fallback), limits or Limits(), api_key)
    server = uvicorn.Server(
        uvicorn.Config(app, http=http, lifespan="on", log_config=None, timeout_graceful_shutdown=5)
    )
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def asked(question: str, **fields: Any) -> dict[str, Any]:
    return {"question": question, "answer_model": {"name": "reader-4k"}, **fields}


def post(address: str, body: Any, **options: Any) -> httpx2.Response:
    return httpx2.post(f"{address}/v1/route", json=body, timeout=20, **options)
