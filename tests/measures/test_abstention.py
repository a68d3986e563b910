from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from prerouter.measures.abstention import abstention, declines


@pytest.mark.parametrize(
    "text",
    [
        "The document does not tell.",
        "The text doesn't specify her favourite book.",
        "The text doesn’t say.",
        "The story never mentions a horse.",
        "The report for Tesla, Inc. does not disclose it.",
        "The provided chunks do not explicitly mention this.",
        "Paper 2 does not compare the framework with adversarial networks.",
        "Not mentioned.",
        "not specified",
        "N/A",
        "Unknown.",
        "It is not explicitly stated in the filing.",
        "The name of the street isn't mentioned.",
        "The growth rate is not provided in the given chunks.",
        "No information.",
        "There is no information about a carbon footprint.",
        "There is no mention of an imaginary friend for Elara.",
        "No projected revenue growth rate is provided in the given chunks.",
        "Based on the filing, there are no sales forecasts.",
        "No book mentioned.",
        "The passage contains no details on that.",
        "This cannot be determined from the text.",
        "The question can't be answered.",
        "I could not find any reference to this.",
        "I apologize, but I cannot find specific details about it.",
        "It is impossible to determine the colour.",
        "It's not possible to say.",
        "There is insufficient information to answer.",
        "There isn't enough information here.",
        "I don't know.",
        "I don't have access to that information.",
        "We don't have a specific formula mentioned in the provided chunks.",
        "No information is given.",
        "The report does not include information on revenue in 2023.",
        "The answer is not in the document.",
        "There is nothing about this in the excerpts.",
        "This is not covered.",
        "UNANSWERABLE",
        "She rode out at dawn.\nHowever, the text does not give the name of her horse.",
    ],
)
def test_says_that_the_document_does_not_tell(text: str) -> None:
    assert abstention(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "None",
        "none",
        "1",
        "9",
        "No",
        "No.",
        "Not before 1815.",
        "He did not attend the wedding.",
        "She has no children.",
        "The company did not pay a dividend in 2023.",
        "It does not matter to him.",
        "He cannot find his wife.",
        "The bond was not repaid.",
        "There was no known cure.",
        "Nothing.",
        "An unknown soldier",
        "The body was not found until spring.",
        "The Yankees.",
        "No information was lost.",
        "This charge is not part of the adjusted income statement.",
        "That method is not in this paper's scope.",
        "The answer is not in the second section but in the third.",
        "I do not have a horse, said Tom.",
        "The letter was not found in the book case but under the bed.",
        "It is not covered by insurance.",
        "He told no one about the letter. They were never seen again.",
        "The text says that he left. He does not return.",
        "Revenue was not available for distribution to shareholders.",
        "The notable thing is that nobody mentioned it was raining.",
    ],
)
def test_answers_that_merely_deny(text: str) -> None:
    assert not abstention(text)


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Watson is not mentioned in the text.",
        "The U.S. Government is not mentioned.",
        "**Answer:**\nNot mentioned in the document.",
        "Based on the provided text:\n\nThe document does not mention it.",
        "Sure! The document does not mention it.",
        "I apologize. The document does not mention it.",
        "The text does not include his age in years.",
        "I do not have the document.",
        "No information was presented.",
        "The answer is not provided in the text, but from context it may be 1990.",
        "The answer is not in the document.",
        "There is nothing about this in the excerpts.",
        "This is not covered.",
    ],
)
def test_answers_that_begin_with_an_abstention_decline(text: str) -> None:
    assert abstention(text)
    assert declines(text)


def test_a_caveat_behind_an_answer_is_no_decline() -> None:
    answered = "She rode out at dawn.\nHowever, the text does not give the name of her horse."
    assert abstention(answered)
    assert not declines(answered)
    assert declines("  The text of Acme, Inc. does not say. She may have ridden out at dawn.")
    assert declines("Not mentioned.\nShe rode out.")
    assert not declines("")


def test_the_gold_answers_of_lara(lara_dir: Path) -> None:
    """Gold answers of hallucination questions abstain, all others answer."""
    with gzip.open(lara_dir / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    absent = [row for row in rows if row["level"] == "hallucination"]
    present = [row for row in rows if row["level"] != "hallucination"]
    assert all(abstention(row["ground_truth"]) for row in absent)
    # Of 1,331: two answers are about systems that can't answer questions from documents.
    assert sum(abstention(row["ground_truth"]) for row in present) <= 2


@pytest.mark.parametrize("word", ["no ", "text ", "not given by text of in ", "it does not ", "I "])
def test_token_soup_takes_no_time(word: str) -> None:
    start = time.process_time()
    abstention(word * (31_000 // len(word)))
    assert time.process_time() - start < 3
