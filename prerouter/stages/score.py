"""score: two answers and a reference to a pair of QA scores on one scale."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prerouter.answering.judge import JudgedArm, judged_arms, judged_score
from prerouter.core.records import (
    ROUTES,
    Answer,
    ArmScore,
    MissingReason,
    PairedScore,
    Reference,
    Reject,
    Route,
    RoutingCase,
)
from prerouter.measures.agreement import rater_agreement
from prerouter.measures.missing import MissingArms, by_model, missing_arms
from prerouter.measures.qa import score_answer
from prerouter.prompts.judge import Judgement
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.scores import ScoreSection
from prerouter.runs.rows import file_sha256
from prerouter.runs.stage import REJECTS, Stage, StageRun, check_reject_share
from prerouter.sources.people import Said, check_known, read_human_scores

RESAMPLES, CONFIDENCE = 1000, 0.95
JUDGED = "judged.jsonl"

Arms = Mapping[tuple[str, Route], JudgedArm]

_NOT_GIVEN = ArmScore(missing=MissingReason.NOT_GIVEN)


def score_arms(
    answers: Iterable[Answer],
    question_of: Mapping[str, str],
    references: Mapping[str, Reference],
    section: ScoreSection,
    judged: Arms | None = None,
) -> Iterator[tuple[str, Route, ArmScore]]:
    """Score each answer by itself: (case id, route, score or reason). `judged` holds what a judge
    made of the arms, where one scores."""
    for answer in answers:
        reference = references.get(question_of[answer.case_id])
        if judged is not None:
            found = judged.get((answer.case_id, answer.route))
            yield answer.case_id, answer.route, judged_score(answer, reference, found)
        elif reference is None:
            reason = answer.missing or MissingReason.NO_REFERENCE
            yield answer.case_id, answer.route, ArmScore(missing=reason)
        else:
            arm = score_answer(answer, reference, section.metric, section.grades)
            yield answer.case_id, answer.route, arm


def pair_scores(
    cases: Iterable[RoutingCase],
    arms: Mapping[str, Mapping[Route, ArmScore]],
    section: ScoreSection,
    routes: Sequence[Route] = ROUTES,
) -> Iterator[PairedScore]:
    """A PairedScore for every case, in their order. An arm nobody answered is missing."""
    low, high = section.scale
    for case in cases:
        known = arms.get(case.case_id, {})
        yield PairedScore(
            case_id=case.case_id,
            arms={route: known.get(route, _NOT_GIVEN) for route in routes},
            low=low,
            high=high,
            judge=section.measure,
        )


def missing_scores(cases: Iterable[RoutingCase], pairs: Iterable[PairedScore]) -> Iterator[Reject]:
    """A Reject for every arm without a score. `pairs` go with `cases`, one each, in their order."""
    for case, pair in zip(cases, pairs, strict=True):
        for route, reason in missing_arms(pair):
            yield Reject(
                stage="score",
                key=f"{case.case_id}|{route.value}",
                reason=reason.value,
                detail=f"{route.value} of {case.answer_model.name}",
            )


def human_agreement(
    people: Sequence[Said[float]],
    pairs: Iterable[PairedScore],
    group_of: Mapping[str, str],
    seed: int,
) -> dict[str, Any]:
    """How far the scores agree with people's, for the report. What people scored and nobody else
    did is counted by its reason and is in no measure."""
    scores = {(pair.case_id, route): arm for pair in pairs for route, arm in pair.arms.items()}
    missing: Counter[str] = Counter()
    ours: list[float] = []
    theirs: list[float] = []
    groups: list[str] = []
    for human in people:
        arm = scores[human.case_id, human.route]
        if arm.score is None:
            missing[(arm.missing or MissingReason.NOT_GIVEN).value] += 1
        else:
            ours.append(arm.score)
            theirs.append(human.value)
            groups.append(group_of[human.case_id])
    report: dict[str, Any] = {
        "human_scores": len(people),
        "without_a_score": dict(sorted(missing.items())),
    }
    if ours:
        agreement = rater_agreement(
            ours, theirs, groups, resamples=RESAMPLES, confidence=CONFIDENCE, seed=seed
        )
        report |= agreement.model_dump(mode="json", exclude_none=True)
    return report


def _run(run: StageRun) -> None:
    section = run.recipe.score
    assert section is not None
    judged = None
    if section.judge:
        judged = judged_arms(run.read("judge/rows.jsonl", Judgement), section.judge.repeats)
        run.write(JUDGED, judged.values())
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
    group = {case.case_id: case.group_id for case in cases}
    people: Sequence[Said[float]] = ()
    if section.human:
        people = read_human_scores(section.human, section.scale, run.recipe.routes)
        check_known(people, group, section.human.path)
    references = {
        reference.question_id: reference
        for reference in run.read("cases/references.jsonl", Reference)
    }
    with run.log(PairedScore, lambda pair: pair.case_id, flush_every=200) as log:
        due = {case.case_id: case.question_id for case in cases if case.case_id not in log.done}
        answers = (
            answer for answer in run.read(run.recipe.answers_file, Answer) if answer.case_id in due
        )
        arms: dict[str, dict[Route, ArmScore]] = {}
        routes = run.recipe.routes
        run.progress.start("score", len(run.recipe.routes) * len(due))
        for case_id, route, arm in score_arms(answers, due, references, section, judged):
            arms.setdefault(case_id, {})[route] = arm
            run.progress.advance()
        for pair in pair_scores((c for c in cases if c.case_id in due), arms, section, routes):
            log.append(pair)
        log.sort([case.case_id for case in cases])
        log.close()
    missing: dict[str, MissingArms] = defaultdict(MissingArms)
    for case, pair in zip(cases, run.read("score/rows.jsonl", PairedScore), strict=True):
        missing[case.answer_model.name].add(pair)
    run.report["missing_by_model_arm_reason"] = by_model(missing)
    # The pairs themselves tell it too; whoever is sent to the rejects finds it there.
    run.write(REJECTS, missing_scores(cases, run.read("score/rows.jsonl", PairedScore)))
    if section.human:
        pairs = run.read("score/rows.jsonl", PairedScore)
        run.report["human"] = human_agreement(people, pairs, group, run.recipe.seed)
    check_reject_share(
        "score",
        sum(counts.total() for counts in missing.values()),
        len(run.recipe.routes) * len(cases),
        section.max_failed_share,
        "score.max_failed_share",
    )


def _parents(recipe: Recipe) -> tuple[str, ...]:
    judged = recipe.score is not None and recipe.score.judge is not None
    return (
        "cases/rows.jsonl",
        "cases/references.jsonl",
        recipe.answers_file,
        *(("judge/rows.jsonl",) if judged else ()),
    )


def _inputs(recipe: Recipe) -> dict[str, str]:
    human = recipe.score.human if recipe.score else None
    return {"human scores": file_sha256(human.path)} if human else {}


STAGE = Stage(
    name="score",
    sections=lambda recipe: {"score": recipe.score},
    parents=_parents,
    run=_run,
    inputs=_inputs,
    packages=("rouge-score",),
)
