"""A Hub on loopback with one repository or none, for the real client: it makes repositories, takes
large files apart from commits, commits in one step or not at all, and gives files back."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from huggingface_hub import RepoCard

from prerouter.recipe.hub import LICENCES

LARGE = (".safetensors", ".png", ".parquet")
CALLS = (
    ("create", re.compile(r"/api/repos/create")),
    ("validate", re.compile(r"/api/validate-yaml")),
    ("preupload", re.compile(r"/api/\w+s/[^/]+/[^/]+/preupload/main")),
    ("batch", re.compile(r"/(datasets/)?[^/]+/[^/]+\.git/info/lfs/objects/batch")),
    ("upload", re.compile(r"/info/lfs/upload/(?P<oid>[0-9a-f]{64})")),
    ("verify", re.compile(r"/info/lfs/verify")),
    ("commit", re.compile(r"/api/\w+s/[^/]+/[^/]+/commit/main")),
    ("tree", re.compile(r"/api/\w+s/[^/]+/[^/]+/tree/[^/]+")),
    ("info", re.compile(r"/api/\w+s/[^/]+/[^/]+(/revision/[^/]+)?")),
    ("resolve", re.compile(r"/(datasets/)?[^/]+/[^/]+/resolve/[^/]+/(?P<path>.+)")),
)


@dataclass
class Fault:
    """What happens to a call instead of an answer, `times` times. With `drop`, the connection ends
    in the middle of the body, with `after` once the work is done; with `slow`, the answer comes
    after so many seconds; with `page`, it is a page for people."""

    status: int = 0
    drop: bool = False
    page: bool = False
    slow: float = 0.0
    after: bool = False
    times: int = 1_000


class HubServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, files: dict[str, bytes] | None, private: bool, faults: Mapping[str, Fault]
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exists = files is not None
        self.files = files or {}
        self.private = private
        self.faults = dict(faults)
        self.token: str | None = None
        self.created: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self.commits = 0
        self.committed: list[list[str]] = []
        self.keys: set[str] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def head(self) -> str:
        return f"{self.commits:040x}"


@contextmanager
def running_hub(
    files: dict[str, bytes] | None = None,
    private: bool = False,
    faults: Mapping[str, Fault] | None = None,
) -> Iterator[HubServer]:
    """`files` are there before, where the repository is; `faults` go by the name of a call, `*` is
    every call."""
    with HubServer(files, private, faults or {}) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _git_sha(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _oid(path: str, content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if path.endswith(LARGE) else _git_sha(content)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer leaves in one packet, at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: HubServer

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.keys.add(self.headers.get("authorization", ""))
        call, match = next(
            ((name, found) for name, form in CALLS if (found := form.fullmatch(path))),
            ("unknown", None),
        )
        hub.calls.append(call)
        fault = hub.faults.get(call) or hub.faults.get("*")
        if fault and fault.times > 0 and not fault.after:
            fault.times -= 1
            if self._fail(fault):
                return
        body = self._body()
        key = self.headers.get("authorization", "")
        if hub.token and call not in ("upload", "resolve") and key != f"Bearer {hub.token}":
            why = "Invalid credentials in Authorization header"
            self._send({"error": f"{why}: {key}"}, 401, x_error_message=why)
        elif match is None:
            self._send({"error": f"unknown {self.path}"}, 404)
        else:
            getattr(self, f"_{call}")(body, **match.groupdict())

    def _fail(self, fault: Fault) -> bool:
        time.sleep(fault.slow)
        if fault.drop:
            # Some of the body was taken, and then the line is dead.
            self.rfile.read(min(16, int(self.headers.get("content-length") or 0)))
            self._hang_up()
        elif fault.page:
            self._body()
            self._send_bytes(b"<html>Please log in</html>", 200)
        elif fault.status:
            self._body()
            key = self.headers.get("authorization", "")
            self._send({"error": f"no luck today with {key}"}, fault.status)
        return fault.drop or fault.page or bool(fault.status)

    def _is_lost(self, call: str) -> bool:
        """Whether the line dies once the work is done."""
        fault = self.server.faults.get(call)
        if not fault or not fault.after or fault.times <= 0:
            return False
        fault.times -= 1
        self._hang_up()
        return True

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _create(self, body: bytes) -> None:
        if self.server.exists:
            self._send({"error": "You already created this repo"}, 409)
            return
        self.server.created.append(json.loads(body))
        self.server.exists = True
        self.server.files = {".gitattributes": b"*.safetensors filter=lfs\n"}
        if not self._is_lost("create"):
            self._send({"url": f"{self.server.endpoint}/someone/router"})

    def _validate(self, body: bytes) -> None:
        head = json.loads(body)["content"].removeprefix("---\n").partition("\n---\n")[0]
        errors, noted = [], []
        try:
            found = yaml.safe_load(head)
        except yaml.YAMLError as error:
            errors.append({"message": str(error)})
        else:
            told = found.get("license") if isinstance(found, dict) else None
            if told is None:
                noted.append({"message": "empty or missing license"})
            elif told not in LICENCES:
                errors.append({"message": f'"license" must be one of [{told} is not]'})
        self._send({"errors": errors, "warnings": noted}, 400 if errors else 200)

    def _preupload(self, body: bytes) -> None:
        told = []
        for file in json.loads(body)["files"]:
            path = file["path"]
            there = self.server.files.get(path)
            told.append(
                {
                    "path": path,
                    "uploadMode": "lfs" if path.endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                    "oid": None if there is None else _oid(path, there),
                }
            )
        self._send({"files": told})

    def _batch(self, body: bytes) -> None:
        objects = []
        for each in json.loads(body)["objects"]:
            told = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.server.blobs:
                base = f"{self.server.endpoint}/info/lfs"
                told["actions"] = {
                    "upload": {"href": f"{base}/upload/{each['oid']}"},
                    "verify": {"href": f"{base}/verify"},
                }
            objects.append(told)
        self._send({"transfer": "basic", "objects": objects})

    def _upload(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            self._send({"error": "other bytes than were announced"}, 400)
            return
        self.server.blobs[oid] = body
        self._send({})

    def _verify(self, body: bytes) -> None:
        told = json.loads(body)
        held = self.server.blobs.get(told["oid"])
        whole = held is not None and len(held) == told["size"]
        self._send({}, 200 if whole else 404)

    def _commit(self, body: bytes) -> None:
        hub = self.server
        lines = [json.loads(line) for line in body.splitlines()]
        parent = lines[0]["value"].get("parentCommit")
        if parent not in (None, hub.head):
            self._send({"error": "The branch has moved on"}, 412)
            return
        files = dict(hub.files)
        for line in lines[1:]:
            path = line["value"]["path"]
            if line["key"] == "file":
                files[path] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "lfsFile" and line["value"]["oid"] in hub.blobs:
                files[path] = hub.blobs[line["value"]["oid"]]
            elif line["key"] == "deletedFile" and path in files:
                del files[path]
            else:
                self._send({"error": f"{line['key']} {path} is of nothing that is here"}, 400)
                return
        hub.files = files
        hub.commits += 1
        hub.committed.append([line["value"]["path"] for line in lines[1:]])
        if self._is_lost("commit"):
            return
        kind = "datasets/" if "/datasets/" in self.path else ""
        address = f"{hub.endpoint}/{kind}someone/router/commit/{hub.head}"
        self._send({"success": True, "commitOid": hub.head, "commitUrl": address})

    def _info(self, body: bytes) -> None:
        hub = self.server
        if not hub.exists:
            self._send({"error": "Repository not found"}, 404, x_error_code="RepoNotFound")
            return
        card = hub.files.get("README.md", b"").decode()
        told = {
            "id": "someone/router",
            "sha": hub.head,
            "private": hub.private,
            "siblings": [{"rfilename": path} for path in hub.files],
        }
        # The real one gives no cardData where a card has no head.
        head = RepoCard(card, ignore_metadata_errors=True).data.to_dict() if card else {}
        self._send(told | ({"cardData": head} if head else {}))

    def _tree(self, body: bytes) -> None:
        entries = []
        for path, content in self.server.files.items():
            entry = {"type": "file", "path": path, "oid": _git_sha(content), "size": len(content)}
            if path.endswith(LARGE):
                oid = _oid(path, content)
                entry["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 130}
            entries.append(entry)
        self._send(entries)

    def _resolve(self, body: bytes, path: str) -> None:
        content = self.server.files.get(path)
        if content is None:
            self._send({"error": "Entry not found"}, 404, x_error_code="EntryNotFound")
            return
        self._send_bytes(
            content, 200, etag=f'"{_oid(path, content)}"', x_repo_commit=self.server.head
        )

    def _send(self, value: object, status: int = 200, **headers: str) -> None:
        self._send_bytes(json.dumps(value).encode(), status, **headers)

    def _send_bytes(self, content: bytes, status: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
