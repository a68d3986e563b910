"""Where in its document the evidence of a row stands."""

from __future__ import annotations

import re
from dataclasses import replace

from prerouter.core.records import Evidence
from prerouter.sources.problems import RejectReason
from prerouter.sources.table_cells import Cells, shown
from prerouter.sources.table_rows import Draft


def locate(text: str, body: str) -> Evidence | None:
    """The passage of `body` that `text` quotes: as it stands, else with other white space.

    None where it isn't there. A passage that stands at several places has no span, since whoever
    reads one of them has read it.
    """
    start = body.find(text)
    if start >= 0:
        end = start + len(text)
    else:
        match = re.search(r"\s+".join(map(re.escape, text.split())), body)
        if match is None:
            return None
        start, end = match.span()
    passage = body[start:end]
    if body.find(passage, start + 1) >= 0:
        return Evidence(text=passage)
    return Evidence(text=passage, start=start, end=end)


def with_evidence(draft: Draft, cells: Cells, body: str | None) -> Draft:
    """The draft with its evidence looked up in the document; without a document, as it stands."""
    found = []
    for text in draft.evidence:
        piece = Evidence(text=text) if body is None else locate(text, body)
        if piece is None:
            cells.refuse(
                "evidence",
                RejectReason.EVIDENCE_NOT_FOUND,
                f"{shown(text)} does not stand in the document",
                "a passage of the document, word for word; white space may differ",
                "copy it from the document's text",
            )
        else:
            found.append(piece)
    return replace(draft, reference=draft.reference | {"evidence": tuple(found)})
