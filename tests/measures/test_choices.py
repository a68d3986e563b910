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
    ],
)
def test_usual_spellings_of_a_letter(text: str) -> None:
    assert choice(text, "B", OPTIONS) == 1.0
    assert choice(text, "C", OPTIONS) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I can't tell.",
        "A or B",
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


def test_gold_may_be_the_words_of_a_choice() -> None:
    assert choice("B", "the treaty of Paris", OPTIONS) == 1.0
    assert choice("B", "the treaty of Vienna", OPTIONS) is None


def test_letters_run_over_the_choices() -> None:
    assert choice("E", "E", [str(number) for number in range(10, 15)]) == 1.0
    assert choice("C", "A", ["yes", "no"]) is None
    assert choice("D", "D") == 1.0


@pytest.mark.parametrize("soup", ["x\n", "\n", "(", "answer ", "option A ", "answer is ("])
def test_token_soup_takes_no_time(soup: str) -> None:
    start = time.process_time()
    choice("x" + soup * (31_000 // len(soup)) + "x", "B", OPTIONS)
    assert time.process_time() - start < 2
