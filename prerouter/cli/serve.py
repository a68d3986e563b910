"""`prerouter serve`: a router's folder as an HTTP service."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from prerouter.cli.options import Engine, Mode, Threshold, finite
from prerouter.core.errors import InputError, MissingDependencyError
from prerouter.core.records import Route, StudentMode

DEFAULT_KEY_VARIABLE = "PREROUTER_API_KEY"


def serve_router(
    router: Annotated[Path, typer.Option(help="A router's folder.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65_535)] = 8080,
    mode: Mode = None,
    threshold: Threshold = None,
    engine: Engine = "transformers",
    threshold_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The same from a JSON file that names the checkpoint it was fitted to."),
    ] = None,
    api_key_variable: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Environment variable with the key to ask for; PREROUTER_API_KEY, if it is set."
        ),
    ] = None,
    fallback: Annotated[
        Optional[Literal["RAG", "LC"]],  # noqa: UP045
        typer.Option(help="The route where the router gives none; as published by default."),
    ] = None,
    max_batch: Annotated[
        int, typer.Option(help="Cases that the model reads at once.", min=1, max=4096)
    ] = 16,
    queue: Annotated[
        int, typer.Option(help="Cases that may wait; more are refused with 503.", min=1, max=10**6)
    ] = 1024,
    timeout: Annotated[
        float,
        typer.Option(
            help="Seconds until a case gets the fallback route.",
            min=0.01,
            max=3600,
            callback=finite,
        ),
    ] = 60.0,
) -> None:
    """Serve a router over HTTP: POST /v1/route, /healthz, /metrics, /docs."""
    if threshold is not None and threshold_file is not None:
        raise InputError("--threshold-file", "is given beside --threshold", "one of the two")
    api_key = find_key(api_key_variable)
    try:
        from prerouter.serving.server import is_loopback, open_socket, serve
        from prerouter.serving.service import Limits, make_app
    except ImportError as error:
        raise MissingDependencyError(error.name or "fastapi", "serve") from None
    from prerouter.cli.console import plain
    from prerouter.publishing.threshold import read_threshold
    from prerouter.serving.served import load_router

    served = load_router(
        router,
        mode=StudentMode(mode) if mode else None,
        threshold=read_threshold(threshold_file) if threshold_file else threshold,
        fallback=Route(fallback) if fallback else None,
        batch_size=max_batch,
        engine=engine,
    )
    limits = Limits(max_batch=max_batch, queue=queue, timeout_seconds=timeout)
    listening = open_socket(host, port)

    def ready() -> None:
        if api_key is None and not is_loopback(host):
            plain(
                f"warning: {host} can be reached from elsewhere, and no key is asked for; "
                f"set {DEFAULT_KEY_VARIABLE}",
                error=True,
            )
        bound, number = listening.getsockname()[:2]
        address = f"http://{f'[{bound}]' if ':' in bound else bound}:{number}"
        plain(
            f"{router} (checkpoint {(served.checkpoint or '')[:12]}, mode {served.mode}, "
            f"fallback {served.fallback.value}) at {address}/v1/route; {address}/docs tells how"
        )

    serve(make_app(served, limits, api_key), listening, timeout, ready)


def find_key(variable: str | None) -> str | None:
    """The key in the named environment variable, which must then be set, or in PREROUTER_API_KEY,
    where it is; None where no key is asked for. Raises InputError for a variable that is blank:
    whoever set it meant to ask for a key."""
    name = variable or DEFAULT_KEY_VARIABLE
    given = os.environ.get(name)
    key = (given or "").strip()
    if given is not None and not key:
        raise InputError(
            "--api-key-variable", f"{name} is blank", "a key", f"export {name}=..., or unset it"
        )
    if key and not re.fullmatch("[!-~]+", key):
        raise InputError(
            "--api-key-variable", f"{name} holds a sign that no header takes", "plain ASCII"
        )
    if variable and not key:
        raise InputError("--api-key-variable", f"{name} is not set", next_step=f"export {name}")
    return key or None
