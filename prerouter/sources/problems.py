"""What can be wrong with a source's files: stop with every mistake, or set the bad rows aside."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from prerouter.core.errors import CombinedError, InputError, PrerouterError
from prerouter.core.records import Reject

SHOWN = 20


class RejectReason(StrEnum):
    """Why a row of a source is no case."""

    UNREADABLE_LINE = "unreadable_line"
    INVALID_UTF8 = "invalid_utf8"
    WRONG_FIELD_COUNT = "wrong_field_count"
    EMPTY_QUESTION = "empty_question"
    NOT_TEXT = "not_text"
    NOT_A_NUMBER = "not_a_number"
    NOT_FINITE = "not_finite"
    OFF_SCALE = "off_scale"
    BAD_COUNT = "bad_count"
    BAD_BOOLEAN = "bad_boolean"
    TOO_LONG = "too_long"
    NO_ANSWER_MODEL = "no_answer_model"
    SEVERAL_ANSWER_MODELS = "several_answer_models"
    DUPLICATE = "duplicate"
    CONFLICTING_QUESTION = "conflicting_question"
    CONFLICTING_REFERENCE = "conflicting_reference"
    CONFLICTING_DOCUMENT = "conflicting_document"
    DOCUMENT_OUTSIDE = "document_outside"
    DOCUMENT_MISSING = "document_missing"
    DOCUMENT_UNREADABLE = "document_unreadable"
    DOCUMENT_ALTERED = "document_altered"
    EVIDENCE_NOT_FOUND = "evidence_not_found"
    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    EMPTY_FIELD = "empty_field"
    BAD_LETTER = "bad_letter"
    SCORE_WITHOUT_CASE = "score_without_case"
    ANSWER_WITHOUT_QUESTION = "answer_without_question"


@dataclass(frozen=True)
class Problem:
    """One mistake, as the error says it and as a reject counts it."""

    reason: RejectReason
    place: str
    what: str
    accepted: str = ""
    next_step: str = ""

    @property
    def error(self) -> InputError:
        return InputError(self.place, self.what, self.accepted, self.next_step)


@dataclass
class Problems:
    """Collects mistakes. With `skip_bad` each bad row is a Reject; else `stop` raises them all."""

    skip_bad: bool
    stage: str = "cases"
    rejects: list[Reject] = field(default_factory=list)
    errors: list[PrerouterError] = field(default_factory=list)

    def refuse(self, *problems: Problem, raw: str | None = None, key: str = "") -> None:
        """Refuse one row for all its `problems`; its reject is counted under the first."""
        if self.skip_bad:
            self.set_aside(*problems, raw=raw, key=key)
        else:
            self.errors += [problem.error for problem in problems]

    def set_aside(self, *problems: Problem, raw: str | None = None, key: str = "") -> None:
        """Reject a row whichever way the reader was called: nothing the user could mend."""
        first = problems[0]
        self.rejects.append(
            Reject(
                stage=self.stage,
                key=key or first.place,
                reason=first.reason,
                detail=" | ".join(problem.what for problem in problems),
                place=first.place,
                raw=raw,
            )
        )

    def stop(self, place: str) -> None:
        """Raise what was collected: the first mistakes in full, the number of the others."""
        if not self.errors:
            return
        hidden = len(self.errors) - SHOWN
        shown = self.errors[:SHOWN]
        if hidden > 0:
            shown = [
                *shown,
                InputError(
                    place,
                    f"and {hidden} more mistakes of {len(self.errors)}",
                    next_step="mend them, or use --skip-bad to leave the bad rows out",
                ),
            ]
        raise CombinedError(shown)
