from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Label, Reject, Route
from prerouter.recipe.recipe import Recipe
from prerouter.runs.ancestors import check_ancestors
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import Stage, StageRun, execute


class KilledError(Exception):
    """Stands for a kill: whatever was appended before it stays."""


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def recipe(folder: Path, **label: float) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "run",
            "runs_dir": str(folder),
            "cases": {"source": "table", "path": "mine.csv"},
            "label": label,
        }
    )


class Counting:
    """A stage of five rows that counts how many it made, and may be stopped on the way."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.made = 0
        self.stop_after = stop_after

    def stage(self, name: str = "label", parents: tuple[str, ...] = ()) -> Stage:
        return Stage(
            name=name,
            sections=lambda recipe: {"label": recipe.label},
            parents=lambda recipe: parents,
            run=self.run,
        )

    def run(self, run: StageRun) -> None:
        rejects = run.reject_log()
        with run.log(Label, lambda row: row.case_id) as log:
            for number in range(5):
                key = f"case-{number}"
                if key in log.done or key in rejects.done:
                    continue
                if self.made == self.stop_after:
                    raise KilledError
                self.made += 1
                if number == 3:
                    rejects.append(Reject(stage="label", key=key, reason="no_label"))
                else:
                    log.append(Label(case_id=key, route=Route.RAG, margin=0))


def rows(folder: Path) -> bytes:
    return (folder / "run" / "label" / "rows.jsonl").read_bytes()


def test_a_second_plain_run_does_nothing(tmp_path: Path) -> None:
    work = Counting()
    first = execute(work.stage(), recipe(tmp_path), SilentProgress())
    second = execute(work.stage(), recipe(tmp_path), SilentProgress())
    assert (first.action, second.action) == ("done", "passed over")
    assert work.made == 5
    assert second.manifest.rejects == {"no_label": 1}
    assert second.manifest.files["rows.jsonl"].rows == 4


@pytest.mark.parametrize("stop_after", range(5))
def test_stopped_anywhere_it_goes_on_with_what_is_missing(tmp_path: Path, stop_after: int) -> None:
    undisturbed = tmp_path / "undisturbed"
    execute(Counting().stage(), recipe(undisturbed), SilentProgress())
    broken = Counting(stop_after)
    with pytest.raises(KilledError):
        execute(broken.stage(), recipe(tmp_path), SilentProgress())
    rest = Counting()
    outcome = execute(rest.stage(), recipe(tmp_path), SilentProgress())
    assert broken.made + rest.made == 5
    assert rows(tmp_path) == rows(undisturbed)
    assert outcome.manifest.rejects == {"no_label": 1}


def test_a_changed_section_begins_anew_and_says_why(tmp_path: Path) -> None:
    work, notes = Counting(), Notes()
    execute(work.stage(), recipe(tmp_path), notes)
    execute(work.stage(), recipe(tmp_path, min_margin=0.5), notes)
    assert work.made == 10
    assert "label.min_margin: 0.0 is now 0.5" in notes.notes[-1]


def test_what_was_begun_under_another_section_is_not_gone_on_with(tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        execute(Counting(3).stage(), recipe(tmp_path), SilentProgress())
    rest = Counting()
    execute(rest.stage(), recipe(tmp_path, min_margin=0.5), SilentProgress())
    assert rest.made == 5


def test_force_begins_anew(tmp_path: Path) -> None:
    work = Counting()
    execute(work.stage(), recipe(tmp_path), SilentProgress())
    execute(work.stage(), recipe(tmp_path), SilentProgress(), force=True)
    assert work.made == 10


def test_an_altered_result_is_made_again(tmp_path: Path) -> None:
    work, notes = Counting(), Notes()
    execute(work.stage(), recipe(tmp_path), notes)
    whole = rows(tmp_path)
    (tmp_path / "run" / "label" / "rows.jsonl").write_bytes(whole[:-5])
    execute(work.stage(), recipe(tmp_path), notes)
    assert rows(tmp_path) == whole
    assert "was altered" in notes.notes[-1]


def test_a_parent_that_is_not_finished_is_named(tmp_path: Path) -> None:
    child = Counting().stage("evaluate", parents=("label/rows.jsonl",))
    with pytest.raises(StageError, match=r"evaluate: needs label, .*prerouter label"):
        execute(child, recipe(tmp_path), SilentProgress())


def test_a_parent_that_was_altered_is_refused(tmp_path: Path) -> None:
    execute(Counting().stage(), recipe(tmp_path), SilentProgress())
    (tmp_path / "run" / "label" / "rows.jsonl").write_bytes(b"")
    child = Counting().stage("evaluate", parents=("label/rows.jsonl",))
    with pytest.raises(StageError, match=r"was altered.*prerouter label"):
        execute(child, recipe(tmp_path), SilentProgress())


def test_a_parent_that_changed_makes_its_child_anew(tmp_path: Path) -> None:
    parent, child, notes = Counting(), Counting(), Notes()
    below = child.stage("evaluate", parents=("label/rows.jsonl",))
    execute(parent.stage(), recipe(tmp_path), notes)
    execute(below, recipe(tmp_path), notes)
    execute(parent.stage(), recipe(tmp_path, min_margin=0.5), notes)
    # The same rows came out: the child has nothing new to read.
    outcome = execute(below, recipe(tmp_path), notes)
    assert outcome.action == "passed over"
    (tmp_path / "run" / "label" / "manifest.json").unlink()
    (tmp_path / "run" / "label" / "rows.jsonl").unlink()
    shorter = Counting()
    shorter.run = lambda run: run.write("rows.jsonl", [])  # type: ignore[method-assign]
    execute(shorter.stage(), recipe(tmp_path), notes)
    outcome = execute(below, recipe(tmp_path), notes)
    assert outcome.action == "done"
    assert "label/rows.jsonl changed" in outcome.why


def test_a_transient_reject_is_tried_again_and_a_lasting_one_is_not(tmp_path: Path) -> None:
    tried: list[str] = []

    def run(run: StageRun) -> None:
        rejects = run.reject_log()
        for key in ("lasting", "transient"):
            if key not in rejects.done:
                tried.append(key)
                rejects.append(
                    Reject(stage="teach", key=key, reason="refused", transient=key == "transient")
                )
        if len(tried) == 2:
            raise KilledError

    stage = Stage("teach", lambda recipe: {}, lambda recipe: (), run)
    with pytest.raises(KilledError):
        execute(stage, recipe(tmp_path), SilentProgress())
    outcome = execute(stage, recipe(tmp_path), SilentProgress())
    assert tried == ["lasting", "transient", "transient"]
    assert outcome.manifest.rejects == {"refused": 2}


def test_rows_that_do_not_say_what_they_were_begun_for_are_not_adopted(tmp_path: Path) -> None:
    # A kill while a folder is cleared can leave the rows of another recipe behind.
    execute(Counting().stage(), recipe(tmp_path), SilentProgress())
    for name in ("manifest.json", "started.json"):
        (tmp_path / "run" / "label" / name).unlink()
    work, notes = Counting(), Notes()
    execute(work.stage(), recipe(tmp_path, min_margin=0.5), notes)
    assert work.made == 5
    assert "begins anew" in notes.notes[-1]


def test_two_processes_do_not_work_in_one_run(tmp_path: Path) -> None:
    def run(run: StageRun) -> None:
        with pytest.raises(StageError, match="another process works in this run"):
            execute(Counting().stage(), recipe(tmp_path), SilentProgress())

    execute(Stage("teach", lambda recipe: {}, lambda recipe: (), run), recipe(tmp_path), Notes())
    assert execute(Counting().stage(), recipe(tmp_path), SilentProgress()).action == "done"


def test_what_a_stage_left_beside_its_rows_is_missed(tmp_path: Path) -> None:
    lost: list[str] = []
    stage = Stage(
        "label",
        lambda recipe: {},
        lambda recipe: (),
        Counting().run,
        lost=lambda recipe: lost,
    )
    execute(stage, recipe(tmp_path), SilentProgress())
    lost.append("model.safetensors is gone")
    outcome = execute(stage, recipe(tmp_path), SilentProgress())
    assert outcome.why == "model.safetensors is gone"


class Growing:
    """A stage of as many rows as the recipe's head characters (any number of the recipe's)."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.refuse: set[str] = set()

    @property
    def stage(self) -> Stage:
        return Stage(
            "label",
            sections=lambda recipe: {
                "margin": recipe.label.min_margin,
                "seeds": recipe.cases.head_characters,
            },
            parents=lambda recipe: (),
            run=self.run,
            goes_on=("seeds",),
            retries=True,
        )

    def run(self, run: StageRun) -> None:
        due = [str(number) for number in range(run.recipe.cases.head_characters)]
        rejects = run.reject_log(due=due)
        with run.log(Label, lambda row: row.case_id, due=due) as log:
            for key in due:
                if key in log.done or key in rejects.done:
                    continue
                self.made.append(key)
                if key in self.refuse:
                    rejects.append(
                        Reject(stage="label", key=key, reason="call_failed", transient=True)
                    )
                else:
                    log.append(Label(case_id=key, route=Route.RAG, margin=0))
            log.sort(due)

    def written(self, folder: Path) -> list[str]:
        return [row.case_id for row in read_rows(folder / "run/label/rows.jsonl", Label)]


def sized(folder: Path, size: int, **label: float) -> Recipe:
    made = recipe(folder, **label)
    cases = made.cases.model_copy(update={"head_characters": size})
    return made.model_copy(update={"cases": cases})


def test_where_only_the_amount_grew_a_finished_stage_goes_on(tmp_path: Path) -> None:
    work, notes = Growing(), Notes()
    execute(work.stage, sized(tmp_path, 2), notes)
    with pytest.raises(StageError, match=r"needs label, .*: seeds: 2 is now 4"):
        check_ancestors(
            Counting().stage("evaluate", ("label/rows.jsonl",)),
            sized(tmp_path, 4),
            {"label": work.stage},
        )
    outcome = execute(work.stage, sized(tmp_path, 4), notes)
    assert work.made == ["0", "1", "2", "3"]
    assert (outcome.action, outcome.why) == ("done", "seeds: 2 is now 4")
    assert notes.notes == ["label: goes on: seeds: 2 is now 4"]
    assert work.written(tmp_path) == work.made
    assert execute(work.stage, sized(tmp_path, 4), notes).action == "passed over"


def test_where_the_amount_shrank_the_first_rows_stand(tmp_path: Path) -> None:
    work = Growing()
    work.refuse = {"1", "3"}
    execute(work.stage, sized(tmp_path, 5), SilentProgress())
    work.refuse, work.made = {"1"}, []
    outcome = execute(work.stage, sized(tmp_path, 2), SilentProgress())
    # The failed call is made again, as on every rerun that goes on.
    assert work.made == ["1"]
    assert work.written(tmp_path) == ["0"]
    assert outcome.manifest.rejects == {"call_failed": 1}


def test_an_amount_beside_another_change_begins_anew(tmp_path: Path) -> None:
    work, notes = Growing(), Notes()
    execute(work.stage, sized(tmp_path, 2), notes)
    execute(work.stage, sized(tmp_path, 3, min_margin=0.5), notes)
    assert work.made == ["0", "1", "0", "1", "2"]
    assert notes.notes == ["label: begins anew: margin: 0.0 is now 0.5; seeds: 2 is now 3"]


def test_killed_while_it_grew_it_is_unfinished_and_grows_on(tmp_path: Path) -> None:
    work = Growing()
    execute(work.stage, sized(tmp_path, 2), SilentProgress())

    def killed(run: StageRun) -> None:
        raise KilledError

    broken = replace(work.stage, run=killed)
    with pytest.raises(KilledError):
        execute(broken, sized(tmp_path, 4), SilentProgress())
    assert read_manifest(tmp_path / "run" / "label") is None
    execute(work.stage, sized(tmp_path, 4), SilentProgress())
    assert work.made == ["0", "1", "2", "3"]


def test_failed_calls_of_a_finished_stage_are_made_again_where_asked_for(tmp_path: Path) -> None:
    work, notes = Growing(), Notes()
    work.refuse = {"1"}
    first = execute(work.stage, sized(tmp_path, 3), notes)
    assert first.manifest.retriable == 1
    work.refuse, work.made = set(), []
    plain = execute(work.stage, sized(tmp_path, 3), notes)
    assert (plain.action, work.made) == ("passed over", [])
    again = execute(work.stage, sized(tmp_path, 3), notes, retry_failed=True)
    assert (again.action, work.made) == ("done", ["1"])
    assert notes.notes == ["label: goes on: 1 failed calls are made again"]
    assert work.written(tmp_path) == ["0", "1", "2"]
    assert (again.manifest.rejects, again.manifest.retriable) == ({}, 0)
    nothing = execute(work.stage, sized(tmp_path, 3), notes, retry_failed=True)
    assert nothing.action == "passed over"
