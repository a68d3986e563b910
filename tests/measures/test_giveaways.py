"""Words that give RAG answers away: found, made neutral, left where they mean something else."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from prerouter.measures.abstention import abstention
from prerouter.measures.giveaways import gives_away, neutralise


@pytest.mark.parametrize(
    ("text", "neutral"),
    [
        ("The provided chunks do not mention it.", "The document does not mention it."),
        ("Based on the retrieved chunks, she left.", "Based on the document, she left."),
        ("It is not in the chunks provided.", "It is not in the document."),
        ("These passages don't say why.", "The document doesn't say why."),
        ("The excerpts you've provided are silent.", "The document is silent."),
        ("The chunks also discuss lambs.", "The document also discusses lambs."),
        ("The two text chunks specify no date.", "The document specifies no date."),
        ("According to chunk 0 and chunk 3, it grew.", "According to the document, it grew."),
        ("It grew (chunk 3), then fell [Passage 2].", "It grew, then fell."),
        ("Chunk #2 says so.", "The document says so."),
        (
            "None of the given snippets of the novel were clear.",
            "Nothing in the document was clear.",
        ),
        ("Neither of the chunks has it.", "Nothing in the document has it."),
        ("It is in none of the chunks.", "It is in nothing in the document."),
        ("As the first chunk of paper 2 shows, it grew.", "As the document shows, it grew."),
        ("Based on the provided context, no.", "Based on the document, no."),
        ("According to the context, yes.", "According to the document, yes."),
        ("In the retrieved documents there is nothing.", "In the document there is nothing."),
        ("Any of the passages does it.", "The document does it."),
    ],
)
def test_a_source_is_called_the_document(text: str, neutral: str) -> None:
    assert gives_away(text)
    found = neutralise(text)
    assert found.casefold() == neutral.casefold()
    assert not gives_away(found)
    assert neutralise(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "With the passage of time he forgave her.",
        "There were no secret passages in the house.",
        "The chunk size is 512 tokens.",
        "She broke off a chunk of bread.",
        "In the context of the war it was brave.",
        "The retriever returns retrieved documents by score.",
        "They split prompts into fixed-size chunks.",
        "He crossed the passage between the kitchen and the hall.",
        "The report does not mention it.",
        "",
    ],
)
def test_the_matter_stays_as_it_is(text: str) -> None:
    assert neutralise(text) == text


@pytest.mark.parametrize("text", ["There is a secret passage.", "split into chunks", "Excerpt"])
def test_what_is_left_is_still_counted(text: str) -> None:
    assert gives_away(neutralise(text))


@pytest.mark.parametrize(
    "text", ["The report is silent.", "information retrieval", "in the context of", "chunky"]
)
def test_other_words_give_nothing_away(text: str) -> None:
    assert not gives_away(text)


@pytest.mark.parametrize(
    "text",
    [
        "the " * 30_000,
        " " * 100_000 + "(",
        "chunk 1, " * 20_000,
        "the provided " * 15_000,
        "chunk" + " " * 100_000,
        "any of the " * 15_000,
    ],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    began = time.perf_counter()
    neutralise(text)
    gives_away(text)
    assert time.perf_counter() - began < 2


def test_of_real_answers_few_tell_after_it_and_none_says_anything_else(lara_dir: Path) -> None:
    told = {"rag": 0, "lc": 0}
    left = {"rag": 0, "lc": 0}
    with gzip.open(lara_dir / "predictions" / "claude-3-5-sonnet-20241022.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            for arm in told:
                text = row[f"{arm}_prediction"]
                if isinstance(text, str) and gives_away(text):
                    clean = neutralise(text)
                    told[arm] += 1
                    left[arm] += gives_away(clean)
                    assert neutralise(clean) == clean
                    assert abstention(clean) == abstention(text)
    assert told["rag"] > 10 * told["lc"]
    assert left["rag"] < 0.1 * told["rag"]
