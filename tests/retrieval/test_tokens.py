from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from prerouter.retrieval.chunking import chunk_document
from prerouter.retrieval.tokens import tokenizer_starts

TEXTS = {
    "english": "The ferry sailed at noon. Nobody knew why.",
    "chinese": "天地玄黄。宇宙洪荒！日月盈昃，辰宿列张。",
    "arabic": "هذا نص قصير؟ وهذه جملة أخرى هنا.",
    "hebrew": "בראשית ברא אלהים. את השמים ואת הארץ.",
    "beyond the first plane": "𠮷𠮷𠮷 family 👨‍👩‍👧‍👦 end.",
    "decomposed": "e\u0301te\u0301 nai\u0308ve.",
    "blank": " \n\t ",
    "empty": "",
}


@pytest.fixture(scope="module")
def qwen3(qwen3_tokenizer_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(qwen3_tokenizer_dir / "tokenizer.json"))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_counts_are_those_of_the_tokenizer_itself(qwen3: Tokenizer, text: str) -> None:
    encoding = qwen3.encode(text, add_special_tokens=False)
    starts = tokenizer_starts(qwen3)(text)
    assert list(starts) == [first for first, _ in encoding.offsets]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_chunks_by_a_real_tokenizer_give_the_text_back(qwen3: Tokenizer, text: str) -> None:
    chunks = chunk_document(text, 5, 2, tokenizer_starts(qwen3))
    if not text:
        assert chunks == []
        return
    assert chunks[0].start == 0
    joined = text[chunks[0].start : chunks[0].end]
    for left, right in pairwise(chunks):
        assert right.start <= left.end < right.end
        joined += text[left.end : right.end]
    assert joined == text


def test_truncation_and_padding_of_the_file_are_switched_off_in_a_copy(qwen3: Tokenizer) -> None:
    own = Tokenizer.from_str(qwen3.to_str())
    own.enable_truncation(4)
    own.enable_padding(length=50)
    assert len(tokenizer_starts(own)("one two three four five six")) == 6
    assert own.truncation["max_length"] == 4


@pytest.mark.parametrize("unit", ["A line of nine words stands here, no more.\n", "x", "天"])
def test_long_text_is_counted_in_blocks(qwen3: Tokenizer, unit: str) -> None:
    text = unit * (400_000 // len(unit))
    began = time.perf_counter()
    starts = tokenizer_starts(qwen3)(text)
    # In one piece, a word of 400,000 letters takes many times as long as in blocks.
    assert time.perf_counter() - began < 30
    assert starts[0] == 0
    assert all(left <= right for left, right in pairwise(starts))
    some = len(qwen3.encode(text[: len(unit) * 400]).ids)
    assert len(starts) == pytest.approx(some * len(text) / len(unit) / 400, rel=0.05)
