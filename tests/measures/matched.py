"""Small evaluations written as strings: one letter a case, R for RAG, L for LC, `?` for none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prerouter.core.records import (
    AnswerModel,
    ArmScore,
    Decision,
    DecisionFailure,
    DocumentProfile,
    Label,
    PairedScore,
    Route,
    RoutingCase,
)
from prerouter.measures.outcomes import Outcomes, join_outcomes

LETTERS = {"R": Route.RAG, "L": Route.LC, "?": None}


@dataclass(frozen=True)
class Evaluation:
    decisions: dict[str, list[Decision]]
    labels: list[Label]
    scores: list[PairedScore]
    cases: list[RoutingCase]

    def outcomes(self) -> Outcomes:
        return join_outcomes(self.decisions, self.labels, self.scores, self.cases)


def evaluation(
    qa: Sequence[tuple[float, float]],
    routers: dict[str, str],
    groups: str | None = None,
    p_lc: dict[str, Sequence[float]] | None = None,
    types: Sequence[str | None] | None = None,
) -> Evaluation:
    """Case `c0`, `c1`, … with (QA by RAG, QA by LC); one letter of `groups` names a document."""
    cases = [
        RoutingCase(
            case_id=f"c{i}",
            question_id=f"q{i}",
            group_id=groups[i] if groups else f"d{i}",
            question="Who?",
            document=DocumentProfile(document_id="d", type=types[i] if types else None),
            answer_model=AnswerModel(name="m"),
        )
        for i in range(len(qa))
    ]
    return Evaluation(
        decisions={
            router: [
                Decision(
                    case_id=f"c{i}",
                    router=router,
                    route=LETTERS[letter],
                    failure=None if LETTERS[letter] else DecisionFailure.UNPARSABLE,
                    p_lc=p_lc[router][i] if p_lc and router in p_lc else None,
                )
                for i, letter in enumerate(letters)
            ]
            for router, letters in routers.items()
        },
        labels=[
            Label(case_id=f"c{i}", route=Route.LC if lc > rag else Route.RAG, margin=lc - rag)
            for i, (rag, lc) in enumerate(qa)
        ],
        scores=[
            PairedScore(
                case_id=f"c{i}",
                arms={Route.RAG: ArmScore(score=rag), Route.LC: ArmScore(score=lc)},
                judge="token_f1",
            )
            for i, (rag, lc) in enumerate(qa)
        ],
        cases=cases,
    )
