"""Routers whose decision is a function of the question, so that a mixed-up answer shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

from prerouter.core.records import Decision, DecisionFailure, Rationale, Route, RoutingCase


class Echo:
    """LC for an odd number at the end of the question; the rationale repeats the question."""

    name = "echo"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[int] = []

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        self.batches.append(len(cases))
        time.sleep(self.seconds)
        for case in cases:
            number = int(case.question.split()[-1])
            yield Decision(
                case_id=case.case_id,
                router=self.name,
                route=Route.LC if number % 2 else Route.RAG,
                p_lc=0.75 if number % 2 else 0.25,
                rationale=Rationale(free_text=case.question),
                prompt_tokens=number,
            )


class Held:
    """Decides nothing before it is let go."""

    name = "held"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = threading.Event()

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        self.asked.set()
        self.go.wait(20)
        for case in cases:
            yield Decision(case_id=case.case_id, router=self.name, route=Route.LC)


class PanicError(BaseException):
    """As PyO3's, which is no Exception."""


class Broken:
    """Raises or panics at a question that says so, is undecided at one that says so, swaps at
    another."""

    name = "broken"

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            if "raise" in case.question:
                raise FloatingPointError("a secret of the model's")
            if "panic" in case.question:
                raise PanicError("a half character")
            undecided = "undecided" in case.question
            yield Decision(
                case_id="another" if "swap" in case.question else case.case_id,
                router=self.name,
                route=None if undecided else Route.LC,
                failure=DecisionFailure.UNPARSABLE if undecided else None,
                raw="what the model wrote" if undecided else None,
            )
