"""How much of a document fits into a prompt, in the answering model's own tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prerouter.core.errors import MissingDependencyError, RecipeError
from prerouter.core.records import AnswerModel, Message
from prerouter.engines.chat import encode_chat
from prerouter.engines.embedded import resolve_model
from prerouter.recipe.engine import EngineSection, OpenAIEngine
from prerouter.retrieval.chunking import TokenStarts
from prerouter.retrieval.tokens import tokenizer_starts

# Text tokenised by itself and text in its place in a prompt may differ by these at the borders.
_BORDER_TOKENS = 16


@dataclass(frozen=True)
class ModelTokens:
    """An answering model's tokens: where they start in a text; the length of a whole prompt, chat
    template included, for (messages, thinking); the longest input that its engine takes (None where
    that isn't known)."""

    starts: TokenStarts
    count_prompt: Callable[[Sequence[Message], bool], int]
    longest: int | None = None


@dataclass(frozen=True)
class Window:
    """What an answering model can read at once, shared out: the reply takes `reply_tokens`; the
    prompt without its text takes `reserved_tokens`, or the next multiple of it that holds it. So
    all ordinary questions leave the same room, and a document cut for one is cut alike for all.
    """

    tokens: ModelTokens
    reply_tokens: int
    reserved_tokens: int

    def room(self, model: AnswerModel, bare: Sequence[Message]) -> int | None:
        """Tokens left for text in the prompt that is `bare` without it; None where nothing limits
        them."""
        limits = [limit for limit in (model.context_window, self.tokens.longest) if limit]
        if not limits:
            return None
        taken = self.tokens.count_prompt(bare, model.thinking) + _BORDER_TOKENS
        step = max(self.reserved_tokens, 1)
        return max(0, min(limits) - self.reply_tokens - -(-taken // step) * step)


def load_tokens(engine: EngineSection, tokenizer: str | None) -> ModelTokens:
    """The tokens of the model behind `engine`, by its own tokenizer unless another is named.

    Raises RecipeError where there is none to be had.
    """
    try:
        from transformers import AutoConfig, AutoTokenizer
    except ImportError:
        raise MissingDependencyError("transformers", "train") from None
    name = tokenizer or engine.model
    revision = None if tokenizer or isinstance(engine, OpenAIEngine) else engine.revision
    folder = resolve_model(name)
    try:
        loaded: Any = AutoTokenizer.from_pretrained(
            folder, revision=revision, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise _no_tokenizer(name, f"has no tokenizer that can be loaded: {error}") from None
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None or loaded.chat_template is None:
        raise _no_tokenizer(name, "has no fast tokenizer with a chat template")

    def count_prompt(messages: Sequence[Message], thinking: bool) -> int:
        return len(encode_chat(loaded, messages, thinking)[0])

    longest = None
    if not isinstance(engine, OpenAIEngine):
        longest = engine.max_model_len
        if longest is None:
            config: Any = AutoConfig.from_pretrained(
                resolve_model(engine.model), revision=engine.revision, trust_remote_code=False
            )
            longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    return ModelTokens(tokenizer_starts(backend), count_prompt, longest)


def _no_tokenizer(name: str, problem: str) -> RecipeError:
    return RecipeError(
        name,
        problem,
        "the answering model's own, by which its window is shared out",
        "name a Hub name or a folder under answer.tokenizers",
    )
