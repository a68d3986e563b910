"""Which documents hold the same pages: components that a split must not cut through."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from prerouter.core.records import DocumentProfile
from prerouter.measures.shingles import Runs, coarse_words, word_runs
from prerouter.measures.words import fold, split_words
from prerouter.sources.text_files import without_invisible

# A run, title or head that stands in more documents than this is form language.
FORM_LANGUAGE_DOCUMENTS = 10
# Two long documents are joined where they share this many times `run_words` runs.
SHARED_RUNS = 10
# A shorter title ("form10-k", "Index") or head tells nothing.
TITLE_CHARACTERS = 8
HEAD_WORDS = 12

_BUCKETS = 16


class JoinReason(StrEnum):
    """Why two documents are taken for one, strongest first."""

    SAME_TEXT = "same_text"
    SHARED_RUNS = "shared_runs"
    SAME_TITLE = "same_title"
    SAME_HEAD = "same_head"


@dataclass(frozen=True)
class Components:
    """The component of each document, named by its smallest document id, and how it was found.

    `pairs` counts the pairs joined by each reason; documents that share one title or one head, or
    are word for word the same, count as a chain (n - 1 pairs). `form_language_runs` are the
    distinct runs left aside because they stand in many documents.
    """

    component_of: dict[str, str]
    pairs: dict[JoinReason, int]
    compared_by_text: int
    compared_by_title_or_head: int
    form_language_runs: int

    @property
    def count(self) -> int:
        return len(set(self.component_of.values()))

    @property
    def largest(self) -> int:
        return max(Counter(self.component_of.values()).values(), default=0)

    @property
    def report(self) -> dict[str, int]:
        """The figures for a manifest."""
        return {
            "documents": len(self.component_of),
            "components": self.count,
            "largest_component": self.largest,
            "compared_by_text": self.compared_by_text,
            "compared_by_title_or_head": self.compared_by_title_or_head,
            "form_language_runs": self.form_language_runs,
            **{f"pairs_joined_by_{reason}": self.pairs.get(reason, 0) for reason in JoinReason},
        }


def find_components(
    profiles: Iterable[DocumentProfile], bodies: Mapping[str, str], run_words: int
) -> Components:
    """Join documents that share long runs of text, directly or through others.

    Where both texts are at hand, two documents are joined if they have all their runs in common or
    share at least 10 x `run_words` distinct runs of `run_words` consecutive words (half of the
    shorter document's runs where that is less). Words are folded: case, punctuation and spacing
    don't matter. Where a text is missing, the same title (of 8 characters or more) or the same head
    (of 12 words or more) joins.

    One shared run is not enough, since filings share form language. Measured on twelve of LaRA's
    documents, two filings of different companies share up to 83 runs of 50 words (paragraphs of
    the auditor's report, the list of exhibits; the longest is 87 words), which would join four of
    five filings; one common paper of 5,000 words is nearly 5,000 runs. Ten times the length of a
    run lies between. Beside that, whatever stands in more than 10 documents (a licence, a
    template, "Annual report") is form language and joins nothing, so that no component swallows
    the corpus; the price is that more than 10 edited copies of one text may go unnoticed.

    Deterministic and independent of the order of `profiles`. Memory is 8 bytes a word of text, with
    one sixteenth of all runs sorted at a time. Of several profiles of one document the first
    counts.
    """
    if run_words < 1:
        raise ValueError("run_words must be at least 1")
    documents: dict[str, DocumentProfile] = {}
    for profile in profiles:
        documents.setdefault(profile.document_id, profile)
    names = sorted(documents)
    index = {name: number for number, name in enumerate(names)}
    pairs: dict[tuple[int, int], JoinReason] = {}

    runs_of: dict[str, Runs] = {}
    for name in names:
        words = _words(bodies.get(name, ""))
        if words:
            runs_of[name] = word_runs(words, run_words)
    with_text, signatures = list(runs_of), list(runs_of.values())
    digests = {name: hashlib.sha256(runs.tobytes()).hexdigest() for name, runs in runs_of.items()}
    for group in _groups(with_text, digests.get):
        _chain(group, index, JoinReason.SAME_TEXT, pairs)
    shared, form_language = _shared_runs(signatures)
    for (one, other), count in sorted(shared.items()):
        enough = min(
            SHARED_RUNS * run_words, -(-min(len(signatures[one]), len(signatures[other])) // 2)
        )
        if count >= enough:
            pair = (index[with_text[one]], index[with_text[other]])
            pairs.setdefault(pair, JoinReason.SHARED_RUNS)

    for reason, key in (
        (JoinReason.SAME_TITLE, _title_key),
        (JoinReason.SAME_HEAD, _head_key),
    ):
        keys = {name: key(documents[name]) for name in names}
        for group in _groups(names, keys.get):
            without = [name for name in group if name not in runs_of]
            if not without or len(group) > FORM_LANGUAGE_DOCUMENTS:
                continue
            # Two documents whose texts were compared are not joined by a title, but each may be
            # joined to one without text.
            for name in group:
                _chain(sorted({name, without[0]}), index, reason, pairs)
    return Components(
        component_of=_components_of(names, list(pairs)),
        pairs=dict(sorted(Counter(pairs.values()).items())),
        compared_by_text=len(with_text),
        compared_by_title_or_head=len(names) - len(with_text),
        form_language_runs=form_language,
    )


def _title_key(profile: DocumentProfile) -> str | None:
    title = fold(profile.title or "")
    return title if len(title.replace(" ", "")) >= TITLE_CHARACTERS else None


def _head_key(profile: DocumentProfile) -> str | None:
    head = fold(profile.head or "")
    return head if len(split_words(head)) >= HEAD_WORDS else None


def _groups(names: Sequence[str], key: Callable[[str], str | None]) -> list[list[str]]:
    """Names with one key, in order; groups of two or more."""
    groups: dict[str, list[str]] = {}
    for name in names:
        value = key(name)
        if value is not None:
            groups.setdefault(value, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _chain(
    group: Sequence[str],
    index: Mapping[str, int],
    reason: JoinReason,
    pairs: dict[tuple[int, int], JoinReason],
) -> None:
    for one, other in pairwise(group):
        pairs.setdefault((index[one], index[other]), reason)


def _words(text: str) -> list[str]:
    return coarse_words(without_invisible(text))


def _shared_runs(signatures: Sequence[Runs]) -> tuple[Counter[tuple[int, int]], int]:
    """Distinct runs shared by each pair of documents, and the number of form language runs."""
    import numpy as np

    shared: Counter[tuple[int, int]] = Counter()
    form_language = 0
    bounds = [np.uint64(bucket * (2**64 // _BUCKETS)) for bucket in range(_BUCKETS)]
    edges = [[*np.searchsorted(hashes, bounds).tolist(), len(hashes)] for hashes in signatures]
    for bucket in range(_BUCKETS):
        parts = [
            hashes[edge[bucket] : edge[bucket + 1]]
            for hashes, edge in zip(signatures, edges, strict=True)
        ]
        if not parts:
            break
        hashes = np.concatenate(parts)
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        # A stable sort keeps the owners of one run in rising order.
        order = np.argsort(hashes, kind="stable")
        hashes, owners = hashes[order], owners[order]
        starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        sizes = np.diff(np.append(starts, len(hashes)))
        form_language += int((sizes > FORM_LANGUAGE_DOCUMENTS).sum())
        usable = np.repeat((sizes > 1) & (sizes <= FORM_LANGUAGE_DOCUMENTS), sizes)
        hashes, owners = hashes[usable], owners[usable]
        for distance in range(1, FORM_LANGUAGE_DOCUMENTS):
            same = hashes[distance:] == hashes[:-distance]
            codes = owners[:-distance][same] * len(parts) + owners[distance:][same]
            values, counts = np.unique(codes, return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                shared[divmod(value, len(parts))] += count
    return shared, form_language


def _components_of(names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> dict[str, str]:
    if not names:
        return {}
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    links = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(names), len(names)))
    _, labels = connected_components(links, directed=False)
    smallest: dict[int, str] = {}
    for name, label in zip(names, labels.tolist(), strict=True):
        smallest.setdefault(label, name)
    return {name: smallest[label] for name, label in zip(names, labels.tolist(), strict=True)}
