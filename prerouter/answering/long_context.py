"""The route LC: the whole document in the prompt, its middle cut out where it passes the window."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.answering.passages import DocumentBody
from prerouter.answering.prompted import Prompted
from prerouter.answering.window import Window
from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import Route, RoutingCase, Span
from prerouter.prompts.answer import render_lc
from prerouter.prompts.encoding import encode_json
from prerouter.retrieval.chunking import TokenStarts


class LongText:
    """A text with its tokens found once, to be shown whole or by its two ends."""

    def __init__(self, text: str, token_starts: TokenStarts) -> None:
        self.text = text
        self._token_starts = token_starts
        self._body = DocumentBody(text, token_starts)
        self._fitted: dict[int | None, tuple[tuple[Span, ...], bool]] = {}

    def fit(self, room: int | None) -> tuple[tuple[Span, ...], bool]:
        """What of the text takes at most `room` tokens in a prompt, where it is JSON: all of it, or
        its beginning and its end. Returns the spans and whether anything was cut out.
        """
        if room not in self._fitted:
            self._fitted[room] = self._fit(room)
        return self._fitted[room]

    def _fit(self, room: int | None) -> tuple[tuple[Span, ...], bool]:
        budget = room
        while True:
            spans, cut = self._body.long_context(budget)
            if room is None or budget is None:
                return spans, cut
            taken = sum(
                len(self._token_starts(encode_json(self.text[span.start : span.end])))
                for span in spans
            )
            if taken <= room:
                return spans, cut
            if budget == 0:
                # No token begins in the text, and still there is more of it than fits.
                return (), True
            # As JSON a text has more tokens than by itself; whole, it may be any length.
            budget = min(budget, self._body.count(spans)) * room // taken


def lc_prompt(
    case: RoutingCase, document: LongText, window: Window, choices: Sequence[str] = ()
) -> Prompted:
    """The case's question over the whole document, or over as much of its two ends as fits."""
    if not document.text.strip():
        return Prompted(case, Route.LC, None)
    bare = render_lc(case, ("", ""), choices)
    spans, cut = document.fit(window.room(case.answer_model, bare))
    pieces = [document.text[span.start : span.end] for span in spans]
    return Prompted(
        case, Route.LC, GenerationRequest(render_lc(case, pieces, choices)), document_cut=cut
    )
