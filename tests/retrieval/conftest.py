"""Tiny encoders with random weights, built from their configs: the real loading and the real code.

Their vocabulary is one character a token, so that a token count is a character count.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.ascii_lowercase, *string.digits, "."]
SIZES: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {token: place for place, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    # As all-MiniLM's tokenizer.json has it.
    tokenizer.enable_truncation(8)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder)


def make_embedding(folder: Path, config: Any, model: Any) -> Path:
    """A sentence-transformers model of that architecture: 64 tokens, mean pooling, 16 numbers."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(3)
    model(config(**SIZES, initializer_range=0.5)).save_pretrained(folder / "inner")
    save_tokenizer(folder / "inner")
    inner = Transformer(str(folder / "inner"))
    SentenceTransformer(modules=[inner, Pooling(16)], device="cpu").save(str(folder / "whole"))
    return folder / "whole"


@pytest.fixture(scope="session")
def tiny_embedding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel

    return make_embedding(tmp_path_factory.mktemp("embedding"), BertConfig, BertModel)


@pytest.fixture(scope="session")
def tiny_gte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The architecture of gte-multilingual-base, as transformers has it."""
    from transformers import GteConfig, GteModel

    return make_embedding(tmp_path_factory.mktemp("gte"), GteConfig, GteModel)


@pytest.fixture(scope="session")
def tiny_reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that reads 64 tokens, with one output."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("reranker")
    config = BertConfig(**SIZES, initializer_range=0.5, num_labels=1)
    BertForSequenceClassification(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder
