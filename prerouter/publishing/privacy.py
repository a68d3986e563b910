"""What must not go along with a push: paths of machines, keys, e-mail addresses, texts of cases.

Each file is read for what it says. Of weights that is their header; of a tokenizer all but its
vocabulary, whose words are no sentence of anybody's; of a picture its notes; of Parquet its texts.
"""

from __future__ import annotations

import contextlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prerouter.core.errors import CheckpointError, CombinedError, PrerouterError

CASE_TEXT = "a text of a case"
# Shorter texts ("What is the revenue?") stand in many places by chance. In bytes, since eight
# Chinese characters say as much as four English words.
CASE_TEXT_BYTES = 24
_BEGINNING = 80
# A shorter value, such as `disabled`, is a word that stands anywhere.
_MIN_SECRET = 12
_SHOWN_ERRORS = 10
_SECRET_NAME = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD)$")
_PNG = b"\x89PNG\r\n\x1a\n"
_PICTURE_ITSELF = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})


@dataclass(frozen=True)
class Pattern:
    """Something private by its form. `anchors` are literal: without one of them nothing matches,
    which makes a long text quick to pass over."""

    kind: str
    anchors: tuple[str, ...]
    expression: re.Pattern[str]
    secret: bool = False


PATHS = (
    Pattern(
        "a path of a machine",
        ("/home/", "/Users/", "/root/", "/tmp/", "/var/folders/", "file:///"),  # noqa: S108
        # Behind a letter, a slash is a web address's.
        re.compile(
            r"(?:file://|(?<![\w.-]))/(?:home|Users|root|tmp|var/folders)/[^\s\"'`<>)\]\\]+"
            r"|file:///[^\s\"'`<>)\]]+"
        ),
    ),
    Pattern(
        "a path of a machine",
        (":\\",),
        re.compile(r"\b[A-Za-z]:\\+(?:Users|Documents)\b[^\s\"'<>]*"),
    ),
)
KEYS = (
    Pattern("a Hugging Face token", ("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{20,}"), True),
    Pattern("an API key", ("sk-",), re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"), True),
    Pattern(
        "an AWS access key",
        ("AKIA", "ASIA"),
        re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
        True,
    ),
    Pattern(
        "a GitHub token",
        ("ghp_", "gho_", "ghs_", "github_pat_"),
        re.compile(r"\b(?:gh[pos]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
        True,
    ),
    Pattern("a GitLab token", ("glpat-",), re.compile(r"\bglpat-[\w-]{20,}"), True),
    Pattern("a Google API key", ("AIza",), re.compile(r"\bAIza[\w-]{35}"), True),
    Pattern("a Slack token", ("xox",), re.compile(r"\bxox[abprs]-[\w-]{10,}"), True),
    Pattern(
        "a private key", ("PRIVATE KEY",), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), True
    ),
    Pattern(
        "a JSON Web Token",
        ("eyJ",),
        re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
        True,
    ),
    Pattern(
        "an address with a password",
        ("://",),
        re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']+:[^\s/@\"']+@"),
        True,
    ),
)
MAIL = Pattern(
    "an e-mail address", ("@",), re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
)
# Of examples (RFC 2606), of nobody, and of git's own way to write an address.
_NO_MAIL = re.compile(r"@(?:example\.\w+|(?:\w+\.)?noreply\.\S+)$|^git@", re.IGNORECASE)


@dataclass(frozen=True)
class Private:
    """What this machine and this run know: folders, values of keys, and texts of cases."""

    places: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    case_texts: tuple[str, ...] = ()


def private_here(
    environment: Mapping[str, str], folders: Iterable[Path], case_texts: Iterable[str] = ()
) -> Private:
    """The keys of `environment`, `folders` and this machine's own by their whole path, and the
    `case_texts` that are long enough to be known again."""
    places = {str(path.resolve()) for path in (Path.home(), *folders)}
    secrets = {
        value.strip()
        for name, value in environment.items()
        if _SECRET_NAME.search(name.upper()) and len(value.strip()) >= _MIN_SECRET
    }
    # The beginning gives a text away as well as the whole of it.
    texts = {_words(text)[:_BEGINNING] for text in case_texts}
    return Private(
        # One name such as /root stands for no folder of anybody's; PATHS finds what lies in it.
        places=tuple(sorted(place for place in places if len(Path(place).parts) > 2)),
        secrets=tuple(sorted(secrets)),
        case_texts=tuple(sorted(text for text in texts if len(text.encode()) >= CASE_TEXT_BYTES)),
    )


def check_private(folder: Path, files: Sequence[str], private: Private) -> None:
    """Raises a CombinedError with a line for each private thing in `files` of `folder`: the file
    and what it is, a secret masked. Ten at most are told one by one.

    Documents that a data set quotes may hold anybody's addresses and paths: of Parquet files, keys
    and this machine's own folders are looked for, and no more.
    """
    errors: list[PrerouterError] = []
    for name in files:
        kinds: dict[str, str] = {}
        for text, quoted in _texts(folder / name):
            for kind, found in _findings(text, quoted, private):
                kinds.setdefault(kind, found)
        errors += [_error(f"{folder}/{name}", kind, shown) for kind, shown in kinds.items()]
    if len(errors) > _SHOWN_ERRORS:
        rest = len(errors) - _SHOWN_ERRORS
        more = CheckpointError(str(folder), f"holds {rest} more of the kind in other files")
        errors = [*errors[:_SHOWN_ERRORS], more]
    if errors:
        raise CombinedError(errors)


def _error(place: str, kind: str, shown: str) -> CheckpointError:
    way_on = "take it out of the recipe or of what the stage read, and run the stage again"
    if kind == CASE_TEXT:
        way_on = "take it out; if it is meant to be public, set publish.raw_text: true"
    return CheckpointError(place, f"holds {kind}: {shown}", "nothing private", way_on)


def _findings(text: str, quoted: bool, private: Private) -> Iterator[tuple[str, str]]:
    for place in private.places:
        if place in text:
            yield "a path of this machine", place
    for secret in private.secrets:
        if secret in text:
            yield "a key of this environment", _masked(secret)
    for pattern in KEYS if quoted else (*KEYS, *PATHS, MAIL):
        if not any(anchor in text for anchor in pattern.anchors):
            continue
        for match in pattern.expression.finditer(text):
            found = match.group()
            if pattern is MAIL and _NO_MAIL.search(found):
                continue
            yield pattern.kind, _masked(found) if pattern.secret else found[:120]
            break
    if not quoted and private.case_texts:
        words = _words(html.unescape(text))
        for known in private.case_texts:
            if known in words:
                yield CASE_TEXT, f"{known[:60]}…"
                break


def _masked(secret: str) -> str:
    """Enough to find it by, and too little to use it."""
    return f"{secret[:4]}… ({len(secret)} characters)"


def _words(text: str) -> str:
    """A text by its words alone: neither escapes nor line breaks hide it."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def _texts(path: Path) -> Iterator[tuple[str, bool]]:
    """What a file says, piece by piece; True beside a piece that quotes strangers."""
    if path.suffix == ".safetensors":
        yield _header(path), False
    elif path.suffix == ".parquet":
        for text in _columns(path):
            yield text, True
    elif path.name in ("tokenizer.json", "vocab.json"):
        yield _without_vocabulary(path), False
    elif path.name == "merges.txt":
        return
    else:
        data = path.read_bytes()
        if data.startswith(_PNG):
            yield _notes(data), False
            return
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            # Whatever form it has, what is known here is told by its bytes.
            yield data.decode("latin-1"), True
            return
        if path.suffix == ".json":
            # As its reader sees it: a slash may be escaped.
            yield "\n".join(_strings(_json(text))), False
        yield text, False


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
    if path.name == "vocab.json":
        return ""
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
    """The chunks of a PNG that hold no pixels, packed ones unpacked."""
    found, place = [], len(_PNG)
    while place + 8 <= len(png):
        length, kind = int.from_bytes(png[place : place + 4], "big"), png[place + 4 : place + 8]
        if kind not in _PICTURE_ITSELF:
            note = png[place + 8 : place + 8 + length]
            found.append(note.decode("latin-1"))
            _, _, packed = note.partition(b"\0")
            if kind == b"zTXt" and packed:
                with contextlib.suppress(zlib.error):
                    unpacked = zlib.decompressobj().decompress(packed[1:], 1_000_000)
                    found.append(unpacked.decode("latin-1"))
        place += 12 + length
    return "\n".join(found)
