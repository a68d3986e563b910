"""Does a server hold its replies to a schema? Some answer 200 and ignore it."""

from __future__ import annotations

import json

from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.prompts.trace import TraceError, split_thinking

# No model answers the question so by itself.
_WORD = "quaggafrost"

PROBE = GenerationRequest(
    (Message(role="user", content="Which colour is fresh snow? Answer with one word."),), seed=0
)

PROBE_SAMPLING = Sampling(
    max_tokens=512,
    schema={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [_WORD]}},
        "required": ["word"],
        "additionalProperties": False,
    },
)


def follows_probe(completion: Completion) -> bool | None:
    """Whether the reply to `PROBE` keeps to its schema; None where there is no whole reply."""
    if completion.finish_reason != "stop":
        return None
    try:
        value = json.loads(split_thinking(completion.text)[1])
    except (TraceError, ValueError, RecursionError):
        return False
    return bool(value == {"word": _WORD})
