"""LaRA's documents: found by name, read once, described for the router."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

from prerouter.core.errors import InputError
from prerouter.core.records import DocumentFile
from prerouter.sources.lara_records import Gathered, Question
from prerouter.sources.problems import Problem, RejectReason
from prerouter.sources.text_files import head_of, read_document

_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*?)[ \t]*$", re.MULTILINE)
_FILING_YEAR = re.compile(r"^\d{4}-")
_FILING_SUFFIX = re.compile(r"-j$")
_LONGEST_TITLE = 300
_PAPER = re.compile(r"^<paper \d+>", re.MULTILINE)
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
_SEPARATORS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def list_documents(folder: Path, root: Path) -> dict[str, Path]:
    """The folder's files by name in NFC (some systems store names decomposed), none outside root.

    A name out of a row is only ever looked up here, so that no row can name another path.
    """
    if not folder.is_dir():
        return {}
    inside = root.resolve()
    return {
        unicodedata.normalize("NFC", path.name): path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.resolve().is_relative_to(inside)
    }


def add_document(
    root: Path, path: Path, document_id: str, gathered: Gathered, sha256: str | None = None
) -> str | None:
    """Read a document's text into `gathered`; None where it can't be read or is not `sha256`."""
    place = str(path)
    try:
        text = read_document(path)
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not UTF-8"
        problem = Problem(RejectReason.DOCUMENT_UNREADABLE, place, what, "a UTF-8 text")
        gathered.problems.refuse(problem, key=document_id)
        return None
    except OSError as error:
        raise InputError(place, f"can't be read: {error.strerror}") from None
    if sha256 is not None and text.sha256 != sha256:
        what = "is not the document that documents.jsonl describes"
        problem = Problem(RejectReason.DOCUMENT_ALTERED, place, what, "the same SHA-256")
        gathered.problems.refuse(problem, key=document_id)
        return None
    gathered.files.append(
        DocumentFile(
            document_id=document_id,
            path=Path(os.path.relpath(path, root)).as_posix(),
            sha256=text.sha256,
            characters=len(text.body),
        )
    )
    gathered.bodies[document_id] = text.body
    _count_oddities(text.body, text.byte_order_mark, gathered)
    return text.body


def _count_oddities(body: str, byte_order_mark: bool, gathered: Gathered) -> None:
    counts = gathered.counts
    counts["documents_with_byte_order_mark"] += byte_order_mark
    counts["documents_not_in_nfc"] += not unicodedata.is_normalized("NFC", body)
    counts["no_break_spaces"] += body.count("\xa0")
    counts["zero_width_characters"] += len(_ZERO_WIDTH.findall(body))
    counts["unusual_line_separators"] += len(_SEPARATORS.findall(body))
    counts["bundles_of_papers"] += len(_PAPER.findall(body)) > 1


def title_of(question: Question, body: str | None) -> str | None:
    """A paper's first heading (a bundle is known by its first paper); else the file's name without
    the year before and the `-j` behind that filings have."""
    if question.stratum.type == "paper":
        heading = _HEADING.search(body) if body else None
        return head_of(heading.group(1), _LONGEST_TITLE) if heading else None
    stem = question.file.rsplit(".", 1)[0] if "." in question.file else question.file
    if question.stratum.type == "financial":
        stem = _FILING_SUFFIX.sub("", _FILING_YEAR.sub("", stem))
    return stem or None
