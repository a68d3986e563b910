"""Self-Route (Li et al., 2024, arXiv 2407.16833): the answering model says whether the passages
suffice, and where they don't, the whole document is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prerouter.core.protocols import Engine, GenerationRequest
from prerouter.core.records import Answer, Decision, DecisionFailure, Route, RoutingCase
from prerouter.measures.abstention import declines
from prerouter.prompts.answer import DECLINE
from prerouter.prompts.checks import VERDICTS, render_verdict
from prerouter.recipe.checks import AskBy
from prerouter.routers.asking import Word, ask_word

Written = Callable[[Sequence[RoutingCase]], Sequence[Answer]]
"""The answers of some cases by one route, in their order: read from a file, or asked for now."""


class SelfRoute:
    """Answer or decline in one call, the paper's form: the answer of `wrote` stands unless it holds
    the words that the prompt gives for it, or begins by saying that the document does not tell
    (`measures.abstention.declines`); then the case goes to LC.

    With `wrote` LONG_RAG it checks long units: LongRAG and Self-Route together. A case whose answer
    is missing is undecided.
    """

    def __init__(self, name: str, written: Written, wrote: Route = Route.RAG) -> None:
        self.name = name
        self._written = written
        self._wrote = wrote

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case, answer in zip(cases, self._written(cases), strict=True):
            if answer.text is None:
                yield unanswered(case, self.name, answer)
                continue
            declined = DECLINE in answer.text or declines(answer.text)
            yield Decision(
                case_id=case.case_id,
                router=self.name,
                route=Route.LC if declined else self._wrote,
                wrote=self._wrote,
            )


class SelfRouteVerdict:
    """A verdict of one word, answerable or unanswerable, before anything is answered. p_lc is how
    likely the latter is, where words are asked for by their probability.

    `engines` gives the model behind an answer model's name, `in_turn` the order in which those of
    several names are asked for, `passages` the texts that were retrieved for a case: none are a
    verdict by themselves, and no model is asked. None instead of texts says that nobody knows them,
    and the case is undecided. `choices` are those of a multiple-choice question.
    """

    def __init__(
        self,
        name: str,
        engines: Callable[[str], Engine],
        passages: Callable[[RoutingCase], Sequence[str] | None],
        by: AskBy = AskBy.PROBABILITY,
        choices: Callable[[RoutingCase], Sequence[str]] = lambda case: (),
        in_turn: Callable[[Sequence[str]], Sequence[str]] = list,
    ) -> None:
        self.name = name
        self._engines = engines
        self._passages = passages
        self._by = by
        self._choices = choices
        self._in_turn = in_turn

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        texts = {case.case_id: self._passages(case) for case in cases}
        words: dict[str, Word] = {}
        read = [case for case in cases if texts[case.case_id]]
        names = list(dict.fromkeys(case.answer_model.name for case in read))
        for name in self._in_turn(names):
            asked = [case for case in read if case.answer_model.name == name]
            requests = [
                GenerationRequest(
                    render_verdict(case, texts[case.case_id] or (), self._choices(case))
                )
                for case in asked
            ]
            found = ask_word(self._engines(name), requests, VERDICTS, self._by)
            words |= {case.case_id: word for case, word in zip(asked, found, strict=True)}
        for case in cases:
            word = words.get(case.case_id)
            if texts[case.case_id] is None:
                yield Decision(
                    case_id=case.case_id, router=self.name, failure=DecisionFailure.NO_ANSWER
                )
            elif word is None:
                yield Decision(case_id=case.case_id, router=self.name, route=Route.LC)
            else:
                yield self._decision(case, word)

    def _decision(self, case: RoutingCase, word: Word) -> Decision:
        return Decision(
            case_id=case.case_id,
            router=self.name,
            route=None if word.chosen is None else (Route.RAG, Route.LC)[word.chosen],
            failure=word.failure,
            p_lc=word.p_second,
            raw=word.raw,
            model=case.answer_model.name,
            calls=word.calls,
            prompt_tokens=word.prompt_tokens,
            completion_tokens=word.completion_tokens,
            seconds=word.seconds,
        )


def unanswered(case: RoutingCase, router: str, answer: Answer) -> Decision:
    """The decision of a router that needs an answer which is missing: none."""
    return Decision(
        case_id=case.case_id,
        router=router,
        failure=DecisionFailure.NO_ANSWER,
        raw=answer.missing.value if answer.missing else None,
    )
