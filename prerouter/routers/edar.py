"""EDAR, the entropy-driven adaptive router (Olufadewa et al., 2026, arXiv 2609.35831)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prerouter.core.protocols import Router
from prerouter.core.records import Answer, Decision, DecisionFailure, Route, RoutingCase
from prerouter.measures.entropy_routing import answer_entropy
from prerouter.routers.self_route import Written, unanswered


@dataclass(frozen=True)
class Sorted:
    """Whether a query asks for global synthesis, or why that isn't known, and what it took."""

    synthesis: bool | None
    failure: DecisionFailure | None = None
    raw: str | None = None
    model: str | None = None
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


class QueryClassifier(Protocol):
    """Sorts queries into point extraction and global synthesis, by the question alone."""

    def sort(self, cases: Sequence[RoutingCase]) -> list[Sorted]: ...


class Edar:
    """Synthesis queries go straight to LC. For the others RAG is run, and where the mean entropy of
    its first tokens is above `tau` bits, its answer is dropped and the document is read.

    Without a `classifier` every query runs RAG first (the paper's ablation). A case whose answer or
    entropies are missing is undecided: never taken for certain.
    """

    def __init__(
        self, name: str, written: Written, tau: float, classifier: QueryClassifier | None = None
    ) -> None:
        self.name = name
        self._written = written
        self._tau = tau
        self._classifier = classifier

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        kinds = self._classifier.sort(cases) if self._classifier else [Sorted(False)] * len(cases)
        for case, kind, answer in zip(cases, kinds, self._written(cases), strict=True):
            spent = {
                "model": kind.model,
                "calls": kind.calls,
                "prompt_tokens": kind.prompt_tokens,
                "completion_tokens": kind.completion_tokens,
                "seconds": kind.seconds,
            }
            if kind.synthesis is None:
                checked = Decision(
                    case_id=case.case_id, router=self.name, failure=kind.failure, raw=kind.raw
                )
            elif kind.synthesis:
                checked = Decision(case_id=case.case_id, router=self.name, route=Route.LC)
            else:
                checked = checked_by_entropy(case, self.name, answer, self._tau)
            yield checked.model_copy(update=spent)


class CheckedPreRoute:
    """Pre-Route, then a check: what it sends to RAG, an entropy above `tau` sends to LC after all.
    Ours: neither paper has the two together."""

    def __init__(self, name: str, before: Router, written: Written, tau: float) -> None:
        self.name = name
        self._before = before
        self._written = written
        self._tau = tau

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        decided = zip(cases, self._before.route(cases), self._written(cases), strict=True)
        for case, decision, answer in decided:
            # What p_lc was before the check is no probability of what comes after it.
            own: dict[str, Any] = {"router": self.name, "p_lc": None}
            if decision.route is Route.RAG:
                checked = checked_by_entropy(case, self.name, answer, self._tau)
                own |= checked.model_dump(include={"route", "failure", "raw", "wrote"})
            yield decision.model_copy(update=own)


def checked_by_entropy(case: RoutingCase, router: str, answer: Answer, tau: float) -> Decision:
    """RAG where its answer's first tokens are certain enough, else LC."""
    if answer.text is None:
        return unanswered(case, router, answer)
    entropy = answer_entropy(answer)
    # Where nothing was retrieved, no model was asked: the reader declines, as Self-Route's does.
    nothing_read = answer.prompt_tokens == 0
    if entropy is None and not nothing_read:
        failure = DecisionFailure.NO_ENTROPY
        return Decision(case_id=case.case_id, router=router, failure=failure, wrote=Route.RAG)
    certain = entropy is not None and entropy <= tau
    return Decision(
        case_id=case.case_id,
        router=router,
        route=Route.RAG if certain else Route.LC,
        wrote=Route.RAG,
    )
