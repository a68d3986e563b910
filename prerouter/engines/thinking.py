"""Thinking text taken off a reply whose server or template left the two together."""

from __future__ import annotations

import contextlib

from prerouter.prompts.trace import TraceError, split_thinking


def part_thinking(text: str) -> tuple[str | None, str]:
    """(thinking text or None, the rest). Unclosed thinking stays where it is, and its parser
    refuses it there."""
    with contextlib.suppress(TraceError):
        return split_thinking(text)
    return None, text
