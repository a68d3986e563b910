from __future__ import annotations

import time

import pytest

from prerouter.measures.choices import choice

OPTIONS = ("The treaty of Ghent", "The treaty of Paris", "Neither", "Both treaties")


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "b",
        "(B)",
        " **B** ",
        "B.",
        "“B”",
        "The correct answer is (B)",
        "The correct answer is B, because A is wrong.",
        "Answer: B",
        "**Answer:** B",
        "**Answer**: **B**",
        "The answer to this question is option B.",
        "the best choice would be B",
        "Option B is right; A confuses two wars.",
        "I choose (B)",
        r"so \boxed{B}",
        r"so \boxed{\text{B}}",
        "B) The treaty of Paris",
        "[B] as argued in section 2",
        "The treaty of Paris.",
        "It was the treaty of Paris that ended it.",
        "Looking at it all, (B) fits.",
        "The answer is b",
        "answer: b",
        "option b",
        "The answer is 'B'",
        '{"answer": "B"}',
        "<answer>B</answer>",
        "B is the correct answer",
        "I think it's B",
        "It is not A. It is B.",
        "I rule out (A) and (C). The correct answer is (B).",
        "A. no\nB. yes\nThe answer is B",
        "答案：B",
        "答案是B。",
        "答案为B因为其他都错",
        "我选（B）",
        "（Ｂ）",
    ],
)
def test_usual_spellings_of_a_letter(text: str) -> None:
    assert choice(text, "B", OPTIONS) == 1.0
    assert choice(text, "C", OPTIONS) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A or B",
        "A, B",
        "The correct answer is A or B",
        "The correct answer is (A) or (B).",
        "Answer: A and C",
        "the answer is b or c",
        "Answer: A, C",
        "答案是A或B",
        "It is not (A).",
        "(A) is wrong",
        "It was not the treaty of Paris",
        "b. because it says so",
        "The document does not say whether B or C is meant",
        "The answer is A. On reflection, the answer is B.",
        "(A) and (B) both fit",
        "The answer is a matter of taste",
        "The answer is not A.",
        "The treaty of Ghent or the treaty of Paris",
        "E",
        "A treaty was signed",
    ],
)
def test_no_choice_or_several_is_not_scorable(text: str) -> None:
    assert choice(text, "B", OPTIONS) is None


@pytest.mark.parametrize("text", ["The answer is a.", "answer: a", "the answer is (a)", "(a)", "a"])
def test_a_small_a_is_a_letter_where_it_ends_the_sentence(text: str) -> None:
    assert choice(text, "A", OPTIONS) == 1.0


@pytest.mark.parametrize(
    "text", ["I can't tell.", "The passage does not say.", "The document doesn't mention it."]
)
def test_declining_to_choose_is_wrong(text: str) -> None:
    assert choice(text, "A", OPTIONS) == choice(text, "B") == 0.0


def test_gold_may_be_the_words_of_a_choice() -> None:
    assert choice("B", "the treaty of Paris", OPTIONS) == 1.0
    assert choice("B", "the treaty of Vienna", OPTIONS) is None


def test_letters_run_over_the_choices() -> None:
    assert choice("E", "E", [str(number) for number in range(10, 15)]) == 1.0
    assert choice("C", "A", ["yes", "no"]) is None
    assert choice("D", "D") == 1.0


@pytest.mark.parametrize(
    "soup",
    [
        *("x\n", "\n", "(", "answer ", "option A ", "answer is (", "answer: A ", "it is ", "A, "),
        *("答案", "not (A) ", "(A)", "A or "),
    ],
)
def test_token_soup_takes_no_time(soup: str) -> None:
    start = time.process_time()
    choice("x" + soup * (31_000 // len(soup)) + "x", "B", OPTIONS)
    assert time.process_time() - start < 2
