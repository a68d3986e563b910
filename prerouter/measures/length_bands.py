"""Bands of document lengths, where a source has no strata of its own."""

from __future__ import annotations

_SHORTEST = 2_048


def length_band(tokens: int) -> str:
    """The power of two, 2k (2,048) at least, that a document of so many tokens reaches at most."""
    bound = _SHORTEST
    while bound < tokens:
        bound *= 2
    return f"{bound // 1024}k"
