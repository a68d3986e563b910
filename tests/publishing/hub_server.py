"""A Hub on loopback with one data set or none: what is created, and the files that each commit
leaves."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from huggingface_hub import RepoCard


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: dict[str, bytes] | None, refuse: int | None, private: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exists = files is not None
        self.files = files or {}
        self.private = private
        self.refuse = refuse
        self.created: list[dict[str, Any]] = []
        self.commits = 0
        self.keys: set[str] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_hub(
    files: dict[str, bytes] | None = None, refuse: int | None = None, private: bool = False
) -> Iterator[HubServer]:
    """`files` are there before, where the data set is; with `refuse`, every request gets that
    status."""
    with HubServer(files, refuse, private) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["content-length"])))

    def _answer(self, body: bytes) -> None:
        self.server.keys.add(self.headers.get("authorization", ""))
        if self.server.refuse:
            key = self.headers.get("authorization", "")
            self._send({"error": f"no such key: {key}"}, self.server.refuse)
        elif self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            self.server.exists = True
            self._send({"url": f"{self.server.endpoint}/datasets/someone/traces"})
        elif self.path == "/api/validate-yaml":
            self._send({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            paths = [file["path"] for file in json.loads(body)["files"]]
            told = [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]
            self._send({"files": told})
        elif "/tree/" in self.path:
            entries = [
                {"type": "file", "path": path, "oid": "0" * 40, "size": len(content)}
                for path, content in self.server.files.items()
            ]
            self._send(entries)
        elif "/commit/" in self.path:
            self._commit([json.loads(line) for line in body.splitlines()])
        elif re.fullmatch(r"/api/datasets/[^/]+/[^/]+(/revision/.+)?", self.path):
            self._tell()
        else:
            self._send({"error": f"unknown {self.path}"}, 404)

    def _tell(self) -> None:
        if not self.server.exists:
            self._send({"error": "Repository not found"}, 404, x_error_code="RepoNotFound")
            return
        card = self.server.files.get("README.md", b"").decode()
        told = {
            "id": "someone/traces",
            "sha": "0" * 40,
            "private": self.server.private,
            "siblings": [{"rfilename": path} for path in self.server.files],
        }
        # The real one gives no cardData where a card has no head.
        head = RepoCard(card, ignore_metadata_errors=True).data.to_dict() if card else {}
        self._send(told | ({"cardData": head} if head else {}))

    def _commit(self, lines: list[dict[str, Any]]) -> None:
        self.server.commits += 1
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del self.server.files[value["path"]]
        address = f"{self.server.endpoint}/datasets/someone/traces/commit/1"
        self._send({"success": True, "commitOid": "1" * 40, "commitUrl": address})

    def _send(self, value: object, status: int = 200, **headers: str) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(content)
