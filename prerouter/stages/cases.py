"""cases: read a source, group near-duplicate documents, split the questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from prerouter.core.errors import CombinedError, InputError
from prerouter.core.records import DocumentFile, RoutingCase, SplitAssignment
from prerouter.recipe.cases import (
    CasesSection,
    LaraSource,
    LongBenchV2Source,
    SampleSource,
    TableSource,
)
from prerouter.recipe.recipe import Recipe
from prerouter.runs.rows import file_sha256, folder_sha256, read_rows, replacing
from prerouter.runs.stage import Stage, StageRun
from prerouter.sources.lara import load_lara
from prerouter.sources.loaded import Loaded
from prerouter.sources.longbench_v2 import load_longbench_v2
from prerouter.sources.near_duplicates import Components, find_components
from prerouter.sources.sample import load_sample
from prerouter.sources.served import unserved
from prerouter.sources.table import load_table
from prerouter.stages.split import Stratum, split_counts, split_questions, straddling, strata


def load(recipe: Recipe, skip_bad: bool) -> Loaded:
    """Read the source that the recipe names."""
    section = recipe.cases
    if isinstance(section, SampleSource):
        return load_sample(section, recipe.rag)
    if isinstance(section, LaraSource):
        return load_lara(section, recipe.rag, skip_bad=skip_bad)
    if isinstance(section, LongBenchV2Source):
        return load_longbench_v2(section, recipe.rag, skip_bad=skip_bad)
    return load_table(section, recipe.rag, skip_bad=skip_bad)


def source_paths(section: CasesSection) -> list[Path]:
    """The files and folders outside the run that the cases are read from."""
    paths = [section.path]
    if isinstance(section, TableSource):
        paths += [section.scores.path] if section.scores else []
    return paths


@dataclass(frozen=True)
class Division:
    """A source divided: cases with their group, documents' components, and the splits."""

    cases: list[RoutingCase]
    components: Components
    strata: dict[str, Stratum]
    memberships: dict[str, dict[str, str]]
    assignments: list[SplitAssignment]


def divide(recipe: Recipe, loaded: Loaded) -> Division:
    """Group near-duplicate documents and split the questions, as the recipe asks."""
    profiles = {case.document.document_id: case.document for case in loaded.cases}
    components = find_components(
        list(profiles.values()), loaded.bodies, recipe.split.shared_run_words
    )
    document_of = {case.question_id: case.document.document_id for case in loaded.cases}
    component_of = {q: components.component_of[d] for q, d in document_of.items()}
    memberships = {"document": document_of, "component": component_of}
    # A case's group is what bootstraps resample: a document even where the split is by question.
    group_of = memberships.get(recipe.split.group_by, document_of)
    cases = [
        case.model_copy(update={"group_id": group_of[case.question_id]}) for case in loaded.cases
    ]
    found = strata(cases, loaded.references)
    split_by = memberships.get(recipe.split.group_by, {q: q for q in document_of})
    assignments = split_questions(found, split_by, recipe.split, recipe.seed)
    return Division(cases, components, found, memberships, assignments)


def write_bodies(folder: Path, loaded: Loaded) -> None:
    """Write each document's body as the file below `folder` that its DocumentFile names.

    For a source that holds documents inside a larger file: once written, they are files like any
    other source's, to whoever reads, hashes or indexes them.
    """
    for file in loaded.documents:
        path = folder / file.path
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as text:
            text.write(loaded.bodies[file.document_id].encode())


def _run(run: StageRun) -> None:
    recipe = run.recipe
    run.progress.start("cases: reading", None)
    loaded = load(recipe, run.skip_bad)
    if not loaded.cases:
        raise InputError(
            str(recipe.cases.path),
            "holds no case",
            "a question and an answer model at least",
            "see rejects.jsonl where --skip-bad was given",
        )
    run.progress.start("cases: comparing documents", None)
    divided = divide(recipe, loaded)
    cases, assignments = divided.cases, divided.assignments
    if errors := unserved(recipe, loaded, assignments):
        raise CombinedError(errors)
    if isinstance(recipe.cases, LongBenchV2Source):
        write_bodies(run.folder, loaded)
    run.write("references.jsonl", loaded.references)
    run.write("documents.jsonl", loaded.documents)
    run.write("answers.jsonl", loaded.answers)
    run.write("scores.jsonl", loaded.scores)
    run.write("split.jsonl", assignments)
    run.write("rejects.jsonl", loaded.rejects)
    run.write("rows.jsonl", cases)
    side = {assignment.question_id: assignment.split for assignment in assignments}
    run.report["source"] = dict(sorted(loaded.counts.items()))
    run.report["refused"] = len(loaded.rejects)
    run.report["cases_by_split"] = dict(Counter(str(side[case.question_id]) for case in cases))
    run.report["questions_by_split_and_stratum"] = split_counts(assignments, divided.strata)
    run.report["straddling"] = {
        name: straddling(assignments, membership)
        for name, membership in divided.memberships.items()
    }
    run.report["near_duplicates"] = divided.components.report


def missing_sources(recipe: Recipe) -> list[InputError]:
    """An error for every file or folder of the source that isn't there."""
    section = recipe.cases
    named = {"cases.path": section.path}
    if isinstance(section, TableSource):
        named |= {"cases.scores.path": section.scores.path} if section.scores else {}
        named |= {"cases.documents": section.documents} if section.documents else {}
    return [
        InputError(
            str(path),
            "no such file or folder",
            f"looked for {path.absolute()}",
            "relative paths are looked up from the working directory: mend the path in the "
            f"recipe, or give it by --set {key}=...",
        )
        for key, path in named.items()
        if not path.exists()
    ]


def _inputs(recipe: Recipe) -> dict[str, str]:
    """Hashes of all that the source reads, so that a changed file makes the cases anew."""
    if missing := missing_sources(recipe):
        raise CombinedError(missing)
    return {
        str(path): file_sha256(path) if path.is_file() else folder_sha256(path)
        for path in source_paths(recipe.cases)
    }


def _changed_documents(recipe: Recipe) -> list[str]:
    """Documents that are not the ones the finished cases were made of. Those of the sample and of
    LaRA lie in the source's own folder, whose hash is an input."""
    if isinstance(recipe.cases, SampleSource | LaraSource):
        return []
    changed = []
    for file in read_rows(recipe.run_dir / "cases" / "documents.jsonl", DocumentFile):
        path = recipe.document_root / file.path
        if not path.is_file() or file_sha256(path) != file.sha256:
            changed.append(f"{path} changed")
    return changed


STAGE = Stage(
    name="cases",
    sections=lambda recipe: {
        "cases": recipe.cases,
        "rag": recipe.rag,
        "split": recipe.split,
    },
    parents=lambda recipe: (),
    run=_run,
    inputs=_inputs,
    lost=_changed_documents,
    skips_bad=lambda recipe: True,
    packages=("pyarrow",),
)
