"""A model behind a real vLLM server, started by the launcher that users start."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.vllm.traces import MAX_MODEL_LEN

SECONDS_TO_START = 300


@contextlib.contextmanager
def served(repository: Path, model: str, name: str, log: Path) -> Iterator[str]:
    """The address of an OpenAI-like server of `model`, in float32, while it stands."""
    os.environ.pop("OPENAI_API_KEY", None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as lines:
        server = subprocess.Popen(
            [
                repository / "scripts" / "serve_teacher.sh",
                model,
                f"--served-model-name={name}",
                "--dtype=float32",
                "--enforce-eager",
                "--gpu-memory-utilization=0.5",
                f"--max-model-len={MAX_MODEL_LEN}",
            ],
            env={**os.environ, "PORT": str(port), "PYTHON": sys.executable},
            stdout=lines,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_up(server, port, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def _wait_until_up(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])
