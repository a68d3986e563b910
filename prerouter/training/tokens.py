"""The two tokens that training can get wrong without a word: the end of turn, and the padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prerouter.core.errors import StageError
from prerouter.training.examples import TokenisedExample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def find_end_of_turn(
    examples: Sequence[TokenisedExample], tokenizer: PreTrainedTokenizerBase
) -> int:
    """The token that the chat template closes the assistant's turn with, the same in each example.

    The student learns to stop by it, so it must be a special token with nothing but white space
    behind it. Raises StageError otherwise.
    """
    special = _special_ids(tokenizer)
    found: set[int] = set()
    for example in examples:
        ids = example.completion_ids
        position = next((i for i in reversed(range(len(ids))) if ids[i] in special), None)
        if position is None or _text(tokenizer, ids[position + 1 :]).strip():
            raise StageError(
                "train.model",
                "the chat template does not close the assistant's turn with a special token, "
                f"so a student could not learn to stop (example {example.key})",
                "an instruction-tuned model with a chat template",
            )
        found.add(ids[position])
    if len(found) != 1:
        tokens = ", ".join(sorted(map(repr, tokenizer.convert_ids_to_tokens(sorted(found)))))
        raise StageError("train.model", f"the chat template closes turns differently: {tokens}")
    return found.pop()


def choose_pad(
    tokenizer: PreTrainedTokenizerBase,
    wanted: str | None,
    stops: frozenset[int],
    examples: Sequence[TokenisedExample],
) -> str:
    """A padding token that is no stop token: with pad = eos, a model never learns to stop.

    `wanted` (train.pad_token) if given, else the tokenizer's own, else a special token that no
    example uses. Raises StageError where there is none.
    """
    if wanted is not None:
        identity = tokenizer.get_vocab().get(wanted)
        if identity is None:
            raise StageError("train.pad_token", f"{wanted!r} is not in the model's vocabulary")
        if identity in stops:
            raise StageError(
                "train.pad_token",
                f"{wanted!r} ends a turn, so the student would never learn to stop",
                "a token of the vocabulary that no text uses",
            )
        return wanted
    if tokenizer.pad_token is not None and tokenizer.pad_token_id not in stops:
        return str(tokenizer.pad_token)
    used = {token for example in examples for token in example.ids}
    free = sorted(_special_ids(tokenizer) - stops - used)
    tokens: list[str] = tokenizer.convert_ids_to_tokens(free)
    # A token that is named for padding before any other; then the first of the vocabulary.
    tokens.sort(key=lambda token: "pad" not in token.lower())
    if not tokens:
        raise StageError(
            "train.pad_token",
            "the model's padding token ends a turn and no unused special token is left",
            "a token of the vocabulary that no text uses",
            "set train.pad_token",
        )
    return tokens[0]


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    added = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def _text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
