"""score: two answers and a reference to a pair of QA scores on one scale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

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
from prerouter.measures.missing import MissingArms, by_model, missing_arms
from prerouter.measures.qa import scale_of, score_answer
from prerouter.recipe.scores import ScoreSection
from prerouter.runs.stage import REJECTS, Stage, StageRun, check_reject_share

_NOT_GIVEN = ArmScore(missing=MissingReason.NOT_GIVEN)


def score_arms(
    answers: Iterable[Answer],
    question_of: Mapping[str, str],
    references: Mapping[str, Reference],
    section: ScoreSection,
) -> Iterator[tuple[str, Route, ArmScore]]:
    """Score each answer by itself: (case id, route, score or reason)."""
    for answer in answers:
        reference = references.get(question_of[answer.case_id])
        if reference is None:
            reason = answer.missing or MissingReason.NO_REFERENCE
            yield answer.case_id, answer.route, ArmScore(missing=reason)
        else:
            arm = score_answer(answer, reference, section.metric, section.grades)
            yield answer.case_id, answer.route, arm


def pair_scores(
    cases: Iterable[RoutingCase],
    arms: Mapping[str, Mapping[Route, ArmScore]],
    section: ScoreSection,
) -> Iterator[PairedScore]:
    """A PairedScore for every case, in their order. An arm nobody answered is missing."""
    low, high = scale_of(section.metric, section.grades)
    for case in cases:
        known = arms.get(case.case_id, {})
        yield PairedScore(
            case_id=case.case_id,
            arms={route: known.get(route, _NOT_GIVEN) for route in ROUTES},
            low=low,
            high=high,
            judge=section.metric,
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


def _run(run: StageRun) -> None:
    section = run.recipe.score
    assert section is not None
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
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
        run.progress.start("score", 2 * len(due))
        for case_id, route, arm in score_arms(answers, due, references, section):
            arms.setdefault(case_id, {})[route] = arm
            run.progress.advance()
        for pair in pair_scores((c for c in cases if c.case_id in due), arms, section):
            log.append(pair)
        log.sort([case.case_id for case in cases])
        log.close()
    missing: dict[str, MissingArms] = defaultdict(MissingArms)
    for case, pair in zip(cases, run.read("score/rows.jsonl", PairedScore), strict=True):
        missing[case.answer_model.name].add(pair)
    run.report["missing_by_model_arm_reason"] = by_model(missing)
    # The pairs themselves tell it too; whoever is sent to the rejects finds it there.
    run.write(REJECTS, missing_scores(cases, run.read("score/rows.jsonl", PairedScore)))
    check_reject_share(
        "score",
        sum(counts.total() for counts in missing.values()),
        len(ROUTES) * len(cases),
        section.max_failed_share,
        "score.max_failed_share",
    )


STAGE = Stage(
    name="score",
    sections=lambda recipe: {"score": recipe.score},
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/references.jsonl",
        recipe.answers_file,
    ),
    run=_run,
    packages=("rouge-score",),
)
