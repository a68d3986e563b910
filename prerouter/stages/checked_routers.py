"""The routers of `route` that decide after retrieval, made from what `answer` and `score` left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prerouter.core.errors import StageError
from prerouter.core.protocols import Router
from prerouter.core.records import (
    ROUTES,
    Answer,
    Decision,
    DocumentFile,
    MissingReason,
    PairedScore,
    Reference,
    Route,
    RoutingCase,
    Split,
)
from prerouter.engines.start import RunningEngine, start_engine
from prerouter.measures.cost import used_tokens
from prerouter.measures.entropy_routing import NEVER, answer_entropy, choose_tau, sweep_tau
from prerouter.recipe.engine import EngineSection
from prerouter.recipe.route import CHECKED
from prerouter.routers.edar import CheckedPreRoute, Edar, QueryClassifier
from prerouter.routers.query_type import DistilledQueryTypes, PromptedQueryTypes
from prerouter.routers.self_route import SelfRoute, SelfRouteVerdict, Written
from prerouter.runs.manifest import write_json
from prerouter.runs.stage import StageRun
from prerouter.sources.text_files import body_of

TAU_JSON = "tau.json"
CHECKS_JSON = "checks.json"


# The verdict may need several engines, and can begin with the one that runs.
_IN_TURN = ("edar_prompted", "self_route_verdict", "pre_route_check")


def turn(name: str) -> int:
    """Where a router has its turn among the others: those that ask an engine side by side, so that
    one that both ask is started once; a check of another router's decisions after that router."""
    return _IN_TURN.index(name) if name in _IN_TURN else -1


@dataclass(frozen=True)
class _Measured:
    """A case of the development split: bits, and QA and tokens by route."""

    entropy: float | None
    qa: dict[Route, float]
    tokens: dict[Route, int]
    synthesis: bool


def _tokens(answer: Answer | None) -> int | None:
    used = used_tokens(answer) if answer else None
    return used.input + used.output if used else None


def _development_entropy(answer: Answer) -> float | None:
    """What a threshold would see of an answer. Where nothing was found to read, every threshold
    escalates, except the one that escalates nothing."""
    return NEVER - 1 if answer.prompt_tokens == 0 else answer_entropy(answer)


class Replayed:
    """A router whose decisions were taken before."""

    def __init__(self, name: str, decisions: dict[str, Decision]) -> None:
        self.name = name
        self._decisions = decisions

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            yield self._decisions[case.case_id]


class CheckedRouters:
    """What the routers after retrieval share: the answers, one threshold, one small classifier.

    All is read, learnt and loaded at its first use; an engine runs until another is asked for, so
    that routers which ask one come after all that load a model of their own (`turn`). `sides` are
    the splits by question.
    """

    def __init__(
        self, run: StageRun, cases: Sequence[RoutingCase], sides: dict[str, Split]
    ) -> None:
        assert run.recipe.route is not None
        self._run = run
        self._section = run.recipe.route.checks
        self._cases = cases
        self._sides = sides
        self._running = RunningEngine(start_engine)

    def makers(self) -> dict[str, Callable[[], Router]]:
        """A maker for each router of `CHECKED`."""
        rag, long_rag = self._written(Route.RAG), self._written(Route.LONG_RAG)
        return {
            "self_route": lambda: SelfRoute("self_route", rag),
            "long_rag_self_route": lambda: SelfRoute(
                "long_rag_self_route", long_rag, Route.LONG_RAG
            ),
            "self_route_verdict": lambda: SelfRouteVerdict(
                "self_route_verdict",
                lambda name: self._running.of(self._engine_of(name)),
                self._passages,
                self._section.verdict_by,
                lambda case: self._choices.get(case.question_id, ()),
                lambda names: self._running.side_by_side({n: self._engine_of(n) for n in names}),
            ),
            "edar": lambda: Edar("edar", rag, self._tau, self._distilled),
            "edar_prompted": lambda: Edar("edar_prompted", rag, self._tau, self._prompted),
            "edar_unclassified": lambda: Edar("edar_unclassified", rag, self._tau),
            "pre_route_check": lambda: CheckedPreRoute(
                "pre_route_check", self._before(), rag, self._tau
            ),
        }

    @cached_property
    def _answers(self) -> dict[tuple[str, Route], Answer]:
        file = self._run.recipe.answers_file
        found = {(a.case_id, a.route): a for a in self._run.read(file, Answer)}
        if not found:
            route = self._run.recipe.route
            asked = [name for name in CHECKED if route and name in route.routers]
            raise StageError(
                f"route.routers {', '.join(asked)}",
                "read answers, and there are none",
                "an `answer` section, or answers brought along",
                "leave these routers out",
            )
        return found

    def _written(self, route: Route) -> Written:
        def answers(cases: Sequence[RoutingCase]) -> list[Answer]:
            return [
                self._answers.get((case.case_id, route))
                or Answer(case_id=case.case_id, route=route, missing=MissingReason.NOT_GIVEN)
                for case in cases
            ]

        return answers

    @cached_property
    def _files(self) -> dict[str, DocumentFile]:
        rows = self._run.read("cases/documents.jsonl", DocumentFile)
        return {file.document_id: file for file in rows}

    def _passages(self, case: RoutingCase) -> list[str] | None:
        """What RAG showed of the document, in its order; None where that isn't known, because its
        answer is missing."""
        answer = self._answers.get((case.case_id, Route.RAG))
        file = self._files.get(case.document.document_id)
        if answer is None or answer.text is None or file is None:
            return None
        body = body_of(self._run.recipe.document_root, file)
        spans = sorted(answer.retrieved, key=lambda span: (span.start, span.end))
        return [body[span.start : span.end] for span in spans]

    def _engine_of(self, answer_model: str) -> EngineSection:
        answer = self._run.recipe.answer
        chosen = answer.engine_of(answer_model) if answer else None
        assert chosen is not None
        return chosen

    @cached_property
    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {each.question_id: each.choices for each in self._references if each.choices}

    @cached_property
    def _references(self) -> list[Reference]:
        return list(self._run.read("cases/references.jsonl", Reference))

    def _before(self) -> Router:
        name = self._run.recipe.checked_router
        rows = self._run.read("route/rows.jsonl", Decision)
        return Replayed(name, {row.case_id: row for row in rows if row.router == name})

    @cached_property
    def _task_types(self) -> dict[str, str]:
        """Task type by question, as the case or else the reference tells it."""
        levels = {each.question_id: each.level for each in self._references}
        found = {}
        for case in self._cases:
            kind = case.task_type or levels.get(case.question_id)
            if kind is not None:
                found[case.question_id] = kind
        return found

    @cached_property
    def _distilled(self) -> QueryClassifier:
        asked = {case.question_id: case for case in self._cases}
        known = [asked[id_] for id_ in asked if id_ in self._task_types]
        train = [c for c in known if self._sides[c.question_id] is Split.TRAIN]
        synthesis = self._section.query_types.synthesis
        classifier = DistilledQueryTypes(self._run.recipe.seed).fit(
            [case.question for case in train],
            [self._task_types[case.question_id] for case in train],
            synthesis,
        )
        test = [c for c in known if self._sides[c.question_id] is Split.TEST]
        right = [
            kind.synthesis == (self._task_types[case.question_id] in synthesis)
            for case, kind in zip(test, classifier.sort(test), strict=True)
        ]
        share = sum(self._task_types[c.question_id] in synthesis for c in test)
        words = {
            "trained_on": len(train),
            "test_questions": len(test),
            "right": sum(right),
            "synthesis_among_them": share,
        }
        self._tell("query_types", words)
        return classifier

    @cached_property
    def _prompted(self) -> QueryClassifier:
        section = self._section.query_types
        assert section.engine is not None
        engine = section.engine
        return PromptedQueryTypes(lambda: self._running.of(engine), engine.model, section.ask_by)

    @cached_property
    def _tau(self) -> float:
        """One threshold for all that read entropies: the ablation is of the classifier alone."""
        if self._section.tau is not None:
            return self._section.tau
        found = self._development()
        sweep = sweep_tau(
            [each.entropy for each in found],
            [each.qa[Route.RAG] for each in found],
            [each.qa[Route.LC] for each in found],
            [each.tokens[Route.RAG] for each in found],
            [each.tokens[Route.LC] for each in found],
            [each.synthesis for each in found],
        )
        chosen = choose_tau(sweep, self._section.tau_rule, self._section.min_share)
        told = chosen.model_dump(mode="json", exclude_none=True)
        self._tell("tau", told)
        write_json(self._run.folder / TAU_JSON, sweep.model_dump(mode="json"))
        return chosen.tau

    def _tell(self, name: str, words: dict[str, Any]) -> None:
        """Into the report, and where a run that goes on finds it: `told`."""
        path = self._run.folder / CHECKS_JSON
        write_json(path, self.told() | {name: words})

    def told(self) -> dict[str, Any]:
        """What was chosen and learnt on the way, for the report; by an earlier attempt, too."""
        path = self._run.folder / CHECKS_JSON
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return found

    def _development(self) -> list[_Measured]:
        """The cases that the threshold is chosen on: of the split, those whose answers by both
        routes are scored and their tokens and entropies known."""
        split = self._section.split
        inside = [
            case
            for case in self._cases
            if self._run.recipe.learning_side(case, self._sides[case.question_id]) is split
        ]
        rows = self._run.read(self._run.recipe.scores_file, PairedScore)
        scores = {pair.case_id: pair.arms for pair in rows}
        kinds = self._distilled.sort(inside) if self._classified else None
        found = []
        for place, case in enumerate(inside):
            answers = {r: self._answers.get((case.case_id, r)) for r in ROUTES}
            tokens = {r: _tokens(answer) for r, answer in answers.items()}
            arms = scores.get(case.case_id, {})
            qa = {r: arms[r].score if r in arms else None for r in ROUTES}
            rag = answers[Route.RAG]
            entropy = _development_entropy(rag) if rag else None
            synthesis = bool(kinds and kinds[place].synthesis)
            known = {r: score for r, score in qa.items() if score is not None}
            counted = {r: count for r, count in tokens.items() if count is not None}
            if len(known) == len(counted) == len(ROUTES) and (synthesis or entropy is not None):
                found.append(_Measured(entropy, known, counted, synthesis))
        bounds = sum(
            (a := self._answers.get((case.case_id, Route.RAG))) is not None
            and a.entropies_are_bounds
            for case in inside
        )
        words = {"of": len(inside), "measured": len(found)}
        self._tell("tau_cases", words | ({"entropies_are_lower_bounds": bounds} if bounds else {}))
        # What goes straight to LC says nothing of a threshold.
        if all(each.synthesis for each in found):
            raise StageError(
                "route.checks",
                f"none of the {len(inside)} cases of the {split} split has scores, tokens and "
                "entropies to choose tau by",
                "a split with cases that `answer` and `score` got through",
                "set route.checks.tau: 1.2 (the paper's), or another split",
            )
        return found

    @property
    def _classified(self) -> bool:
        """Whether tau is chosen for the queries that the distilled classifier leaves to RAG."""
        route = self._run.recipe.route
        return route is not None and "edar" in route.routers
