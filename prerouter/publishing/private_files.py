"""What a file of a folder says, piece by piece, whatever its form."""

from __future__ import annotations

import codecs
import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_PNG = b"\x89PNG\r\n\x1a\n"
_PICTURE_ITSELF = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_VOCABULARIES = frozenset({"tokenizer.json", "vocab.json", "vocab.txt", "merges.txt"})
# The longer ones first: one begins as another does.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Piece(NamedTuple):
    """A text of a file. One that is `quoted` is strangers', or a vocabulary: of it, only keys and
    what this machine knows are to be looked for. In one that is `escaped`, backslashes are
    JSON's."""

    text: str
    quoted: bool = False
    escaped: bool = False


def texts_of(path: Path) -> Iterator[Piece]:
    """What a file says, piece by piece."""
    if path.suffix == ".safetensors":
        yield from _of_json(_header(path))
    elif path.suffix == ".parquet":
        for text in _columns(path):
            yield Piece(text, quoted=True)
    elif path.name in _VOCABULARIES or path.suffix == ".model":
        for text in _decoded(path.read_bytes()):
            yield Piece(text, quoted=True)
        if path.name == "tokenizer.json":
            yield Piece(_without_vocabulary(path))
    else:
        data = path.read_bytes()
        if data.startswith(_PNG):
            yield Piece(_notes(data))
            return
        for text in _decoded(data):
            if path.suffix == ".json":
                yield from _of_json(text)
            else:
                yield Piece(text)


def _of_json(text: str) -> Iterator[Piece]:
    """As its reader sees it, since a slash may be escaped, and as it is written."""
    yield Piece("\n".join(_strings(_json(text))))
    yield Piece(text, escaped=True)


def _decoded(data: bytes) -> Iterator[str]:
    """As UTF-8; else as its byte order mark says, and byte by byte, since that may lie. Without the
    zeros by which UTF-16 hides what is ASCII."""
    try:
        yield data.decode("utf-8-sig").replace("\0", "")
    except UnicodeDecodeError:
        for mark, encoding in _MARKS:
            if data.startswith(mark):
                yield data.decode(encoding, errors="replace")
                break
        yield data.decode("latin-1").replace("\0", "")


def _header(path: Path) -> str:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return file.read(min(length, 100_000_000)).decode("utf-8", errors="replace")


def _columns(path: Path) -> Iterator[str]:
    from pyarrow import types
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path)
    yield "\n".join(
        part.decode("utf-8", errors="replace")
        for entry in (file.schema_arrow.metadata or {}).items()
        for part in entry
    )
    for batch in file.iter_batches(batch_size=500):
        for column in batch.columns:
            kind = column.type
            if any(
                is_a(kind) for is_a in (types.is_nested, types.is_string, types.is_large_string)
            ):
                yield "\n".join(_strings(column.to_pylist()))


def _without_vocabulary(path: Path) -> str:
    data = _json(path.read_text("utf-8", errors="replace"))
    if isinstance(data, dict) and isinstance(data.get("model"), dict):
        data["model"] = {k: v for k, v in data["model"].items() if k not in ("vocab", "merges")}
    return "\n".join(_strings(data))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _strings(data: Any) -> Iterator[str]:
    pending = [data]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            pending.extend(node)
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _notes(png: bytes) -> str:
    """The chunks of a PNG that hold no pixels, packed ones unpacked, and what follows its end."""
    found, place = [], len(_PNG)
    while place + 8 <= len(png):
        length, kind = int.from_bytes(png[place : place + 4], "big"), png[place + 4 : place + 8]
        if kind not in _PICTURE_ITSELF:
            note = png[place + 8 : place + 8 + length]
            found.append(note.decode("latin-1"))
            packed = _packed(kind, note)
            if packed:
                with contextlib.suppress(zlib.error):
                    unpacked = zlib.decompressobj().decompress(packed, 1_000_000)
                    found.append(unpacked.decode("utf-8", errors="replace"))
        place += 12 + length
        if kind == b"IEND":
            found.append(png[place:].decode("latin-1"))
            break
    return "\n".join(found)


def _packed(kind: bytes, note: bytes) -> bytes:
    """The deflated text of a note, or nothing (PNG specification, 11.3.4)."""
    _, _, after = note.partition(b"\0")
    if kind == b"zTXt":
        return after[1:]
    if kind == b"iTXt" and after[:1] == b"\1":
        # Behind flag and method stand the language and the translated keyword.
        return b"\0".join(after[2:].split(b"\0")[2:])
    return b""
