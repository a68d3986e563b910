"""Running the service until it is told to stop."""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from prerouter.core.errors import StageError

_BACKLOG = 2048


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises StageError where it can't be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StageError(
            f"{host}:{port}", f"can't be listened on: {reason}", next_step="try another --port"
        ) from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(
    app: FastAPI,
    listening: socket.socket,
    grace_seconds: float,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C: then no connection is taken any more, what is in flight is
    finished within `grace_seconds`, and the call returns. `ready` is called before the first
    request is taken."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(grace_seconds) + 1,
        )
    )

    def stop(*_: object) -> None:
        server.should_exit = True

    # Before uvicorn has handlers of its own, this stops it as soon as it runs; it sends the signal
    # again once it is done, and the process has then nothing left to stop.
    earlier = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        ready()
        server.run(sockets=[listening])
    finally:
        for each, handler in earlier.items():
            signal.signal(each, handler)
