"""The rubric judge: what it is asked of, in which order, and what its judgements come to.

Chen et al., 2026, arXiv 2605.10235, Judge: an answer is graded 0 to 4 against the reference, by one
rubric where there is an answer and by another where the document does not tell. Repeats, median,
blindness and cleaning are ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import statistics
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prerouter.core.protocols import Engine, GenerationRequest, Sampling
from prerouter.core.records import (
    ROUTES,
    Answer,
    ArmScore,
    Count,
    Identifier,
    MissingReason,
    Record,
    Reference,
    Reject,
    Route,
    RoutingCase,
)
from prerouter.measures.giveaways import gives_away, neutralise
from prerouter.measures.qa import why_no_score
from prerouter.prompts.judge import (
    Judgement,
    grade_schema,
    parse_grade,
    render_judge,
    rubric_of,
)
from prerouter.prompts.render import PromptForm, prompt_hash
from prerouter.prompts.trace import TraceError
from prerouter.recipe.judge import JudgeSection
from prerouter.runs.rejects import cut_raw

Answers = Mapping[Route, Answer]


@dataclass(frozen=True)
class JudgeRequest:
    """One judgement to ask for. `routes` are those whose answer it is, cheapest first."""

    case_id: str
    routes: tuple[Route, ...]
    repeat: int
    rubric: PromptForm
    request: GenerationRequest

    @property
    def key(self) -> str:
        return judgement_key(self.case_id, self.routes[0], self.repeat)

    @property
    def made_of(self) -> list[object]:
        """All that the judgement depends on beside the recipe's section, as plain data."""
        messages = [message.model_dump(mode="json") for message in self.request.messages]
        return [messages, self.request.seed, list(self.routes)]


class JudgedArm(Record):
    """An arm's readable grades in the order of their repeats, and how far they lie apart.

    `unread` judgements failed or could not be read; `score` is the median, or absent where more
    than half are unread.
    """

    case_id: Identifier
    route: Route
    grades: tuple[Count, ...]
    unread: Count
    score: float | None
    spread: Count


class Giveaways(Record):
    """Of `answers` of a route, so many hold a word that may tell it; and after cleaning."""

    answers: int
    telling: int
    telling_when_judged: int


def judgement_key(case_id: str, route: Route, repeat: int) -> str:
    return f"{case_id}|{route.value}|{repeat}"


def judge_requests(
    cases: Iterable[RoutingCase],
    answers: Mapping[str, Answers],
    references: Mapping[str, Reference],
    section: JudgeSection,
    seed: int,
) -> list[JudgeRequest]:
    """All judgements to ask for, case by case.

    Which route's answer to a case comes first is drawn by its own hash, so that no order tells the
    route. What both routes answer in the same words is judged once for both: noise can't make one
    of two equal answers the better one. An answer that is missing or blank, or has no reference to
    be held against, is not judged.
    """
    due = []
    for case in cases:
        reference = references.get(case.question_id)
        of_text: dict[str, list[Route]] = {}
        for route, answer in sorted(answers.get(case.case_id, {}).items(), key=_by_cost):
            if reference is not None and why_no_score(answer, reference) is None:
                text = _as_judged(answer.text or "", section)
                of_text.setdefault(text, []).append(route)
        for text in sorted(of_text, key=lambda text: _draw(seed, case.case_id, text)):
            assert reference is not None
            messages = render_judge(case.question, reference, text)
            routes, rubric = tuple(of_text[text]), rubric_of(reference)
            for repeat in range(section.repeats):
                number = int.from_bytes(_draw(seed, case.case_id, text, str(repeat))[:4], "big")
                request = GenerationRequest(messages, seed=number >> 1)
                due.append(JudgeRequest(case.case_id, routes, repeat, rubric, request))
    return due


def judge_answers(
    due: Sequence[JudgeRequest], engine: Engine, section: JudgeSection
) -> Generator[Judgement | Reject, None, None]:
    """A Judgement for each request, as they get done. A reply that is no whole judgement is a
    Reject with its reason and raw text, a failed call a transient one."""
    hashes = {rubric: prompt_hash(rubric) for rubric in {item.rubric: None for item in due}}
    sampling = Sampling(
        max_tokens=section.max_tokens,
        temperature=section.temperature,
        top_p=section.top_p,
        schema=grade_schema(),
        thinking=section.thinking,
    )
    requests = [item.request for item in due]
    with contextlib.closing(engine.generate(requests, sampling)) as completions:
        for index, completion in completions:
            item = due[index]
            try:
                grade, reason = parse_grade(completion.text, completion.finish_reason)
            except TraceError as error:
                yield Reject(
                    stage="judge",
                    key=item.key,
                    reason=error.reason.value,
                    detail=completion.error or error.detail,
                    raw=cut_raw(completion.text) or None,
                    transient=completion.finish_reason == "error" and completion.passing,
                )
                continue
            yield Judgement(
                case_id=item.case_id,
                routes=item.routes,
                repeat=item.repeat,
                grade=grade,
                reason=reason,
                judge=engine.info.model,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                prompt_hash=hashes[item.rubric],
            )


def count_giveaways(answers: Iterable[Answer], section: JudgeSection) -> dict[Route, Giveaways]:
    """By route, the answers that may give it away."""
    counts: dict[Route, list[int]] = {route: [0, 0, 0] for route in ROUTES}
    for answer in answers:
        counts.setdefault(answer.route, [0, 0, 0])
        if answer.text and answer.text.strip():
            told = gives_away(answer.text)
            after = told and gives_away(_as_judged(answer.text, section))
            for place, add in enumerate((1, told, after)):
                counts[answer.route][place] += add
    return {
        route: Giveaways(answers=of, telling=told, telling_when_judged=after)
        for route, (of, told, after) in counts.items()
    }


def judged_arms(
    judgements: Iterable[Judgement], repeats: int
) -> dict[tuple[str, Route], JudgedArm]:
    """Each judged arm, from the judgements that could be read.

    The median, because grades have an order and no measured distances, and because one reply that
    is out of line then moves nothing; of an even number of grades the mean of the middle two. An
    arm of whose `repeats` fewer than half could be read has no score.
    """
    found: dict[tuple[str, Route], dict[int, int]] = defaultdict(dict)
    for judgement in judgements:
        for route in judgement.routes:
            found[judgement.case_id, route][judgement.repeat] = judgement.grade
    arms = {}
    for (case_id, route), by_repeat in found.items():
        grades = tuple(by_repeat[repeat] for repeat in sorted(by_repeat))
        enough = 2 * len(grades) >= repeats
        arms[case_id, route] = JudgedArm(
            case_id=case_id,
            route=route,
            grades=grades,
            unread=repeats - len(grades),
            score=float(statistics.median(grades)) if enough else None,
            spread=max(grades) - min(grades),
        )
    return arms


def judged_score(answer: Answer, reference: Reference | None, arm: JudgedArm | None) -> ArmScore:
    """The score of an answer, or why there is none: the answer's own reason comes first."""
    if reference is None:
        return ArmScore(missing=answer.missing or MissingReason.NO_REFERENCE)
    reason = why_no_score(answer, reference)
    if reason is not None:
        return ArmScore(missing=reason)
    if arm is None or arm.score is None:
        return ArmScore(missing=MissingReason.NOT_JUDGED)
    return ArmScore(score=arm.score)


def _as_judged(text: str, section: JudgeSection) -> str:
    """Cleaned where asked for; an answer that is nothing but a citation stays as it is."""
    cleaned = neutralise(text) if section.clean else text
    return cleaned if cleaned.strip() else text


def _by_cost(item: tuple[Route, Answer]) -> int:
    return tuple(Route).index(item[0])


def _draw(seed: int, *parts: str) -> bytes:
    return hashlib.sha256("\0".join([str(seed), *parts]).encode("utf-8", "replace")).digest()
