"""Texts as sets of runs of words, and which short texts say nearly the same."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from math import ceil, floor
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from prerouter.measures.words import split_words

Runs: TypeAlias = npt.NDArray[np.uint64]

_PUNCTUATION = re.compile(r"[\W_]+")
_MULTIPLIER = 0x9E3779B97F4A7C15
# A product such as 0.07 * 100 lies a rounding over the whole number it is.
_ROUNDING = 1e-9


def coarse_words(text: str) -> list[str]:
    """Words without case and punctuation: coarser than `fold`, and four times as fast."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return split_words(_PUNCTUATION.sub(" ", folded))


def word_runs(words: Sequence[str], run_words: int) -> Runs:
    """Sorted distinct 64-bit hashes of all runs of `run_words` words; a shorter text is one run."""
    codes: dict[str, int] = {}
    for word in words:
        if word not in codes:
            digest = hashlib.blake2b(word.encode(errors="replace"), digest_size=8).digest()
            codes[word] = int.from_bytes(digest, "little")
    coded = np.fromiter((codes[word] for word in words), dtype=np.uint64, count=len(words))
    width = min(run_words, len(coded))
    count = len(coded) - width + 1
    hashes = np.zeros(count, dtype=np.uint64)
    # A polynomial in the words of the run, modulo 2 to the 64th.
    for offset in range(width):
        hashes *= np.uint64(_MULTIPLIER)
        hashes += coded[offset : offset + count]
    # Five times as fast as np.unique.
    hashes.sort()
    distinct: Runs = hashes[np.append(True, hashes[1:] != hashes[:-1])]
    return distinct


def first_alike(texts: Sequence[Runs], least: float) -> list[int]:
    """For each text the index of the first one before it that it is like, or its own.

    Two texts are alike whose runs have a Jaccard similarity of `least` (over 0, up to 1) or more.
    Only texts that are like none before them are compared with, so alike is meant of a text and
    the first of its group. Exact: two alike texts share one of their rarest runs (prefix
    filtering; Chaudhuri et al., 2006, and Bayardo et al., 2007), so few pairs are looked at, and a
    phrase that stands everywhere leads to none.
    """
    if not 0 < least <= 1:
        raise ValueError("least lies over 0 and up to 1")
    repeated, counts = _repeated(texts)
    heads: dict[int, list[int]] = defaultdict(list)
    first: list[int] = []
    for index, runs in enumerate(texts):
        smallest = ceil(least * len(runs) - _ROUNDING)
        largest = floor(len(runs) / least + _ROUNDING)
        rare = _rarest(runs, len(runs) - smallest + 1, repeated, counts)
        candidates = sorted(
            {
                head
                for run in rare
                for head in heads.get(run, ())
                if smallest <= len(texts[head]) <= largest
            }
        )
        found = next((head for head in candidates if _alike(runs, texts[head], least)), None)
        first.append(index if found is None else found)
        if found is None:
            for run in rare:
                heads[run].append(index)
    return first


def _repeated(texts: Sequence[Runs]) -> tuple[Runs, npt.NDArray[np.int64]]:
    """The runs that several texts hold, sorted, and how many do."""
    runs = np.concatenate(texts) if texts else np.zeros(0, np.uint64)
    runs.sort()
    same = runs[1:] == runs[:-1]
    starts = np.flatnonzero(same & ~np.append(False, same)[: len(same)])
    ends = np.flatnonzero(same & ~np.append(same, False)[1:])
    return runs[starts], ends - starts + 2


def _rarest(runs: Runs, size: int, repeated: Runs, counts: npt.NDArray[np.int64]) -> list[int]:
    """Of the `size` rarest runs of a text those that other texts hold as well."""
    if not len(repeated):
        return []
    places = np.searchsorted(repeated, runs).clip(max=len(repeated) - 1)
    shared = repeated[places] == runs
    room = size - int((~shared).sum())
    if room <= 0:
        return []
    # Ties go by the run's own value, in which it is sorted already.
    order = np.argsort(counts[places[shared]], kind="stable")[:room]
    rarest: list[int] = runs[shared][order].tolist()
    return rarest


def _alike(one: Runs, other: Runs, least: float) -> bool:
    places = np.searchsorted(other, one).clip(max=len(other) - 1)
    common = int((other[places] == one).sum())
    return common >= least * (len(one) + len(other) - common) - _ROUNDING
