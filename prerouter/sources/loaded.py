"""What every source yields: records only, with what was refused and what was seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from prerouter.core.records import (
    Answer,
    DocumentFile,
    PairedScore,
    Reference,
    Reject,
    RoutingCase,
)


@dataclass
class Loaded:
    """A source, read. `counts` tells what the files did, by name, for the manifest.

    `answers` and `scores` hold what the source brings along (predictions, paired scores);
    `bodies` the text of those documents that could be read, by document id, so that near
    duplicates can be found without reading twice.
    """

    cases: list[RoutingCase] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    documents: list[DocumentFile] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    scores: list[PairedScore] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
