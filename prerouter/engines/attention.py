"""What a model attends by: whether it is the plain way, and another in its place for a while."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


def is_plain_attention(model: Any) -> bool:
    """Whether a model's attention has no caps and no sinks, which is told by its code."""
    from transformers.models.llama import modeling_llama

    own = getattr(sys.modules[type(model).__module__], "eager_attention_forward", None)
    return own is not None and _code(own) == _code(modeling_llama.eager_attention_forward)


def is_plain_cache(cache: Any) -> bool:
    """Whether a cache holds plain keys and values of every token: no window, no state."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    return type(cache) is DynamicCache and all(
        type(layer) is DynamicLayer for layer in cache.layers
    )


def register(name: str, attention: Callable[..., Any], mask: Callable[..., Any]) -> str:
    """Make an attention, and how it is masked, known to transformers by `name`, which it gives."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    return name


@contextlib.contextmanager
def attending_by(model: Any, name: str) -> Iterator[None]:
    """Within it, `model` attends by the attention of that name, in one thread at a time."""
    usual = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def _code(function: Any) -> tuple[object, ...]:
    code = function.__code__
    return code.co_code, code.co_consts, code.co_names
