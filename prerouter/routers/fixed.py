"""Routers that need no model: one route for all, or the majority route of the task type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prerouter.core.errors import CheckpointError, StageError, first_mistake
from prerouter.core.records import Decision, Label, Route, RoutingCase, by_cost


class AlwaysRag:
    """Sends every case to RAG."""

    name = "always_rag"

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            yield Decision(case_id=case.case_id, router=self.name, route=Route.RAG)


class AlwaysLongRag:
    """Sends every case to LONG_RAG, where that is a route."""

    name = "always_long_rag"

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            yield Decision(case_id=case.case_id, router=self.name, route=Route.LONG_RAG)


class AlwaysLc:
    """Sends every case to LC."""

    name = "always_lc"

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            yield Decision(case_id=case.case_id, router=self.name, route=Route.LC)


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    router: Literal["task_majority"]
    labels: Annotated[int, Field(gt=0)]
    overall: Route
    by_task_type: dict[str, Route]


class TaskMajority:
    """The majority route of the case's task type among the training labels.

    A task type that was not seen, or none, gets the majority over all labels. Ties go to the
    cheaper route.
    """

    name = "task_majority"

    def __init__(self, overall: Route, by_task_type: dict[str, Route], labels: int) -> None:
        self._overall = overall
        self._by_task_type = dict(by_task_type)
        self._labels = labels

    @classmethod
    def fit(cls, pairs: Iterable[tuple[RoutingCase, Label]]) -> TaskMajority:
        """Count the labels of the training split. Raises StageError where there is none."""
        overall: Counter[Route] = Counter()
        by_type: dict[str, Counter[Route]] = {}
        for case, label in pairs:
            if case.case_id != label.case_id:
                raise ValueError(f"case {case.case_id} is paired with label {label.case_id}")
            overall[label.route] += 1
            if case.task_type is not None:
                by_type.setdefault(case.task_type, Counter())[label.route] += 1
        if not overall:
            raise StageError(
                cls.name, "no training label to learn from", next_step="check the label stage"
            )
        majorities = {task: _majority(counts) for task, counts in sorted(by_type.items())}
        return cls(_majority(overall), majorities, overall.total())

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            route = self._overall
            if case.task_type is not None:
                route = self._by_task_type.get(case.task_type, self._overall)
            yield Decision(case_id=case.case_id, router=self.name, route=route)

    def to_dict(self) -> dict[str, object]:
        """What `from_dict` reads: plain JSON."""
        return {
            "router": self.name,
            "labels": self._labels,
            "overall": self._overall.value,
            "by_task_type": {task: route.value for task, route in self._by_task_type.items()},
        }

    @classmethod
    def from_dict(cls, data: object) -> TaskMajority:
        """Raises CheckpointError where `data` is not what `to_dict` writes."""
        try:
            saved = _Saved.model_validate(data)
        except ValidationError as error:
            problem, way_on = first_mistake(error, "its file"), "run the route stage again"
            raise CheckpointError(cls.name, problem, next_step=way_on) from None
        return cls(saved.overall, saved.by_task_type, saved.labels)


def _majority(counts: Counter[Route]) -> Route:
    # `max` keeps the first of equals, which is the cheapest.
    return max(by_cost(counts), key=lambda route: counts[route])
