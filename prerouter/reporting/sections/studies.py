"""Studies of prompts beside the run: variants as routers, and best of N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from prerouter.core.errors import InputError, PrerouterError, StageError, first_mistake
from prerouter.measures.best_of_n import BestOfN
from prerouter.measures.routing import POOLED, Measure, RoutingRow
from prerouter.reporting import charts
from prerouter.reporting.contents import Figure, Section, Table
from prerouter.reporting.study_table import BEST_OF_NOTE, best_of_table, study_table
from prerouter.reporting.tables import percent
from prerouter.runs.manifest import MANIFEST, altered_files, read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import ROWS

BEST_OF = "best_of.json"
_MEND = "mend evaluate.studies, or run `prerouter study` again"
_LARGEST_FILE = 50_000_000
_BEST_OF = TypeAdapter(dict[str, tuple[BestOfN, ...]])


@dataclass(frozen=True)
class PromptStudyRead:
    """What a finished study left: its table's rows, and best of N by router where there is any."""

    name: str
    rows: tuple[RoutingRow, ...]
    best_of: Mapping[str, tuple[BestOfN, ...]]


def missing_studies(folders: Sequence[Path]) -> list[PrerouterError]:
    """An error for each folder that holds no finished study."""
    return [
        InputError(str(folder), "holds no finished study", "a folder runs/NAME/study", _MEND)
        for folder in folders
        if not (folder / MANIFEST).is_file()
    ]


def read_study(folder: Path) -> PromptStudyRead:
    """A finished study, as it was left. InputError for one that was altered, is broken or too
    large."""
    try:
        manifest = read_manifest(folder)
    except (OSError, StageError):
        manifest = None
    if manifest is None or manifest.fingerprint.stage != "study" or ROWS not in manifest.files:
        raise InputError(str(folder), "holds no finished study of this version", next_step=_MEND)
    names = [name for name in (ROWS, BEST_OF) if name in manifest.files]
    for name in names:
        path = folder / name
        if path.is_file() and path.stat().st_size > _LARGEST_FILE:
            raise InputError(str(path), "is too large", f"at most {_LARGEST_FILE:,} bytes", _MEND)
        for problem in altered_files(folder, manifest, name):
            raise InputError(problem, "the study had left another", next_step=_MEND)
    rows = tuple(read_rows(folder / ROWS, RoutingRow))
    if not rows:
        raise InputError(str(folder / ROWS), "holds no row", next_step=_MEND)
    best: Mapping[str, tuple[BestOfN, ...]] = {}
    if BEST_OF in names:
        try:
            best = _BEST_OF.validate_json((folder / BEST_OF).read_bytes())
        except ValidationError as error:
            problem = first_mistake(error)
            raise InputError(str(folder / BEST_OF), problem, "rows of best of N", _MEND) from None
    named = manifest.fingerprint.sections.get("name")
    return PromptStudyRead(named if isinstance(named, str) else folder.name, rows, best)


def studies(folders: Sequence[Path]) -> Section:
    """For each study its table and the variants' accuracy, and how that grows with N samples."""
    title = "Studies of prompts"
    if not folders:
        return Section("studies", title, ["No prompt study was given (evaluate.studies)."])
    words = [
        "Every pair of a model and a variant of its prompt is a router over the cases of the "
        "study's own run, which need not be this page's."
    ]
    parts: list[Table | Figure] = []
    for number, folder in enumerate(folders, start=1):
        study = read_study(folder)
        parts += _of_variants(number, study)
        if study.best_of:
            parts += _of_best(number, study)
    if any(part.name.endswith("best-of") for part in parts):
        words.append(BEST_OF_NOTE)
    return Section("studies", title, words, parts)


def _of_variants(number: int, study: PromptStudyRead) -> list[Table | Figure]:
    name = f"study-{number}"
    pooled = [row for row in study.rows if row.answer_model is POOLED]
    names = [row.router for row in pooled]
    bars = [charts.bar_of(row.measures[Measure.ACCURACY]) for row in pooled]
    said = ", ".join(
        f"{router} n/a" if bar.value is None else f"{router} {percent(bar.value)}%"
        for router, bar in zip(names, bars, strict=True)
    )
    figure = Figure(
        name=name,
        title=f"{study.name}: accuracy of each model and variant",
        alternative=f"A bar for each: {said}.",
        size=(8.2, 0.9 + 0.26 * len(names)),
        paint=charts.bar_panels(names, [charts.BarPanel(study.name, bars)], "Accuracy", 1),
    )
    table = study_table(study.rows, name, f"{study.name}: models and variants of the prompt")
    return [figure, table]


def _of_best(number: int, study: PromptStudyRead) -> list[Table | Figure]:
    name = f"study-{number}-best-of"
    best, vote = (
        [
            charts.Line(
                router,
                [(float(row.samples), value) for row, value in pairs if value is not None],
                place,
            )
            for place, (router, pairs) in enumerate(by_router.items())
        ]
        for by_router in (
            {k: [(row, row.oracle.value) for row in rows] for k, rows in study.best_of.items()},
            {k: [(row, row.majority.value) for row in rows] for k, rows in study.best_of.items()},
        )
    )
    said = "; ".join(
        f"{line.name} {percent(line.points[0][1])}% to {percent(line.points[-1][1])}%"
        for line in best
        if line.points
    )
    figure = Figure(
        name=name,
        title=f"{study.name}: accuracy with N samples",
        alternative=f"A line for each model and variant; with the best of N: {said}.",
        size=(8.2, 3.6),
        paint=charts.line_panels(
            [charts.LinePanel("best of N", best), charts.LinePanel("vote of N", vote)],
            "N",
            "Accuracy",
        ),
    )
    return [figure, best_of_table(study.best_of, name, f"{study.name}: best of N samples")]
