from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from prerouter.retrieval.index import Bm25Index, ExactVectors, terms

TEXTS = [
    "The ferry sailed at noon.",
    "A red ferry lay in the harbour, and the harbour froze.",
    "Nothing happened in the village.",
]


def test_the_chunk_with_the_rarer_words_comes_first() -> None:
    found = Bm25Index(TEXTS).search("harbour ferry", 3)
    assert [place for place, _ in found] == [1, 0]
    assert found[0][1] > found[1][1] > 0


def test_top_k_is_a_limit() -> None:
    assert len(Bm25Index(TEXTS).search("the ferry", 1)) == 1
    assert Bm25Index(TEXTS).search("the ferry", 0) == []


@pytest.mark.parametrize("query", ["zeppelin", "", "?!"])
def test_a_query_without_a_known_word_finds_nothing(query: str) -> None:
    assert Bm25Index(TEXTS).search(query, 3) == []


@pytest.mark.parametrize("texts", [[], [""], ["...", "?"]])
def test_chunks_without_words_are_found_by_nothing(texts: list[str]) -> None:
    assert Bm25Index(texts).search("ferry", 3) == []


def test_one_chunk_is_found() -> None:
    assert [place for place, _ in Bm25Index(["The ferry."]).search("ferry", 5)] == [0]


def test_ties_keep_the_order_of_the_document() -> None:
    index = Bm25Index(["a pear tree", "one plum", "a pear tree", "a pear tree"])
    assert [place for place, _ in index.search("pear", 2)] == [0, 2]


def test_case_and_compatibility_forms_are_folded() -> None:
    assert terms("STRASSE Straße ＦＥＲＲＹ") == ["strasse", "strasse", "ferry"]


@pytest.mark.parametrize(
    ("query", "place"), [("黄", 0), ("دجلة", 1), ("Ёлка", 2)], ids=["chinese", "arabic", "russian"]
)
def test_other_scripts_are_searched(query: str, place: int) -> None:
    index = Bm25Index(["天地玄黄，宇宙洪荒。", "نهر دجلة طويل", "высокая ёлка"])
    assert [found for found, _ in index.search(query, 1)] == [place]


def test_two_processes_build_one_index_and_print_nothing(repository: Path) -> None:
    code = (
        "from prerouter.retrieval.index import Bm25Index;"
        "i = Bm25Index([f'word{n % 7} word{n % 5} other{n}' for n in range(200)]);"
        "print(i.search('word1 word2 other9', 50))"
    )
    results = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=repository,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        results.append(done.stdout)
    assert results[0] == results[1]
    assert results[0].count("\n") == 1


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def clustered(count: int, dimensions: int) -> NDArray[np.float32]:
    """Vectors near 200 centres, with variance that falls along the axes as embeddings' does."""
    random = np.random.default_rng(0)
    scale = 1 / np.sqrt(1 + np.arange(dimensions))
    centres = random.standard_normal((200, dimensions)) * scale
    noise = random.standard_normal((count, dimensions)) * scale * 0.5
    return unit_rows(centres[random.integers(200, size=count)] + noise)


VECTORS = {
    "few": clustered(50, 300),
    "many, prunable": clustered(9_000, 300),
    "many, nothing to prune by": unit_rows(np.random.default_rng(1).standard_normal((9_000, 300))),
    "many, few dimensions": clustered(9_000, 8),
    "many, all the same": unit_rows(np.ones((9_000, 300))),
}


@pytest.mark.parametrize("top_k", [1, 5, 700, 10_000])
@pytest.mark.parametrize("vectors", VECTORS.values(), ids=VECTORS)
def test_exact_search_finds_what_sorting_all_scores_finds(
    vectors: NDArray[np.float32], top_k: int
) -> None:
    index = ExactVectors(vectors)
    random = np.random.default_rng(2)
    for row in random.integers(len(vectors), size=5):
        query = unit_rows(vectors[row][None] + 0.1 * random.standard_normal(vectors.shape[1]))[0]
        scores = (vectors.astype(np.float64) @ query).astype(np.float64)
        found = index.nearest(query, top_k)
        assert len(found) == min(top_k, len(vectors))
        assert [score for _, score in found] == pytest.approx(
            sorted(scores, reverse=True)[:top_k], abs=2e-5
        )
        assert [scores[place] for place, _ in found] == pytest.approx(
            [score for _, score in found], abs=2e-5
        )


def test_equal_vectors_keep_the_order_of_the_document() -> None:
    vectors = clustered(9_000, 300)
    vectors[[4_321, 17, 8_999]] = vectors[100]
    found = ExactVectors(vectors).nearest(vectors[100], 4)
    assert [place for place, _ in found] == [17, 100, 4_321, 8_999]


def test_nothing_is_found_among_nothing() -> None:
    index = ExactVectors(np.zeros((0, 8), dtype=np.float32))
    assert index.nearest(np.ones(8, dtype=np.float32), 5) == []
    assert ExactVectors(clustered(9, 8)).nearest(np.ones(8, dtype=np.float32), 0) == []
