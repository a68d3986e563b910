"""How a stage is run: passed over, gone on with, or begun anew; what it reads; what it leaves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from prerouter.core.errors import StageError
from prerouter.core.protocols import Progress
from prerouter.core.records import Record, Reject
from prerouter.recipe.recipe import Recipe
from prerouter.runs.made_of import keeps_made_of
from prerouter.runs.manifest import (
    MANIFEST,
    STARTED,
    FileEntry,
    Fingerprint,
    Manifest,
    altered_files,
    first_run,
    installed_versions,
    read_manifest,
    read_started,
    write_json,
)
from prerouter.runs.processes import check_shared
from prerouter.runs.rejects import count_rejects, drop_transient, reject_key
from prerouter.runs.rows import (
    RecordT,
    RowLog,
    file_sha256,
    read_rows,
    write_rows,
)

LOCK = ".lock"
ROWS = "rows.jsonl"
REJECTS = "rejects.jsonl"


@dataclass(frozen=True)
class Stage:
    """A verb. `sections` names the parts of the recipe it depends on; `parents` the files of
    earlier stages it reads; `inputs` hashes of anything outside the run (data files, prompts);
    `lost` tells what it left beside its rows and is no longer there; `skips_bad` whether it reads a
    file of the user's that may hold bad rows.

    `goes_on` names those of `sections` that say how much is done: where only they changed, the
    stage goes on from the rows that stand. `by_row` says that it does so where its parents changed,
    too: it keeps what each row was made of (`runs.made_of`). `retries` says whether a finished
    stage can make its failed calls again: it reads its rejects by `reject_log` and wrote nothing in
    their place.
    """

    name: str
    sections: Callable[[Recipe], Mapping[str, object]]
    parents: Callable[[Recipe], tuple[str, ...]]
    run: Callable[[StageRun], None]
    inputs: Callable[[Recipe], dict[str, str]] = lambda recipe: {}
    lost: Callable[[Recipe], list[str]] = lambda recipe: []
    skips_bad: Callable[[Recipe], bool] = lambda recipe: False
    packages: tuple[str, ...] = ()
    goes_on: tuple[str, ...] = ()
    by_row: bool = False
    retries: bool = False
    shared: bool = False  # several processes of a launcher can run it together


@dataclass
class StageRun:
    """What a running stage sees: its recipe, its folder, its parents' rows."""

    recipe: Recipe
    folder: Path
    progress: Progress
    skip_bad: bool = False
    leads: bool = True  # False beside the launcher's first process, which does the writing
    before: Fingerprint | None = None  # what the rows that stand were begun for
    report: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    revision: str | None = None
    _logs: list[RowLog[Any]] = field(default_factory=list)

    def read(self, file: str, model: type[RecordT]) -> Iterator[RecordT]:
        """Stream a parent's file, named `stage/file.jsonl`."""
        return read_rows(self.recipe.run_dir / file, model)

    def log(
        self,
        model: type[RecordT],
        key: Callable[[RecordT], str],
        file: str = ROWS,
        flush_every: int = 1,
        due: Collection[str] | None = None,
    ) -> RowLog[RecordT]:
        """Open a file of this stage for appending by key. Rows that aren't `due`, where that is
        given, are taken out."""
        path = self.folder / file
        log = RowLog(path, model, key, flush_every)
        stays = log.done.keys() if due is None else set(due)
        if not log.done.keys() <= stays:
            log.close()
            write_rows(path, (row for row in read_rows(path, model) if key(row) in stays))
            log = RowLog(path, model, key, flush_every)
        self._logs.append(log)
        return log

    def write(self, file: str, records: Iterable[Record]) -> None:
        """Write a whole file of this stage."""
        if self.leads:
            write_rows(self.folder / file, records)

    def reject_log(
        self, flush_every: int = 1, due: Collection[str] | None = None
    ) -> RowLog[Reject]:
        """The rejects of this stage. Those of an earlier attempt stand, except transient ones:
        a call that failed is made again."""
        drop_transient(self.folder / REJECTS)
        return self.log(Reject, reject_key, REJECTS, flush_every, due)

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def files(self) -> dict[str, FileEntry]:
        """Row count and hash of every rows file that this stage left."""
        entries = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as lines:
                rows = sum(1 for _ in lines)
            entries[path.name] = FileEntry(rows=rows, sha256=file_sha256(path))
        return entries


@dataclass(frozen=True)
class Outcome:
    """`why` says what made a stage run that had run before."""

    stage: str
    action: Literal["done", "passed over"]
    manifest: Manifest
    why: str = ""


def execute(
    stage: Stage,
    recipe: Recipe,
    progress: Progress,
    *,
    force: bool = False,
    skip_bad: bool = False,
    retry_failed: bool = False,
) -> Outcome:
    """Run one stage, or pass it over where its fingerprint is that of its manifest. With
    `retry_failed` a finished one makes the calls again that failed, where it can.

    Raises StageError where a parent isn't finished or was altered; whatever the stage had appended
    before an error stays, and the next call goes on from there.
    """
    check_shared(stage.name, stage.shared)
    with alone(recipe.run_dir):
        return _execute(
            stage, recipe, progress, force=force, skip_bad=skip_bad, retry_failed=retry_failed
        )


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Work in a run's folder with no other process in it: two that append to one file would write
    every row twice. Raises StageError where another one does."""
    from filelock import FileLock, Timeout

    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(run_dir / LOCK, timeout=0):
            yield
    except Timeout:
        raise StageError(
            str(run_dir),
            "another process works in this run",
            next_step="wait for it, or give this run another name",
        ) from None


def _execute(
    stage: Stage,
    recipe: Recipe,
    progress: Progress,
    *,
    force: bool,
    skip_bad: bool,
    retry_failed: bool,
) -> Outcome:
    folder = recipe.run_dir / stage.name
    fingerprint = fingerprint_of(stage, recipe, skip_bad)
    anew, why = force, "--force" if force else ""
    finished = read_manifest(folder) if not force else None
    if finished is not None:
        lost = altered_files(folder, finished) or stage.lost(recipe)
        changes = finished.fingerprint.differences(fingerprint) + lost
        if not changes and not (retry_failed and finished.retriable):
            return Outcome(stage.name, "passed over", finished)
        goes_on = _goes_on(stage, folder, fingerprint)
        anew = bool(lost or finished.fingerprint.differences(fingerprint, goes_on))
        why = "; ".join(changes) or f"{finished.retriable} failed calls are made again"
    elif not force and folder.exists():
        changes = _changes_since_start(stage, folder, fingerprint)
        anew = bool(changes)
        why = "; ".join(changes) or "goes on where it was stopped"
    if anew:
        progress.note(f"{stage.name}: begins anew: {why}")
        _clear(folder)
    elif finished is not None:
        progress.note(f"{stage.name}: goes on: {why}")
    before = read_started(folder)
    _begin(folder, fingerprint)
    run = StageRun(recipe, folder, progress, skip_bad, before=before)
    begun = time.monotonic()
    try:
        stage.run(run)
    finally:
        run.close()
    rejects, transient = count_rejects(folder / REJECTS)
    manifest = Manifest(
        fingerprint=fingerprint,
        files=run.files(),
        rejects=rejects,
        retriable=transient if stage.retries else 0,
        report=run.report,
        model=run.model,
        revision=run.revision,
        versions=installed_versions("pydantic", *stage.packages),
        seconds=round(time.monotonic() - begun, 3),
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json", exclude_none=True))
    return Outcome(stage.name, "done", manifest, why)


def begun_for(stage: Stage, recipe: Recipe) -> bool:
    """Whether what lies in the stage's folder was made for what the recipe asks for now."""
    folder = recipe.run_dir / stage.name
    fingerprint = fingerprint_of(stage, recipe, False)
    return folder.exists() and not _changes_since_start(stage, folder, fingerprint)


@contextmanager
def part_of(stage: Stage, recipe: Recipe, progress: Progress) -> Iterator[StageRun]:
    """Do a part of an unfinished stage. What is appended stays, and `execute` goes on from there.

    Raises StageError where it is finished, or the folder holds rows of something else: nothing is
    cleared here.
    """
    folder = recipe.run_dir / stage.name
    with alone(recipe.run_dir):
        if folder.exists() and not begun_for(stage, recipe):
            raise StageError(
                str(folder),
                "was begun for another recipe",
                next_step="give this run another name by --set name=...",
            )
        if read_manifest(folder):
            raise StageError(str(folder), "is finished: no part of it is left to do")
        _begin(folder, fingerprint_of(stage, recipe, False))
        run = StageRun(recipe, folder, progress)
        try:
            yield run
        finally:
            run.close()


def _begin(folder: Path, fingerprint: Fingerprint) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # A stage that goes on is unfinished until its manifest is written again.
    (folder / MANIFEST).unlink(missing_ok=True)
    write_json(folder / STARTED, fingerprint.model_dump(mode="json"))


def fingerprint_of(
    stage: Stage, recipe: Recipe, skip_bad: bool, *, verify: bool = True
) -> Fingerprint:
    """What the stage would be made of now; `verify` hashes the parents' files once more."""
    parents = {}
    for file in stage.parents(recipe):
        name, _, rows = file.partition("/")
        manifest = read_manifest(recipe.run_dir / name)
        if manifest is None:
            raise first_run(stage.name, name, f"is not finished in {recipe.run_dir}")
        altered = altered_files(recipe.run_dir / name, manifest, rows) if verify else []
        if altered:
            raise StageError(
                f"{recipe.run_dir / file}",
                "was altered after its stage had finished",
                next_step=f"run `prerouter {name}` again with --force",
            )
        parents[file] = manifest.files[rows].sha256 if rows in manifest.files else "absent"
    sections = {name: _plain(section) for name, section in stage.sections(recipe).items()}
    if skip_bad and stage.skips_bad(recipe):
        sections["skip_bad"] = True
    return Fingerprint(
        stage=stage.name,
        seed=recipe.seed,
        sections=sections,
        parents=parents,
        inputs=stage.inputs(recipe),
    )


def _plain(section: object) -> object:
    return section.model_dump(mode="json") if isinstance(section, BaseModel) else section


def _goes_on(stage: Stage, folder: Path, fingerprint: Fingerprint) -> tuple[str, ...]:
    """The sections and parents whose change leaves the rows in `folder` to the stage."""
    by_row = stage.by_row and keeps_made_of(folder)
    return (*stage.goes_on, *(fingerprint.parents if by_row else ()))


def _changes_since_start(stage: Stage, folder: Path, fingerprint: Fingerprint) -> list[str]:
    if not (folder / STARTED).exists():
        # Rows without it may be of any recipe: clearing a folder was itself cut short.
        return ["what lies there doesn't say what it was begun for"]
    started = read_started(folder)
    if started is None:
        return ["what was begun is of another version"]
    return started.differences(fingerprint, _goes_on(stage, folder, fingerprint))


def _clear(folder: Path) -> None:
    # The manifest goes first: a kill half way must not leave a stage that looks finished.
    (folder / MANIFEST).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def check_reject_share(stage: str, rejected: int, total: int, limit: float, key: str) -> None:
    """Raises StageError where more than `limit` of `total` was refused."""
    if total and rejected / total > limit:
        raise StageError(
            stage,
            f"{rejected} of {total} were refused ({rejected / total:.1%})",
            f"{key} allows {limit:.1%}",
            f"read {REJECTS} in the stage's folder, mend the cause and run again",
        )
