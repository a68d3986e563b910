"""What a probe study reads of a finished run: cases, split, labels, a router's decisions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from prerouter.core.errors import StageError
from prerouter.core.records import (
    Decision,
    Label,
    MetadataSetting,
    RoutingCase,
    Split,
    SplitAssignment,
)
from prerouter.recipe.probe import ProbeStudy, ProbeSubject
from prerouter.runs import parents
from prerouter.runs.rows import read_rows

_SPLIT, _LABELS, _DECISIONS = "cases/split.jsonl", "label/rows.jsonl", "route/rows.jsonl"


@dataclass(frozen=True)
class ProbedRun:
    """The cases of the train and test splits by the file they stand in, and by case id the ideal
    route and each router's decisions. `sides` are by question id. `unseen` training cases of each
    file were left out: their answer models, the `unseen_models`, are none to learn from."""

    cases: dict[str, list[RoutingCase]]
    unseen: dict[str, int]
    unseen_models: tuple[str, ...]
    sides: dict[str, Split]
    labels: dict[str, str]
    decisions: dict[str, dict[str, str]]


def cases_file(row: ProbeSubject) -> str:
    """Where a row's cases stand in its run."""
    generated = row.metadata is MetadataSetting.GENERATED
    return "profile/rows.jsonl" if generated else "cases/rows.jsonl"


def parent_hashes(study: ProbeStudy) -> dict[str, str]:
    """The hash of each file that the study reads of its run. Raises StageError where a stage isn't
    finished, or its file is no longer as it left it."""
    return parents.parent_hashes(study.run, _files(study), "probe")


def read_run(study: ProbeStudy) -> ProbedRun:
    """The run's records; a decision without a route is none. Raises StageError where no case is
    of the train or test split."""
    sides = {
        each.question_id: each.split for each in read_rows(study.run / _SPLIT, SplitAssignment)
    }
    chosen = _drawn(sides, study)
    files = _files(study)
    apart = parents.unseen_models(study.run)
    cases: dict[str, list[RoutingCase]] = {}
    unseen: dict[str, int] = {}
    for file in sorted({cases_file(row) for row in study.rows}):
        drawn = [c for c in read_rows(study.run / file, RoutingCase) if c.question_id in chosen]
        cases[file] = [
            case
            for case in drawn
            if sides[case.question_id] is Split.TEST or case.answer_model.name not in apart
        ]
        unseen[file] = len(drawn) - len(cases[file])
    if not all(cases.values()):
        raise StageError(
            "probe",
            f"{study.run} holds no case in its train and test splits",
            "cases to fit a probe on, and others to measure it on",
            "bring more questions, or change `split`",
        )
    labels: dict[str, str] = {}
    decisions: dict[str, dict[str, str]] = {}
    if _LABELS in files:
        for label in read_rows(study.run / _LABELS, Label):
            labels[label.case_id] = label.route.value
    if _DECISIONS in files:
        for decision in read_rows(study.run / _DECISIONS, Decision):
            if decision.route:
                routes = decisions.setdefault(decision.router, {})
                routes[decision.case_id] = decision.route.value
    return ProbedRun(cases, unseen, apart, sides, labels, decisions)


def _files(study: ProbeStudy) -> list[str]:
    files = [_SPLIT, *sorted({cases_file(row) for row in study.rows})]
    if "ideal_label" in study.targets:
        files.append(_LABELS)
    if "own_route" in study.targets and any(row.own_route for row in study.rows):
        files.append(_DECISIONS)
    return files


def _drawn(sides: Mapping[str, Split], study: ProbeStudy) -> set[str]:
    """The questions of the train and test splits, `max_questions` of each at most."""
    chosen: set[str] = set()
    for split in (Split.TRAIN, Split.TEST):
        questions = sorted(question for question, side in sides.items() if side is split)
        if study.max_questions is not None and study.max_questions < len(questions):
            questions = random.Random(study.seed).sample(questions, study.max_questions)  # noqa: S311
        chosen |= set(questions)
    return chosen
