"""What both forms of the LaRA benchmark are read into, before cases are made of it.

LaRA: Li et al., 2025, arXiv 2502.09977. One vocabulary for both forms: document types novel,
financial, paper; levels location, reasoning, comparison, hallucination; lengths 32k and 128k.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from prerouter.core.records import DocumentFile, DocumentProfile, MissingReason, Route
from prerouter.sources.problems import Problem, Problems, RejectReason

LENGTHS = ("32k", "128k")
# The words of LaRA's file names, and the words used here.
DOCUMENT_TYPES = {"book": "novel", "financial": "financial", "paper": "paper"}
LEVELS = {
    "location": "location",
    "reasoning": "reasoning",
    "comp": "comparison",
    "hallu": "hallucination",
}


@dataclass(frozen=True)
class Stratum:
    """Length, document type and level, which a file's name tells more reliably than its rows."""

    length: str
    type: str
    level: str

    @classmethod
    def of_file_name(cls, stem: str) -> tuple[str, Stratum] | None:
        """The part before the stratum ("" in query files) and the stratum; None for other files.

        Read from the right: names of models are prefixes of each other, and hold dots and dashes.
        """
        before, length, kind, level = ["", "", "", *stem.rsplit("_", 3)][-4:]
        if length not in LENGTHS or kind not in DOCUMENT_TYPES or level not in LEVELS:
            return None
        return before, cls(length, DOCUMENT_TYPES[kind], LEVELS[level])


@dataclass(frozen=True)
class Question:
    """One question over one file. `order` is a chunk's number, two for a comparison, or "full"."""

    stratum: Stratum
    file: str
    order: str
    question: str
    ground_truth: str
    raw_type: str
    rights: str | None = None

    @property
    def id(self) -> str:
        """12 hex digits of SHA-1, as the compact form defines its ids.

        Neither the question nor file and question are a key; with the order they are.
        """
        place = (self.stratum.length, self.stratum.type, self.stratum.level)
        text = "|".join((*place, self.file, self.order, self.question))
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:12]

    @property
    def document_id(self) -> str:
        return f"{self.stratum.length}/{self.stratum.type}/{self.file}"


Prediction = str | MissingReason


@dataclass
class Gathered:
    """One form of the benchmark, read. `answers` is keyed by answer model, question and route."""

    problems: Problems
    questions: dict[str, Question] = field(default_factory=dict)
    answers: dict[tuple[str, str, Route], Prediction] = field(default_factory=dict)
    profiles: dict[str, DocumentProfile] = field(default_factory=dict)
    files: list[DocumentFile] = field(default_factory=list)
    bodies: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add_question(self, question: Question, place: str, raw: str) -> None:
        """Keep a question, unless its id is taken: then it is a repetition or a contradiction."""
        known = self.questions.setdefault(question.id, question)
        if known is question:
            return
        if same_text(known.ground_truth, question.ground_truth):
            reason, what = RejectReason.DUPLICATE, "repeats a question"
        else:
            reason, what = RejectReason.CONFLICTING_QUESTION, "has another answer to a question"
        what = f"{what} of file {question.file!r} at the same place"
        self.problems.refuse(Problem(reason, place, what, "each question once"), raw=raw)

    def add_answer(
        self, model: str, question_id: str, route: Route, prediction: Prediction, place: str
    ) -> None:
        key = (model, question_id, route)
        if key in self.answers:
            what = f"{model} has a second {route.value} answer to question {question_id}"
            self.problems.refuse(
                Problem(RejectReason.DUPLICATE, place, what, "one answer"), key=question_id
            )
            return
        self.answers[key] = prediction


def same_text(one: str, other: str) -> bool:
    """Equal but for white space, which the released files do not keep faithfully."""
    return one.split() == other.split()


def read_prediction(value: Any) -> Prediction | None:
    """A prediction as it stands in a row; None where it is neither text nor a known failure.

    LaRA writes a failed call as the boolean false, which is no answer and never the word "False".
    """
    if value is False:
        return MissingReason.CALL_FAILED
    if value is None:
        return MissingReason.NOT_GIVEN
    if not isinstance(value, str):
        return None
    return value if value.strip() else MissingReason.EMPTY
