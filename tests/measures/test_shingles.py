"""Runs of words, and the groups of texts that say nearly the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from prerouter.measures.shingles import Runs, coarse_words, first_alike, word_runs


def runs(*values: int) -> Runs:
    return np.array(sorted(values), dtype=np.uint64)


def similarity(one: Runs, other: Runs) -> float:
    a, b = set(one.tolist()), set(other.tolist())
    return len(a & b) / len(a | b)


def test_words_lose_case_and_punctuation() -> None:
    assert coarse_words("The ﬁrst—and, LAST_one!  川下") == [
        "the", "first", "and", "last", "one", "川", "下",
    ]  # fmt: skip


def test_runs_are_the_distinct_ones_in_rising_order() -> None:
    # a b, b a, a b, b c: three distinct.
    found = word_runs(["a", "b", "a", "b", "c"], 2)
    assert len(found) == 3
    assert found.tolist() == sorted(found.tolist())
    assert set(word_runs(["a", "b"], 2).tolist()) < set(found.tolist())


def test_the_order_of_words_matters_and_a_short_text_is_one_run() -> None:
    assert word_runs(["a", "b"], 5).tolist() != word_runs(["b", "a"], 5).tolist()
    assert len(word_runs(["a", "b"], 5)) == 1


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (runs(1, 2, 3, 4, 5, 6, 7, 8, 10), True),  # 8 of 10
        (runs(1, 2, 3, 4, 5, 6, 7, 10), False),  # 7 of 10
        (runs(1, 2, 3, 4, 5, 6, 7), False),  # 7 of 9
        (runs(1, 2, 3, 4, 5, 6, 7, 8), True),  # 8 of 9
    ],
)
def test_the_least_similarity_is_still_alike(other: Runs, alike: bool) -> None:
    first = first_alike([runs(*range(1, 10)), other], 0.8)
    assert first == ([0, 0] if alike else [0, 1])


def test_rounding_loses_no_pair() -> None:
    # 0.07 * 100 is 7.000000000000001 to a computer.
    assert first_alike([runs(*range(100)), runs(*range(7))], 0.07) == [0, 0]
    assert first_alike([runs(*range(7)), runs(*range(100))], 0.07) == [0, 0]


def test_a_text_is_compared_with_the_first_of_each_group() -> None:
    texts = [runs(1, 2, 3, 4), runs(2, 3, 4, 5), runs(3, 4, 5, 6)]
    # The third is like the second (3 of 5), which is like the first; it isn't like the first.
    assert first_alike(texts, 0.6) == [0, 0, 2]


def test_no_texts_and_lone_texts() -> None:
    assert first_alike([], 0.8) == []
    assert first_alike([runs(1)], 0.8) == [0]
    assert first_alike([runs(1), runs(2), runs(1)], 0.8) == [0, 1, 0]


@pytest.mark.parametrize("least", [0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_no_group_is_missed(seed: int, least: float) -> None:
    """Against every pair, on texts of few words, edited copies among them."""
    rng = random.Random(seed)
    texts: list[Runs] = []
    for number in range(150):
        if number % 3 == 2:
            words = list(texts[rng.randrange(len(texts))].tolist())
            if number % 2:
                words[rng.randrange(len(words))] = rng.randrange(60)
        else:
            words = [rng.randrange(60) for _ in range(rng.randrange(1, 25))]
        texts.append(runs(*set(words)))
    heads: list[int] = []
    expected: list[int] = []
    for index, text in enumerate(texts):
        like = [head for head in heads if similarity(text, texts[head]) >= least]
        expected.append(like[0] if like else index)
        heads += [] if like else [index]
    assert first_alike(texts, least) == expected
    assert len(heads) < len(texts)


@pytest.mark.parametrize("least", [0.0, 1.5])
def test_a_similarity_that_is_none_is_refused(least: float) -> None:
    with pytest.raises(ValueError, match="least"):
        first_alike([], least)
