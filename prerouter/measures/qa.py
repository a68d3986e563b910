"""Deterministic QA metrics over texts in any script, and the score of one answer.

Every metric lies in 0..1. They stand where the papers use an LLM judge (Pre-Route, section 1:
Judge; Chen et al., 2026, arXiv 2605.10235); which one was used is named in every paired score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from prerouter.core.records import Answer, ArmScore, Evidence, MissingReason, Reference
from prerouter.measures.abstention import abstention
from prerouter.measures.choices import choice
from prerouter.measures.words import fold, normalise, split_words

if TYPE_CHECKING:
    from rouge_score.rouge_scorer import RougeScorer

# rouge-score fills a table of reference words x prediction words in pure Python, 0.3 s for two
# million cells. Within these bounds a 31,000-character answer is cut only where the reference has
# more than some 300 words.
MAX_ROUGE_REFERENCE_WORDS = 1_000
MAX_ROUGE_CELLS = 2_000_000


def token_f1(prediction: str, answer: str) -> float:
    """Harmonic mean of word precision and recall over multisets of normalised words."""
    predicted, wanted = split_words(normalise(prediction)), split_words(normalise(answer))
    shared = (Counter(predicted) & Counter(wanted)).total()
    return 2 * shared / (len(predicted) + len(wanted)) if shared else 0.0


def token_recall(prediction: str, answer: str) -> float:
    """Share of the answer's normalised words that the prediction holds; length costs nothing."""
    predicted, wanted = split_words(normalise(prediction)), split_words(normalise(answer))
    shared = (Counter(predicted) & Counter(wanted)).total()
    return shared / len(wanted) if shared else 0.0


def exact_match(prediction: str, answer: str) -> float:
    """1.0 where both texts are the same after normalisation, else 0.0."""
    return float(normalise(prediction) == normalise(answer))


def rouge_l(prediction: str, answer: str) -> float:
    """ROUGE-L F-measure (Lin, 2004) by the rouge-score library, over Unicode words.

    What both texts begin and end with is common to them and needs no table. For the rest, the
    table is bounded: words past a bound count in the lengths but match nothing, so that a cut
    never flatters and the score is then a lower bound.
    """
    predicted, wanted = split_words(fold(prediction)), split_words(fold(answer))
    if not predicted or not wanted:
        return 0.0
    first = _shared_start(predicted, wanted)
    last = _shared_start(predicted[first:][::-1], wanted[first:][::-1])
    common = first + last
    rest = wanted[first : len(wanted) - last][:MAX_ROUGE_REFERENCE_WORDS]
    if rest:
        against = predicted[first : len(predicted) - last][: MAX_ROUGE_CELLS // len(rest)]
        score = _rouge_scorer().score(" ".join(rest), " ".join(against))["rougeL"]
        common += round(score.recall * len(rest))
    return 2 * common / (len(predicted) + len(wanted))


def _shared_start(one: list[str], other: list[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class _FoldedWords:
    """rouge-score's own tokenizer drops every word that isn't ASCII; these are words already."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


@cache
def _rouge_scorer() -> RougeScorer:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], tokenizer=_FoldedWords())


def evidence_recall(prediction: str, evidence: Sequence[Evidence]) -> float:
    """Share of the evidence passages that stand whole, word for word, in the prediction.

    Raises ValueError where there is no evidence: that is no score, not a zero.
    """
    if not evidence:
        raise ValueError("evidence recall needs at least one passage")
    text = _as_phrase(prediction)
    return sum(_as_phrase(passage.text) in text for passage in evidence) / len(evidence)


def _as_phrase(text: str) -> str:
    return f" {' '.join(split_words(fold(text)))} "


def grade(value: float, grades: int) -> int:
    """A metric in 0..1 as a whole grade in 0..grades (LaRA's 0 to 4), to the nearest, halves up.

    Monotone; 0.0 is grade 0 and 1.0 is the highest. Raises ValueError for a value off the scale.
    """
    if not 0 <= value <= 1:
        raise ValueError(f"a metric lies in 0..1, got {value}")
    # Rounded first, so that 0.7 x 5 = 3.4999999999999996 is a half as it is on paper.
    return math.floor(round(value * grades, 9) + 0.5)


def _against_answer(
    metric: Callable[[str, str], float],
) -> Callable[[str, Reference], float | MissingReason]:
    def score(text: str, reference: Reference) -> float | MissingReason:
        if not (reference.answer or "").strip():
            return MissingReason.NO_REFERENCE
        return metric(text, reference.answer or "")

    return score


def _choice_score(text: str, reference: Reference) -> float | MissingReason:
    if not (reference.answer or "").strip():
        return MissingReason.NO_REFERENCE
    value = choice(text, reference.answer or "", reference.choices)
    return MissingReason.NOT_SCORABLE if value is None else value


def _evidence_score(text: str, reference: Reference) -> float | MissingReason:
    if not reference.evidence:
        return MissingReason.NO_REFERENCE
    return evidence_recall(text, reference.evidence)


METRICS: dict[str, Callable[[str, Reference], float | MissingReason]] = {
    "token_f1": _against_answer(token_f1),
    "token_recall": _against_answer(token_recall),
    "rouge_l": _against_answer(rouge_l),
    "exact_match": _against_answer(exact_match),
    "choice": _choice_score,
    "evidence_recall": _evidence_score,
}


def scale_of(metric: str, grades: int | None) -> tuple[float, float]:
    """Lowest and highest score of a metric: 0..1, or 0..grades where it is graded."""
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r}; known: {', '.join(METRICS)}")
    return 0.0, 1.0 if grades is None else float(grades)


def why_no_score(answer: Answer, reference: Reference) -> MissingReason | None:
    """Why an answer can't be held against a gold answer, whoever would; None where it can."""
    if answer.text is None or not answer.text.strip():
        return answer.missing or MissingReason.EMPTY
    if reference.answerable and not (reference.answer or "").strip():
        return MissingReason.NO_REFERENCE
    return None


def score_answer(
    answer: Answer, reference: Reference, metric: str, grades: int | None = None
) -> ArmScore:
    """The QA score of one answer on `scale_of(metric, grades)`, or why there is none.

    A missing answer stays missing with its reason, a blank one is EMPTY; without gold (for
    `evidence_recall`: without evidence) there is NO_REFERENCE. An unanswerable question is scored
    by abstention whatever the metric (1.0 or 0.0). Where there is an answer, a text that abstains
    is scored by the metric like any other.
    """
    _, high = scale_of(metric, grades)
    if answer.text is None or not answer.text.strip():
        return ArmScore(missing=answer.missing or MissingReason.EMPTY)
    if reference.answerable:
        value = METRICS[metric](answer.text, reference)
    else:
        value = float(abstention(answer.text))
    if isinstance(value, MissingReason):
        return ArmScore(missing=value)
    return ArmScore(score=value if grades is None else float(grade(value, int(high))))
