"""A loopback server that speaks chat completions and plays every fault a real one has.

What it does with a request is written in the request: the user's message is the name of a fault,
a space, how many attempts are to fail before one succeeds ("all" for every one), and anything else.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import Message
from prerouter.recipe.engine import OpenAIEngine


@dataclass
class Seen:
    """What reached the server: bodies and times by user message, the most requests at once."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    headers: list[dict[str, str]] = field(default_factory=list)
    clients: set[tuple[str, int]] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def attempts(self) -> Counter[str]:
        return Counter({prompt: len(times) for prompt, times in self.times.items()})


class FaultServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen = Seen()
        self.stopping = threading.Event()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def words_of(self, body: dict[str, Any]) -> str:
        """What tells the server how to play a request, and the test which request it was."""
        return str(body["messages"][-1]["content"])

    def answer_to(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a reply where nothing fails."""
        return reply(f"answer to {self.words_of(body)}")

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is part of the play."""


Server = TypeVar("Server", bound=FaultServer)


@contextmanager
def running_server(kind: type[Server] = FaultServer) -> Iterator[Server]:
    with kind() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stopping.set()
            server.shutdown()
            thread.join()


def section(server: FaultServer, **changes: Any) -> OpenAIEngine:
    fields: dict[str, Any] = {
        "kind": "openai",
        "model": "some/model",
        "base_url": server.base_url,
        "concurrency": 4,
        "timeout_seconds": 5,
        "max_attempts": 3,
        "backoff_seconds": 0.01,
    }
    return OpenAIEngine(**{**fields, **changes})


def requests(*prompts: str) -> list[GenerationRequest]:
    return [
        GenerationRequest((Message(role="user", content=prompt),), seed=100 + number)
        for number, prompt in enumerate(prompts)
    ]


def reply(content: str | None, **changes: Any) -> dict[str, Any]:
    """A whole body; `changes` replace the message's fields, or `finish_reason`, `choices` and
    fields of `usage`."""
    finish = changes.pop("finish_reason", "stop")
    usage = changes.pop("usage", {})
    choices = changes.pop("choices", 1)
    message = {"role": "assistant", "content": content, **changes}
    return {
        "id": "reply",
        "object": "chat.completion",
        "choices": [
            {"index": index, "message": message, "finish_reason": finish}
            for index in range(choices)
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
            **usage,
        },
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_POST(self) -> None:
        seen = self.server.seen
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = self.server.words_of(body)
        with seen.lock:
            seen.bodies.append(body)
            seen.times.setdefault(prompt, []).append(time.monotonic())
            seen.keys.add(self.headers.get("authorization", ""))
            seen.headers.append({name.lower(): value for name, value in self.headers.items()})
            seen.clients.add(self.client_address)
            seen.at_once += 1
            seen.most_at_once = max(seen.most_at_once, seen.at_once)
            attempt = len(seen.times[prompt])
        try:
            self._play(prompt, attempt, body)
        finally:
            with seen.lock:
                seen.at_once -= 1

    def _play(self, prompt: str, attempt: int, body: dict[str, Any]) -> None:
        fault, failing, *_ = [*prompt.split(), "0"]
        if fault not in _FAULTS or (failing != "all" and attempt > int(failing)):
            self._send_json(self.server.answer_to(body))
        else:
            _FAULTS[fault](self)

    def _send_json(self, value: object, status: int = 200, **headers: str) -> None:
        self._send(json.dumps(value).encode(), status, **headers)

    def _send(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", headers.pop("content_type", "application/json"))
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def _error(self, status: int, message: str, **headers: str) -> None:
        self._send_json({"error": {"message": message}}, status, **headers)

    def _echo_key(self) -> None:
        given = self.headers["authorization"]
        self._error(401, f"no such key:\n{given}\x1b[31m")

    def _echo_escaped(self, *, twice: bool = False) -> None:
        """The key as JSON may spell it, which no search of the body finds."""
        key = self.headers["authorization"].removeprefix("Bearer ")
        spelled = "".join(f"\\u{ord(sign):04x}" for sign in key)
        text = json.dumps(reply("SPELLED")).replace(
            "SPELLED", spelled.replace("\\", "\\\\") if twice else spelled
        )
        self._send(text.encode())

    def _endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        while not self.server.stopping.is_set():
            self.wfile.write(b" " * 65536)

    def _gzip(self, content: bytes) -> None:
        self._send(gzip.compress(content), content_encoding="gzip")

    def _drop(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b'{"choices": [')
        self.wfile.flush()
        self.close_connection = True

    def _drip(self) -> None:
        """One byte at a time, each well within the client's own timeout."""
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        while not self.server.stopping.wait(0.05):
            self.wfile.write(b" ")
            self.wfile.flush()

    def _hang(self) -> None:
        self.server.stopping.wait(20)

    def _slow(self) -> None:
        self.server.stopping.wait(0.4)
        self._send_json(reply("slow answer"))

    def _slowly_cut_off(self) -> None:
        self.server.stopping.wait(0.4)
        self._send_json(reply("{", finish_reason="length"))

    def _crowd(self) -> None:
        """Answers once as many as the third word says are here together."""
        seen = self.server.seen
        size = int(seen.bodies[-1]["messages"][-1]["content"].split()[2])
        while seen.most_at_once < size and not self.server.stopping.wait(0.02):
            pass
        self._send_json(reply("answer to a crowd"))

    def _redirect(self) -> None:
        self._send(b"", 307, location=f"http://127.0.0.1:{self.server.server_port}/elsewhere")

    def _date(self) -> None:
        self._error(429, "busy", retry_after=formatdate(time.time() + 2, usegmt=True))


_FAULTS: dict[str, Callable[[_Handler], None]] = {
    "busy": lambda to: to._error(429, "slow down"),
    "busy_second": lambda to: to._error(429, "slow down", retry_after="1"),
    "busy_date": _Handler._date,
    "busy_hour": lambda to: to._error(503, "maintenance", retry_after="3600"),
    "broken": lambda to: to._error(500, "out of memory"),
    "dropped": _Handler._drop,
    "dripping": _Handler._drip,
    "hanging": _Handler._hang,
    "slow": _Handler._slow,
    "slowly_cut_off": _Handler._slowly_cut_off,
    "crowd": _Handler._crowd,
    "redirect": _Handler._redirect,
    "echo_key": _Handler._echo_key,
    "payment": lambda to: to._error(402, "Insufficient Balance"),
    "method": lambda to: to._error(405, "not allowed"),
    "proxy": lambda to: to._error(407, "who are you"),
    "maintenance": lambda to: to._error(503, "back soon"),
    "bad_field": lambda to: to._error(400, "Unsupported parameter: 'max_tokens'"),
    "too_large": lambda to: to._error(413, "entity too large"),
    "overloaded": lambda to: to._send_json(
        reply(None, finish_reason="insufficient_system_resource")
    ),
    "aborted": lambda to: to._send_json(reply("half", finish_reason="abort")),
    "blank_beside_reasoning": lambda to: to._send_json(reply("", reasoning="hm")),
    "rot13": lambda to: to._send(
        json.dumps(reply("caf\u00e9"), ensure_ascii=False).encode(),
        content_type="application/json; charset=rot13",
    ),
    "rot13_error": lambda to: to._error(
        500, "out of memory", content_type="text/html; charset=utf-16"
    ),
    "not_utf8": lambda to: to._send(json.dumps(reply("x")).encode().replace(b'"x"', b'"\xff"')),
    "echo_escaped": _Handler._echo_escaped,
    "echo_escaped_twice": lambda to: to._echo_escaped(twice=True),
    "endless": _Handler._endless,
    "gzip": lambda to: to._gzip(json.dumps(reply("packed")).encode()),
    "half_gzip": lambda to: to._send(gzip.compress(b" " * 99)[:-9], content_encoding="gzip"),
    "brotli": lambda to: to._send(b"\x0b\x00", content_encoding="br"),
    "bomb": lambda to: to._gzip(b" " * (64 << 20)),
    "cookie": lambda to: to._send_json(reply("sweet"), set_cookie="who=you; Path=/"),
    "too_long": lambda to: to._error(400, "maximum context length is 4096 tokens"),
    "forbidden": lambda to: to._error(403, "no access"),
    "unknown": lambda to: to._error(404, "no such model"),
    "unprocessable": lambda to: to._error(422, "bad field"),
    "not_json": lambda to: to._send(b'{"choices": [{"mess'),
    "error_in_200": lambda to: to._error(200, "upstream failed"),
    "no_choices": lambda to: to._send_json(reply("x", choices=0)),
    "two_choices": lambda to: to._send_json(reply("x", choices=2)),
    "null": lambda to: to._send_json(reply(None)),
    "null_at_limit": lambda to: to._send_json(reply(None, finish_reason="length")),
    "cut_off": lambda to: to._send_json(reply('{"characteri', finish_reason="length")),
    "null_beside_reasoning": lambda to: to._send_json(reply(None, reasoning="hm")),
    "only_reasoning": lambda to: to._send_json(reply(None, reasoning="hm", finish_reason="length")),
    "reasoning": lambda to: to._send_json(reply("RAG", reasoning="hm")),
    "reasoning_content": lambda to: to._send_json(reply("RAG", reasoning_content="hm")),
    "tagged": lambda to: to._send_json(reply("<think>LC?</think>\nRAG")),
    "half_tagged": lambda to: to._send_json(reply("LC?</think>RAG")),
    "white_space": lambda to: to._send_json(reply("{}" + "\n" * 500, finish_reason="length")),
    "never_closed": lambda to: to._send_json(reply("<think>LC")),
    "unclosed": lambda to: to._send_json(reply("<think>LC", finish_reason="length")),
    "filtered": lambda to: to._send_json(reply(None, finish_reason="content_filter")),
    "refused": lambda to: to._send_json(reply(None, refusal="I can't")),
    "follows_schema": lambda to: to._send_json(reply('{"word": "quaggafrost"}')),
}
