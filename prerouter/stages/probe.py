"""probe: what can be read off a model's prompt states, as a study with a folder of its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from prerouter.core.protocols import Progress
from prerouter.core.records import RoutingCase, Split
from prerouter.engines.identity import model_identity
from prerouter.engines.transformers import TransformersModel
from prerouter.measures.probes import ProbeResult
from prerouter.probing.linear import NO_TARGET, ProbeSettings, gather, run_probe
from prerouter.probing.own_route import likelier, route_texts
from prerouter.probing.representations import States, model_folder, read_states, render_prompt
from prerouter.probing.run_files import ProbedRun, cases_file, parent_hashes, read_run
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.probe import ProbeStudy, ProbeSubject, ProbeTarget
from prerouter.reporting.probe_table import curve_csv, probe_csv, probe_markdown
from prerouter.runs.manifest import (
    MANIFEST,
    FileEntry,
    Fingerprint,
    Manifest,
    altered_files,
    installed_versions,
    read_manifest,
    write_json,
)
from prerouter.runs.parents import unseen_models
from prerouter.runs.rows import file_sha256, read_rows, replacing, write_rows
from prerouter.runs.stage import ROWS, alone

_NO_STATE, _UNSEEN = "no_state", "answer_model_not_learnt_from"
_OF_UNSEEN = "of answer models that were not learnt from (split.unseen_models)"


@dataclass(frozen=True)
class StudyOutcome:
    """`computed` prompts were read by a model anew; 0 where all states were kept, and where the
    study was finished already (`passed_over`)."""

    results: tuple[ProbeResult, ...]
    computed: int
    seconds: float
    passed_over: bool


class _Models:
    """The model of the row in hand; another row's takes its place."""

    def __init__(self, study: ProbeStudy) -> None:
        self._study = study
        self._name: tuple[str, str | None] | None = None
        self._model: TransformersModel | None = None

    def start(self, row: ProbeSubject) -> TransformersModel:
        if self._model is None or self._name != (row.model, row.revision):
            self._model = None
            self._model = TransformersModel(
                row.model,
                revision=row.revision,
                dtype=self._study.dtype,
                batch_size=self._study.batch_size,
            )
            self._name = (row.model, row.revision)
        return self._model


def run_study(study: ProbeStudy, progress: Progress) -> StudyOutcome:
    """Run a study, or pass it over where nothing it depends on has changed.

    Raises StageError where its run isn't finished or was altered. States are kept by what they
    depend on: a study that is stopped or changed reads only what it hasn't read.
    """
    with alone(study.folder):
        fingerprint = _fingerprint(study)
        finished = read_manifest(study.folder)
        if finished and not (
            altered_files(study.folder, finished) or finished.fingerprint.differences(fingerprint)
        ):
            rows = tuple(read_rows(study.folder / ROWS, ProbeResult))
            return StudyOutcome(rows, 0, finished.seconds, passed_over=True)
        (study.folder / MANIFEST).unlink(missing_ok=True)
        begun = time.monotonic()
        results, computed = _run(study, progress)
        _write(study, results)
        seconds = round(time.monotonic() - begun, 3)
        manifest = Manifest(
            fingerprint=fingerprint,
            files={ROWS: FileEntry(rows=len(results), sha256=file_sha256(study.folder / ROWS))},
            report={"prompts_read": computed},
            versions=installed_versions("torch", "transformers", "scikit-learn", "safetensors"),
            seconds=seconds,
        )
        write_json(study.folder / MANIFEST, manifest.model_dump(mode="json", exclude_none=True))
        return StudyOutcome(tuple(results), computed, seconds, passed_over=False)


def _run(study: ProbeStudy, progress: Progress) -> tuple[list[ProbeResult], int]:
    known = read_run(study)
    models = _Models(study)
    results: list[ProbeResult] = []
    computed = 0
    for row in study.rows:
        cases = known.cases[cases_file(row)]
        prompts = [render_prompt(case, row.prompt, row.metadata, row.mode) for case in cases]
        folder = model_folder(study.folder / "states", _identity(study, row))
        progress.start(f"probe: {row.name}: states", len(prompts))
        states = read_states(
            folder,
            prompts,
            study.layer,
            partial(models.start, row),
            progress.advance,
            thinking=row.thinking,
            choices=_asked(study, row),
        )
        computed += states.computed
        targets = {target: _targets(target, row, cases, known, states) for target in study.targets}
        progress.start(f"probe: {row.name}: probes", len(targets) * len(states.vectors))
        for target, found in targets.items():
            for layer in sorted(states.vectors):
                results.append(_probe(study, row, target, layer, known, found, states))
                progress.advance()
    return results, computed


def _probe(
    study: ProbeStudy,
    row: ProbeSubject,
    target: ProbeTarget,
    layer: int,
    known: ProbedRun,
    targets: Mapping[str, str],
    states: States,
) -> ProbeResult:
    settings = ProbeSettings(
        c=study.c,
        folds=study.folds,
        resamples=study.resamples,
        confidence=study.confidence,
        min_cases=study.min_cases,
        seed=study.seed,
    )
    file = cases_file(row)
    kept, lacking = gather(
        known.cases[file], known.sides, targets, states.vectors[layer], states.known.tolist()
    )
    found = run_probe(kept, settings)
    left_out = Counter(
        {NO_TARGET: lacking, _NO_STATE: len(states.errors), _UNSEEN: known.unseen[file]}
    )
    unseen = sum(
        case.answer_model.name in known.unseen_models
        and known.sides[case.question_id] is Split.TEST
        and case.case_id in targets
        and bool(states.known[index])
        for index, case in enumerate(known.cases[file])
    )
    return ProbeResult(
        row=row.name,
        model=row.model,
        prompt=row.prompt,
        distilled=row.distilled,
        target=target,
        layer=layer,
        layers=states.layers,
        train_cases=found.train_cases,
        test_cases=found.test_cases,
        test_documents=found.test_documents,
        classes=found.classes,
        left_out={reason: count for reason, count in left_out.items() if count},
        c=found.c,
        control_c=found.control_c,
        memorised=found.memorised,
        measures=found.measures,
        notes=(*found.notes, *([f"{unseen} test cases are {_OF_UNSEEN}"] if unseen else [])),
    )


def _targets(
    target: ProbeTarget,
    row: ProbeSubject,
    cases: Sequence[RoutingCase],
    known: ProbedRun,
    states: States,
) -> dict[str, str]:
    """The target of every case that has one, by case id."""
    if target == "ideal_label":
        return known.labels
    if target == "document_type":
        return {case.case_id: case.document.type for case in cases if case.document.type}
    if target == "task_type":
        return {case.case_id: case.task_type for case in cases if case.task_type}
    if row.own_route:
        return known.decisions.get(row.own_route, {})
    found = {
        case.case_id: likelier(states.log_probabilities[index].tolist())
        for index, case in enumerate(cases)
        if states.known[index]
    }
    return {case_id: route.value for case_id, route in found.items() if route is not None}


def _asked(study: ProbeStudy, row: ProbeSubject) -> tuple[str, ...]:
    """The choices whose likelihood is read with the states, where they are a target."""
    forced = "own_route" in study.targets and row.own_route is None
    return route_texts(row.prompt, row.mode) if forced else ()


def _identity(study: ProbeStudy, row: ProbeSubject) -> dict[str, object]:
    """All that a row's states depend on beside its prompts."""
    return {
        "identity": model_identity(row.model, row.revision),
        "dtype": study.dtype,
        "thinking": row.thinking,
    }


def _fingerprint(study: ProbeStudy) -> Fingerprint:
    """What the study's results depend on. Raises StageError where its run isn't sound."""
    inputs = {"control task": "dealt by document"}
    for row in study.rows:
        inputs[f"prompt {row.prompt}"] = prompt_hash(row.prompt)
        inputs[row.model] = model_identity(row.model, row.revision)
    settings = study.model_dump(mode="json", exclude={"name", "runs_dir", "run", "batch_size"})
    if apart := unseen_models(study.run):
        settings["split.unseen_models"] = list(apart)
    return Fingerprint(
        stage="probe",
        seed=study.seed,
        sections=settings,
        parents=parent_hashes(study),
        inputs=inputs,
    )


def _write(study: ProbeStudy, results: Sequence[ProbeResult]) -> None:
    write_rows(study.folder / ROWS, results)
    write_json(study.folder / "table.json", [each.model_dump(mode="json") for each in results])
    texts = {
        "table.md": probe_markdown(results, study.confidence),
        "table.csv": probe_csv(results),
        "curve.csv": curve_csv(results),
    }
    for name, text in texts.items():
        with replacing(study.folder / name) as file:
            file.write(text.encode())
