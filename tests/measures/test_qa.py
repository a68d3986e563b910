from __future__ import annotations

import random
import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from prerouter.core.records import Answer, Evidence, MissingReason, Reference, Route
from prerouter.measures.qa import (
    METRICS,
    evidence_recall,
    exact_match,
    grade,
    rouge_l,
    scale_of,
    score_answer,
    token_f1,
    token_recall,
)
from prerouter.recipe.scores import ScoreSection

SCRIPTS = [
    "The treaty was signed at Ghent in 1814.",
    "条約は1814年にヘントで調印された。",
    "条约于1814年在根特签署。",
    "Договор был подписан в Генте.",
    "تم توقيع المعاهدة في غنت",
    "संधि पर गेन्ट में हस्ताक्षर हुए",
    "สนธิสัญญาลงนามที่เกนต์",
    "조약은 겐트에서 체결되었다",
    "%",
    "A",
]


@pytest.mark.parametrize("text", SCRIPTS)
@pytest.mark.parametrize("metric", [token_f1, token_recall, rouge_l, exact_match])
def test_identical_text_scores_one_in_every_script(metric: object, text: str) -> None:
    assert callable(metric)
    assert metric(text, text) == 1.0
    assert metric(f"  {text}\n", text) == 1.0
    assert metric("xyz qqq", text) == 0.0
    assert metric("", text) == 0.0


def test_token_f1_and_recall_by_hand() -> None:
    prediction, answer = "The clerk must come in early, early!", "He must come early the next day."
    # clerk must come in early early | he must come early next day: three words in common.
    assert token_f1(prediction, answer) == pytest.approx(2 * 3 / (6 + 6))
    assert token_recall(prediction, answer) == pytest.approx(3 / 6)
    assert token_recall(prediction + " And much more that nobody asked for.", answer) == 0.5


def test_numbers_are_not_run_together() -> None:
    assert exact_match("3.5", "35") == 0.0
    assert exact_match("$1,000", "1000") == 1.0
    assert exact_match("-5%", "5%") == 0.0


class _Split:
    def tokenize(self, text: str) -> list[str]:
        return text.split()


def test_rouge_l_is_the_librarys() -> None:
    scorer = RougeScorer(["rougeL"], tokenizer=_Split())
    draw = random.Random(0)
    for _ in range(300):
        one, other = (
            " ".join(draw.choices(["red", "green", "blue", "the"], k=draw.randint(1, 12)))
            for _ in range(2)
        )
        expected = scorer.score(other, one)["rougeL"].fmeasure
        assert rouge_l(one, other) == pytest.approx(expected)


def test_rouge_l_of_long_answers_is_bounded_and_never_flatters() -> None:
    soup = " ".join(f"w{number % 997}" for number in range(6_000))
    start = time.process_time()
    assert rouge_l(soup, soup) == 1.0
    cut = rouge_l(soup, "w5 " + soup + " w3")
    assert time.process_time() - start < 10
    assert 0 < cut < 2 * 6_000 / 12_002
    assert rouge_l(soup, "w1 w2 nothing") == pytest.approx(2 * 2 / 6_003)


def test_evidence_recall_counts_whole_passages() -> None:
    evidence = [Evidence(text="signed at Ghent"), Evidence(text="In 1814,")]
    assert evidence_recall("It was Signed at\nGhent.", evidence) == 0.5
    assert evidence_recall("signed at Ghent in 1814", evidence) == 1.0
    assert evidence_recall("designed at Ghent in 18145", evidence) == 0.0
    with pytest.raises(ValueError, match="at least one passage"):
        evidence_recall("text", [])


@pytest.mark.parametrize(
    ("value", "grades", "expected"),
    [
        (0.0, 4, 0),
        (0.12, 4, 0),
        (0.125, 4, 1),
        (0.5, 4, 2),
        (0.874, 4, 3),
        (0.875, 4, 4),
        (1.0, 4, 4),
        (0.5, 1, 1),
        (0.29, 50, 15),
    ],
)
def test_grades_round_to_the_nearest_halves_up(value: float, grades: int, expected: int) -> None:
    assert grade(value, grades) == expected


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 100))
def test_grades_are_monotone_and_on_their_scale(one: float, other: float, grades: int) -> None:
    low, high = sorted((one, other))
    assert 0 <= grade(low, grades) <= grade(high, grades) <= grades


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_value_off_the_scale_has_no_grade(value: float) -> None:
    with pytest.raises(ValueError, match="lies in"):
        grade(value, 4)


def answer(text: str | None, missing: MissingReason | None = None) -> Answer:
    return Answer(case_id="c", route=Route.RAG, text=text, missing=missing)


def reference(**fields: object) -> Reference:
    return Reference.model_validate({"question_id": "q", **fields})


@pytest.mark.parametrize("metric", METRICS)
def test_missing_stays_missing(metric: str) -> None:
    gold = reference(answer="B", evidence=({"text": "B"},))
    failed = score_answer(answer(None, MissingReason.CALL_FAILED), gold, metric)
    assert failed.missing is MissingReason.CALL_FAILED
    assert failed.score is None
    assert score_answer(answer(" \n"), gold, metric).missing is MissingReason.EMPTY
    bare = score_answer(answer("B"), reference(), metric)
    assert bare.missing is MissingReason.NO_REFERENCE
    blank = score_answer(answer("B"), reference(answer=" "), metric)
    assert blank.missing is MissingReason.NO_REFERENCE


@pytest.mark.parametrize("metric", METRICS)
def test_unanswerable_questions_are_scored_by_abstention(metric: str) -> None:
    gold = reference(answerable=False)
    assert score_answer(answer("The document does not tell."), gold, metric).score == 1.0
    assert score_answer(answer("At Ghent."), gold, metric).score == 0.0
    assert score_answer(answer("The document does not tell."), gold, metric, 4).score == 4.0


def test_an_abstaining_answer_to_an_answerable_question_scores_by_the_metric() -> None:
    gold = reference(answer="The filing does not disclose a dividend.")
    assert score_answer(answer(gold.answer), gold, "token_f1").score == 1.0
    assert score_answer(answer("Not mentioned."), reference(answer="Ghent"), "token_f1").score == 0


def test_short_right_answers_are_right() -> None:
    for text in ("None", "1", "9"):
        assert score_answer(answer(text + " \n"), reference(answer=text), "token_f1").score == 1.0


def test_unreadable_choices_are_not_scorable() -> None:
    gold = reference(answer="B", choices=("one", "two", "three", "four"))
    assert score_answer(answer("The answer is (B)"), gold, "choice", 4).score == 4.0
    assert score_answer(answer("hard to say"), gold, "choice").missing is MissingReason.NOT_SCORABLE


@pytest.mark.parametrize("grades", [None, 1, 4, 100])
def test_scores_stay_on_their_scale(grades: int | None) -> None:
    low, high = scale_of("token_f1", grades)
    assert (low, high) == (0.0, 1.0 if grades is None else grades)
    for text in ("at Ghent", "Ghent in the year of 1814 or so", "nowhere"):
        score = score_answer(answer(text), reference(answer="At Ghent"), "token_f1", grades).score
        assert score is not None
        assert low <= score <= high


def test_the_metrics_are_those_of_the_recipe() -> None:
    assert tuple(METRICS) == get_args(ScoreSection.model_fields["metric"].annotation)
    with pytest.raises(ValueError, match="known: token_f1"):
        scale_of("bleu", None)
