from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import InputError
from prerouter.retrieval.rerank import Reranker

QUESTION = "when did it sail"


@pytest.fixture(scope="module")
def reranker(tiny_reranker: Path) -> Reranker:
    return Reranker(str(tiny_reranker))


def test_scores_are_the_models_logits(reranker: Reranker, tiny_reranker: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(tiny_reranker)
    tokenizer = AutoTokenizer.from_pretrained(tiny_reranker)
    passages = ["the ferry sailed at noon.", "0123", "nobody knew"]
    logits = []
    for passage in passages:
        batch = tokenizer(QUESTION, passage, return_tensors="pt", truncation=True, max_length=64)
        with torch.no_grad():
            logits.append(float(model(**batch).logits[0, 0]))
    assert len(set(logits)) == 3
    assert reranker.scores(QUESTION, passages) == pytest.approx(logits, abs=1e-5)
    assert reranker.scores(QUESTION, []) == []


def test_a_long_passage_has_the_score_of_its_best_window(reranker: Reranker) -> None:
    # 64 less 3 special tokens and 13 of the question leaves 48 characters: two sentences.
    sentences = ["the ferry sailed at noon. ", "nobody knew. ", "0123 4567 89. ", "zzzz zzzz. "]
    passage = sentences[0] * 2 + sentences[2] * 3 + sentences[3] * 2
    windows = [sentences[0] * 2, sentences[2] * 3 + sentences[3], sentences[3]]
    assert reranker.scores(QUESTION, [passage])[0] == pytest.approx(
        max(reranker.scores(QUESTION, windows)), abs=1e-5
    )


@pytest.mark.parametrize("question", ["", "x" * 500, "日本語？"])
def test_any_question_is_scored(reranker: Reranker, question: str) -> None:
    assert len(reranker.scores(question, ["the ferry", "x" * 300, ""])) == 3


def test_a_classifier_is_no_reranker(tmp_path: Path, tiny_reranker: Path) -> None:
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    config = BertConfig.from_pretrained(tiny_reranker, num_labels=3)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_reranker).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has 3 outputs"):
        Reranker(str(tmp_path))
