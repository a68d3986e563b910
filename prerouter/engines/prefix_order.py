"""The order in which requests are sent, so that a server's prefix cache serves most of them."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.core.protocols import GenerationRequest


def prefix_order(requests: Sequence[GenerationRequest]) -> list[int]:
    """Indices of `requests`, those with the longest common beginnings beside each other.

    Samples of one case are alike; cases of one question over one document part only where the
    answering model is named.
    """

    def text(index: int) -> tuple[str, ...]:
        return tuple(message.content for message in requests[index].messages)

    return sorted(range(len(requests)), key=text)
