"""Token ids of many prompts that share long pieces: each piece is encoded once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Pre-tokenizers that treat a piece alike wherever in the text it stands. Metaspace does not: it can
# mark the beginning of the text alone.
_PLACELESS = frozenset({"Sequence", "Split", "ByteLevel", "Digits"})


class PieceTokenizer:
    """Encodes what stands between special tokens apart, and a piece that comes again not again.

    The ids are those of the whole texts: a tokenizer cuts a text at its special tokens before
    anything else, and never joins what they part. Where a special token takes white space of its
    neighbours along, or place matters to the pre-tokenizer, whole texts are encoded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = _cuts(tokenizer)
        self._known: dict[str, list[int]] = {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, without special tokens other than its own."""
        split = [self._special.split(text) if self._special else [text] for text in texts]
        pieces = dict.fromkeys(piece for parts in split for piece in parts if piece)
        new = [piece for piece in pieces if piece not in self._known]
        encoded = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        ids = {piece: self._known.get(piece, []) for piece in pieces}
        ids.update(zip(new, (encoding.ids for encoding in encoded), strict=True))
        # What is shared stands in every batch; the rest would only pile up.
        self._known = ids
        return [[i for piece in parts if piece for i in ids[piece]] for parts in split]


def _cuts(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """The special tokens that a text may be cut at, the longest first; None where it may not."""
    added = list(tokenizer.get_added_tokens_decoder().values())
    if any(token.lstrip or token.rstrip or token.single_word for token in added):
        return None
    kinds = {kind for part in (tokenizer.pre_tokenizer,) for kind in _kinds(part)}
    cuts = sorted((token.content for token in added if not token.normalized), key=len)
    if not cuts or not kinds <= _PLACELESS:
        return None
    return re.compile(f"({'|'.join(map(re.escape, reversed(cuts)))})")


def _kinds(part: Any) -> Iterator[str]:
    if part is None:
        return
    pending = [json.loads(part.__getstate__())]
    while pending:
        state = pending.pop()
        yield state["type"]
        pending += state.get("pretokenizers", [])
