"""The documents that rows of a table name: read inside one folder, one profile for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from prerouter.core.records import DocumentFile
from prerouter.sources.problems import RejectReason
from prerouter.sources.table_cells import Cells
from prerouter.sources.text_files import DocumentText, read_document


@dataclass(frozen=True)
class FoundDocument:
    """A document's path below the folder, and its text."""

    path: str
    text: DocumentText


@dataclass
class DocumentFolder:
    """Reads documents below `root`, each once. No path of a row leads out of it, links included."""

    root: Path
    read: dict[Path, DocumentText] = field(default_factory=dict)

    def find(self, cells: Cells) -> FoundDocument | None:
        """The document that the row's `document_path` names; None for none, or a bad one."""
        name = cells.filled("document_path")
        if name is None:
            return None

        def refuse(reason: RejectReason, what: str, accepted: str, advice: str = "") -> None:
            cells.refuse("document_path", reason, f"{name!r} {what}", accepted, advice)

        windows = PureWindowsPath(name)
        if PurePosixPath(name).is_absolute() or windows.drive or windows.root:
            refuse(RejectReason.DOCUMENT_OUTSIDE, "is absolute", f"a path below {self.root}")
            return None
        try:
            root = self.root.resolve()
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                accepted = f"a path below {self.root}"
                refuse(RejectReason.DOCUMENT_OUTSIDE, "leads out of the folder", accepted)
                return None
            if path not in self.read:
                self.read[path] = read_document(path)
        except UnicodeDecodeError as error:
            what = f"is not UTF-8 at byte {error.start}"
            refuse(RejectReason.DOCUMENT_UNREADABLE, what, "a UTF-8 text")
            return None
        except (OSError, ValueError) as error:
            detail = error.strerror if isinstance(error, OSError) and error.strerror else error
            what = f"can't be read: {detail}"
            advice = "set cases.documents to the folder that the paths start from"
            refuse(RejectReason.DOCUMENT_MISSING, what, f"a file below {self.root}", advice)
            return None
        return FoundDocument(path.relative_to(root).as_posix(), self.read[path])


@dataclass
class Ledger:
    """What rows agreed on about one thing each (a question, a document), and where it was said."""

    known: dict[str, dict[str, tuple[Any, str]]] = field(default_factory=dict)

    def conflicts(self, key: str, said: Mapping[str, Any]) -> list[str]:
        """What contradicts an earlier row; something not said contradicts nothing."""
        before = self.known.get(key, {})
        return [
            f"{name} is not the one at {before[name][1]}"
            for name, value in said.items()
            if value is not None and name in before and before[name][0] != value
        ]

    def add(self, key: str, said: Mapping[str, Any], place: str) -> None:
        entry = self.known.setdefault(key, {})
        for name, value in said.items():
            if value is not None:
                entry.setdefault(name, (value, place))

    def get(self, key: str, name: str) -> Any:
        value = self.known.get(key, {}).get(name)
        return None if value is None else value[0]


def document_file(document_id: str, document: FoundDocument) -> DocumentFile:
    return DocumentFile(
        document_id=document_id,
        path=document.path,
        sha256=document.text.sha256,
        characters=len(document.text.body),
    )
