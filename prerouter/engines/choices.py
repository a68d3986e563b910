"""The tokens by which a model's choices are told apart."""

from __future__ import annotations

from collections.abc import Sequence


def choice_endings(ids: Sequence[list[int]], first_tokens: bool) -> list[list[int]]:
    """The token ids to score of each choice's `ids`: all of them, or with `first_tokens` the first
    one of each, where no two begin alike.

    One token each costs one forward pass a prompt and no more, and the start of the prompts can
    come from a cache. It is right for a model that writes one of the choices and nothing else, as a
    student trained to `decide` does: after a choice's first token the rest of it follows. A model
    that was not trained for it could go on otherwise. Raises ValueError for a choice of no tokens.
    """
    if not all(ids):
        raise ValueError("a choice of no tokens has no probability")
    firsts = [ending[:1] for ending in ids]
    apart = len({ending[0] for ending in ids}) == len(ids)
    return firsts if first_tokens and apart else list(ids)
