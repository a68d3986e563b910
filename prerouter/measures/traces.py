"""What a set of teacher's traces is worth: yield, agreement, lengths, repetition.

Rejection sampling is Pre-Route's, section 1 (Chen et al., 2026, arXiv 2605.10235); the paper gives
no report of it, so the measures are ours. No share is given without the counts it is made of.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np

from prerouter.core.records import Count, Record, Route, Trace
from prerouter.measures.shingles import Runs, coarse_words, first_alike, word_runs

# Why a line is refused whose trace stands before it: it is no sample of its own.
SAME_KEY = "same_key"
# Reasons by which a trace takes no part in the rejection sampling: no label weighs its decision.
NO_PART = frozenset({"no_label", "unknown_case", "test_case", SAME_KEY, "wrong_form"})
RUN_WORDS = 5
LEAST_ALIKE = 0.8


@dataclass(frozen=True)
class JudgedTrace:
    """A trace with what is known of its case and of what became of it.

    `ideal` is None where the trace takes no part in the rejection sampling: its case has no label,
    or is a test case. `refused` is why it isn't learnt from, None where it is kept. `groups` are
    the strata that yields are told by, such as {"level": "location"}.
    """

    trace: Trace
    ideal: Route | None
    refused: str | None
    groups: Mapping[str, str]


class TraceYield(Record):
    """Of `of` traces in a group, `agree` end in the ideal route and `kept` are learnt from (fewer,
    where a case may keep only so many)."""

    group: str
    value: str
    agree: Count
    kept: Count
    of: Count

    @property
    def share(self) -> float:
        """The yield of the rejection sampling, 0 to 1."""
        return self.agree / self.of


class Agreement(Record):
    """How far the samples of a case agree, over the cases with two samples or more of one teacher.

    `mean_pairwise` is the mean over cases of the share of pairs of samples that decide alike; None
    where no case has two.
    """

    cases: Count
    unanimous: Count
    mean_pairwise: float | None


class Distinct(Record):
    """`distinct` of `samples` traces are not word for word another sample of their case."""

    samples: Count
    distinct: Count


class Lengths(Record):
    """Tokens of the `n` traces whose length was measured; percentiles between two are linear."""

    n: Count
    min: float
    median: float
    p95: float
    max: float


class NearRepeats(Record):
    """Traces that say nearly the same of different cases.

    Of `compared` traces (those with a text), `repeated` stand in `groups` that reach over more than
    one case; `largest` is the largest group's traces. Two are alike that share `least_alike` of
    their distinct runs of `run_words` words (Jaccard similarity).
    """

    compared: Count
    repeated: Count
    groups: Count
    largest: Count
    run_words: int = RUN_WORDS
    least_alike: float = LEAST_ALIKE


class Source(Record):
    """Who wrote `traces` of the traces, by which prompt."""

    teacher: str
    prompt_hash: str
    traces: Count


class TraceReport(Record):
    """A whole set. `failures` are replies that are no trace, and calls without a reply, by reason;
    `refused` are traces that aren't learnt from. Lengths are None where none was measured. A trace
    that stands twice is refused the second time, and measured once."""

    traces: Count
    kept: Count
    refused: dict[str, int]
    failures: dict[str, int]
    sources: tuple[Source, ...]
    yields: tuple[TraceYield, ...]
    agreement: Agreement
    distinct: Distinct
    prompt_tokens: Lengths | None
    completion_tokens: Lengths | None
    near_repeats: NearRepeats

    def yields_by(self, group: str) -> list[TraceYield]:
        return [each for each in self.yields if each.group == group]


@dataclass
class Samples:
    """Counts over the samples of each case, filled trace by trace."""

    _decisions: dict[tuple[str, str], Counter[Route]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    _texts: dict[tuple[str, str], set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def add(self, trace: Trace) -> None:
        key = (trace.case_id, trace.teacher)
        self._decisions[key][trace.decision] += 1
        self._texts[key].add(trace_digest(trace))

    @property
    def agreement(self) -> Agreement:
        shares = [
            sum(comb(count, 2) for count in decisions.values()) / comb(decisions.total(), 2)
            for decisions in self._decisions.values()
            if decisions.total() > 1
        ]
        return Agreement(
            cases=len(shares),
            unanimous=sum(share == 1 for share in shares),
            mean_pairwise=sum(shares) / len(shares) if shares else None,
        )

    @property
    def distinct(self) -> Distinct:
        return Distinct(
            samples=sum(decisions.total() for decisions in self._decisions.values()),
            distinct=sum(map(len, self._texts.values())),
        )


def trace_key(trace: Trace) -> str:
    """Names a trace among all of a set, whose teachers may be several."""
    return f"{trace.case_id}|{trace.teacher}|{trace.sample}"


def trace_digest(trace: Trace) -> bytes:
    """The same for two traces with the same rationale and decision, whoever wrote them."""
    text = f"{trace.decision.value}{trace.rationale.model_dump_json()}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def report_traces(judged: Iterable[JudgedTrace], failures: Mapping[str, int]) -> TraceReport:
    """The report of a set of traces, read once. Memory is about 20 bytes a word of the traces."""
    samples, refused, kept = Samples(), Counter[str](), 0
    sources: Counter[tuple[str, str]] = Counter()
    yields: dict[tuple[str, str], list[int]] = {}
    prompt_tokens: list[int] = []
    completion_tokens: list[int] = []
    texts: list[Runs] = []
    case_ids: list[str] = []
    for each in judged:
        trace = each.trace
        sources[trace.teacher, trace.prompt_hash] += 1
        kept += each.refused is None
        if each.refused is not None:
            refused[each.refused] += 1
        if each.refused == SAME_KEY:
            continue
        samples.add(trace)
        if each.ideal is not None:
            for group in each.groups.items():
                counts = yields.setdefault(group, [0, 0, 0])
                counts[0] += trace.decision is each.ideal
                counts[1] += each.refused is None
                counts[2] += 1
        if trace.prompt_tokens is not None:
            prompt_tokens.append(trace.prompt_tokens)
        if trace.completion_tokens is not None:
            completion_tokens.append(trace.completion_tokens)
        if words := coarse_words(trace_text(trace)):
            texts.append(word_runs(words, RUN_WORDS))
            case_ids.append(trace.case_id)
    return TraceReport(
        traces=kept + refused.total(),
        kept=kept,
        refused=dict(sorted(refused.items())),
        failures=dict(sorted(failures.items())),
        sources=tuple(
            Source(teacher=teacher, prompt_hash=fixed, traces=count)
            for (teacher, fixed), count in sorted(sources.items())
        ),
        yields=tuple(
            TraceYield(group=group, value=value, agree=agree, kept=kept, of=of)
            for (group, value), (agree, kept, of) in sorted(yields.items(), key=_yield_order)
        ),
        agreement=samples.agreement,
        distinct=samples.distinct,
        prompt_tokens=lengths(prompt_tokens),
        completion_tokens=lengths(completion_tokens),
        near_repeats=near_repeats(texts, case_ids),
    )


def lengths(tokens: Sequence[int]) -> Lengths | None:
    """None of no lengths at all: not measured is no zero."""
    if not tokens:
        return None
    low, median, p95, high = np.percentile(tokens, [0, 50, 95, 100]).tolist()
    return Lengths(n=len(tokens), min=low, median=median, p95=p95, max=high)


def near_repeats(texts: Sequence[Runs], case_ids: Sequence[str]) -> NearRepeats:
    """Groups of like texts that reach over several cases. `case_ids` goes beside `texts`."""
    groups: dict[int, list[str]] = defaultdict(list)
    for first, case_id in zip(first_alike(texts, LEAST_ALIKE), case_ids, strict=True):
        groups[first].append(case_id)
    sizes = [len(members) for members in groups.values() if len(set(members)) > 1]
    return NearRepeats(
        compared=len(texts),
        repeated=sum(sizes),
        groups=len(sizes),
        largest=max(sizes, default=0),
    )


def trace_text(trace: Trace) -> str:
    """All that a trace says in words; "" for one that is a decision alone."""
    rationale = trace.rationale
    parts = [*rationale.steps.values(), rationale.reflection, rationale.free_text]
    return "\n".join(part for part in parts if part)


def _yield_order(entry: tuple[tuple[str, str], list[int]]) -> tuple[str, int, str]:
    """By name, and sample 10 after sample 2."""
    (group, value), _ = entry
    return group, int(value) if value.isdecimal() else 0, value
