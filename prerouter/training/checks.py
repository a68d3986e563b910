"""What must hold of the real rows and the real batches before the first step is taken.

Each of these failures lets a training run end happily with a student that is worth nothing.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import StageError
from prerouter.training.examples import TokenisedExample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""The label of a token that bears no loss (PyTorch's cross-entropy)."""

# A chat template may open a reply with an empty block of thinking; it says nothing.
_LEAD_IN = re.compile(r"\A\s*(?:<think>\s*</think>\s*)?")


def check_prompts(examples: Iterable[TokenisedExample]) -> None:
    """The ids of each inference prompt are the start of the training ids, and some ids follow."""
    for example in examples:
        length = len(example.prompt_ids)
        if example.ids[:length] != example.prompt_ids or len(example.ids) <= length:
            raise StageError(
                f"example {example.key}",
                "the prompt that the student meets at inference is not the start of what it "
                "trains on: the chat template renders a prompt otherwise once a reply follows",
                "a chat template that adds the reply behind its generation prompt",
                "turn train.thinking, or choose another train.model",
            )


def check_completions(
    examples: Iterable[TokenisedExample], tokenizer: PreTrainedTokenizerBase, end_of_turn: int
) -> None:
    """What bears the loss is the completion, whole, then the end of turn."""
    for example in examples:
        wanted = example.example.completion[0].content
        learnt = _before_end_of_turn(example.completion_ids, tokenizer, end_of_turn)
        if learnt is None or not wanted or _reply(learnt) != _normal(wanted):
            raise StageError(
                f"example {example.key}",
                f"the labels read {learnt!r:.80}, the completion {wanted!r:.80}",
                "labels that are the completion, with the decision and the end of turn",
                "look at the completion for text that the chat template or tokenizer changes",
            )


def check_rows(
    expected: Sequence[TokenisedExample], rows: Iterable[Mapping[str, Any]], name: str
) -> None:
    """The trainer's rows are exactly the examples: none cut, dropped, doubled or masked otherwise.

    Rows of packed sequences are taken apart by their `seq_lengths`.
    """
    wanted = Counter(_digest(row.ids, _labels_of(row)) for row in expected)
    found = Counter(_digest(ids, labels) for ids, labels in _sequences(rows))
    if wanted == found:
        return
    lost, foreign = (wanted - found).total(), (found - wanted).total()
    raise StageError(
        f"{name} rows",
        f"of {len(expected)} examples given, the trainer kept {found.total()}: "
        f"{lost} are missing or altered, {foreign} were not given",
        "every example as it is, with the loss on its completion",
        "look in train.sft for a key that cuts, drops or masks",
    )


def check_batches(
    batches: Iterable[Mapping[str, Any]],
    completions: frozenset[str],
    tokenizer: PreTrainedTokenizerBase,
    end_of_turn: int,
) -> int:
    """Each sequence of each collated batch bears its loss on one whole completion and the end of
    turn, and on no padding. Returns the number of sequences looked at."""
    known = frozenset(_normal(text) for text in completions)
    pad = tokenizer.pad_token_id
    if pad == end_of_turn:
        raise StageError("train.pad_token", "the padding token ends a turn")
    count = 0
    for batch in batches:
        for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
            learnt = [label for label in labels if label != IGNORED]
            if pad in learnt:
                raise StageError("collated batch", "a padding token bears loss")
            if any(label not in (IGNORED, token) for token, label in zip(ids, labels, strict=True)):
                raise StageError("collated batch", "a label is not the token it stands at")
            for reply in _replies(learnt, tokenizer, end_of_turn):
                if reply not in known:
                    raise StageError(
                        "collated batch",
                        f"the labels read {reply!r:.80}, which is no example's completion",
                        "the whole completion, decision and end of turn included",
                    )
                count += 1
    if not count:
        raise StageError("collated batch", "no label bears loss")
    return count


def _replies(
    learnt: Sequence[int], tokenizer: PreTrainedTokenizerBase, end_of_turn: int
) -> list[str]:
    """The completions in one row's labels: one, or several where sequences are packed."""
    replies, start = [], 0
    for position, token in enumerate(learnt):
        if token == end_of_turn:
            replies.append(_reply(_decode(tokenizer, learnt[start:position])))
            start = position + 1
    rest = _decode(tokenizer, learnt[start:])
    # Text behind the last end of turn is a reply without one.
    return [*replies, rest] if rest.strip() or not replies else replies


def _before_end_of_turn(
    ids: Sequence[int], tokenizer: PreTrainedTokenizerBase, end_of_turn: int
) -> str | None:
    if Counter(ids)[end_of_turn] != 1:
        return None
    position = list(ids).index(end_of_turn)
    if _decode(tokenizer, ids[position + 1 :]).strip():
        return None
    return _decode(tokenizer, ids[:position])


def _reply(text: str) -> str:
    """A reply without the empty block of thinking that a template opens it with."""
    return _normal(_LEAD_IN.sub("", text, count=1))


def _normal(text: str) -> str:
    # Some tokenizers compose characters; the text is the same to a reader and to a parser.
    return unicodedata.normalize("NFC", text)


def _decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _labels_of(example: TokenisedExample) -> list[int]:
    return [IGNORED] * len(example.prompt_ids) + list(example.completion_ids)


def _sequences(rows: Iterable[Mapping[str, Any]]) -> Iterable[tuple[list[int], list[int]]]:
    for row in rows:
        start = 0
        for length in row.get("seq_lengths") or [len(row["input_ids"])]:
            end = start + length
            yield row["input_ids"][start:end], row["labels"][start:end]
            start = end


def _digest(ids: Sequence[int], labels: Sequence[int]) -> bytes:
    digest = hashlib.sha256(array("q", ids).tobytes())
    digest.update(array("q", labels).tobytes())
    return digest.digest()
