"""Reading what strangers wrote: documents, JSON lines, and the head that a router sees."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import re
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prerouter.core.errors import InputError
from prerouter.core.records import DocumentFile
from prerouter.sources.problems import Problem, RejectReason

_INVISIBLE = re.compile(
    # Format characters (zero-width, bidirectional, byte order mark, soft hyphen) and controls
    # other than white space.
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]"
)

# Characters per cl100k token over the 101 documents of LaRA whose token counts are published with
# its compact form; a test measures them again.
CHARACTERS_PER_TOKEN: dict[str, float] = {"novel": 4.323, "financial": 5.102, "paper": 3.759}
CHARACTERS_PER_TOKEN_POOLED = 4.280

# No document has more tokens, and no model a longer window.
HIGHEST_COUNT = 10**9


@dataclass(frozen=True)
class DocumentText:
    """A document's text, without byte order mark, and the SHA-256 of its file's bytes."""

    body: str
    sha256: str
    byte_order_mark: bool


def read_document(path: Path) -> DocumentText:
    """Read a UTF-8 document. Raises OSError or UnicodeDecodeError as they come."""
    data = path.read_bytes()
    return DocumentText(
        body=data.decode("utf-8-sig"),
        sha256=hashlib.sha256(data).hexdigest(),
        byte_order_mark=data.startswith(codecs.BOM_UTF8),
    )


def body_of(root: Path, file: DocumentFile) -> str:
    """A document's body. Raises InputError where it is not the one that the cases were made of."""
    path = root / file.path
    try:
        text = read_document(path)
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        # What the cases were made of was UTF-8.
        text = None
    if text is None or text.sha256 != file.sha256:
        raise InputError(
            str(path),
            "was changed since the cases were made",
            next_step="run `prerouter cases` again with --force",
        )
    return text.body


def without_invisible(text: str) -> str:
    return _INVISIBLE.sub("", text)


def head_of(text: str, characters: int) -> str | None:
    """The first `characters` of a text as a router sees it; None where there are none.

    Invisible characters are taken out, every kind of white space and line separator is folded to
    one space, and the rest is in NFC, so that two copies of a document have one head.
    """
    visible = unicodedata.normalize("NFC", " ".join(without_invisible(text).split()))
    return visible[:characters].rstrip() or None


def estimate_tokens(characters: int, document_type: str | None = None) -> int:
    """About how many cl100k tokens so many characters are; no tokenizer is needed.

    A plain ratio by document type (pooled for a type not known). On LaRA's own documents it is off
    by 3% (novels) to 6% (filings) on average and by 16% at most; other tokenizers differ more.
    """
    ratio = CHARACTERS_PER_TOKEN.get(document_type or "", CHARACTERS_PER_TOKEN_POOLED)
    return round(characters / ratio)


@dataclass(frozen=True)
class JsonLine:
    """One line of a JSONL file: its place, its object or what is wrong with it, its text."""

    place: str
    value: dict[str, Any] | None
    problem: Problem | None
    raw: str
    ended: bool


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """The lines of a JSONL file (gzip where its name ends in .gz), blank lines left out.

    Lines end at a line feed only: JSON text may hold other line separators. Raises InputError where
    the file itself can't be read; a bad line is yielded with its problem.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parse(line, f"{path}:{number}", first=number == 1)
    except (OSError, EOFError, zlib.error) as error:
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(
            str(path), f"can't be read: {detail}", next_step="check the file"
        ) from None


def _parse(line: bytes, place: str, *, first: bool) -> JsonLine:
    ended = line.endswith(b"\n")
    shown = line.decode("utf-8", "replace").strip()

    def bad(reason: RejectReason, what: str, accepted: str) -> JsonLine:
        problem = Problem(reason, place, what, accepted, "mend the line or leave it out")
        return JsonLine(place, None, problem, shown, ended)

    try:
        text = line.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as error:
        return bad(
            RejectReason.INVALID_UTF8,
            f"byte {error.start} of the line (0x{line[error.start]:02x}) is not UTF-8",
            "UTF-8 text",
        )
    try:
        value = json.loads(text)
        # An escaped half of a surrogate pair is JSON, yet no text that could be written again.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return bad(RejectReason.INVALID_UTF8, "holds half of a surrogate pair", "Unicode text")
    except (ValueError, RecursionError) as error:
        return bad(RejectReason.UNREADABLE_LINE, f"is not JSON: {error}", "one JSON object a line")
    if not isinstance(value, dict):
        return bad(
            RejectReason.UNREADABLE_LINE,
            f"is a JSON {type(value).__name__}, not an object",
            "one JSON object a line",
        )
    return JsonLine(place, value, None, shown, ended)
