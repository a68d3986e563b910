"""Encoding by pieces gives the ids of the whole texts, and shared pieces are encoded once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

from prerouter.training.pieces import PieceTokenizer

SPECIAL = ["<|im_start|>", "<|im_end|>", "<think>"]
PARTS = [
    *SPECIAL,
    "<|im_end|><|im_start|>",
    "<|im_end",
    "<think",
    "\n",
    "\n\n",
    " ",
    "  ",
    "user",
    "Wie viel?",
    " 1234",
    "\u00e9",
    "e\u0301",
    "\u6587\u4ef6",
    "<|",
    "it's",
    "</think>",
]


def small(pre_tokenizer: pre_tokenizers.PreTokenizer, **flags: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(PARTS * 5, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, **flags) for token in SPECIAL]
    )
    return tokenizer


def texts(count: int) -> list[str]:
    chosen = random.Random(3)
    return ["".join(chosen.choices(PARTS, k=chosen.randint(0, 12))) for _ in range(count)]


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


TOKENIZERS = {
    "byte level": lambda: small(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "byte level with a space put before": lambda: small(pre_tokenizers.ByteLevel()),
    "a special token that takes white space along": lambda: small(
        pre_tokenizers.ByteLevel(add_prefix_space=False), rstrip=True
    ),
    "only the beginning of the text is marked": lambda: small(
        pre_tokenizers.Metaspace(prepend_scheme="first")
    ),
}


@pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)
def test_the_ids_are_those_of_the_whole_texts(make: object) -> None:
    assert callable(make)
    tokenizer: Tokenizer = make()
    given = texts(400)
    assert PieceTokenizer(tokenizer).encode(given) == [whole(tokenizer, text) for text in given]


def test_the_ids_are_those_of_the_whole_texts_in_qwen3(qwen3_tokenizer_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(qwen3_tokenizer_dir / "tokenizer.json"))
    given = texts(400)
    assert PieceTokenizer(tokenizer).encode(given) == [whole(tokenizer, text) for text in given]


def test_special_tokens_of_the_tokenizers_own_are_not_added() -> None:
    tokenizer = small(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<think> $A", special_tokens=[("<think>", tokenizer.token_to_id("<think>"))]
    )
    assert PieceTokenizer(tokenizer).encode(["user"]) == [whole(tokenizer, "user")]


class Counting:
    """A tokenizer that tells how many texts it was given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.encoded: list[str] = []
        self.pre_tokenizer = tokenizer.pre_tokenizer
        self.get_added_tokens_decoder = tokenizer.get_added_tokens_decoder

    def encode_batch_fast(self, given: list[str], add_special_tokens: bool) -> object:
        self.encoded += given
        return self._tokenizer.encode_batch_fast(given, add_special_tokens=add_special_tokens)


def test_a_piece_that_all_prompts_share_is_encoded_once() -> None:
    counting = Counting(small(pre_tokenizers.ByteLevel(add_prefix_space=False)))
    pieces = PieceTokenizer(counting)  # type: ignore[arg-type]
    for batch in ("abc", "def"):
        pieces.encode([f"<|im_start|>system: decide<|im_end|>user {name}" for name in batch])
    assert counting.encoded.count("system: decide") == 1
    assert sum(text.startswith("user ") for text in counting.encoded) == 6
