"""filter over a user's own traces: bad lines stop it or are counted, as --skip-bad has it."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from prerouter.core.errors import CombinedError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Rationale, Reject, Route, Step, Trace
from prerouter.recipe.recipe import Recipe
from prerouter.runs.rows import encode, read_rows
from prerouter.runs.stage import Outcome, execute
from prerouter.stages import cases, filter, label

from .tables import MODELS, table_recipe

QUIET = SilentProgress()


def trace(number: int, model: str) -> bytes:
    return encode(
        Trace(
            case_id=f"q{number:03}/{model}",
            teacher="people",
            rationale=Rationale(steps=dict.fromkeys(Step, "Fine."), reflection="Fine."),
            decision=Route.LC if number % 2 else Route.RAG,
            prompt_hash="none",
        )
    )


@pytest.fixture
def labelled(tmp_path: Path) -> Recipe:
    """A run that is finished up to its labels, over a file of traces with two bad lines."""
    lines = [trace(number, model) for number in range(40) for model in MODELS]
    lines[0] = codecs.BOM_UTF8 + lines[0]
    lines[3:3] = [b"no trace\n"]
    lines[20:20] = [b'{"case_id": "q001/reader-small"}\n']
    traces = tmp_path / "traces.jsonl"
    traces.write_bytes(b"".join(lines))
    recipe = table_recipe(tmp_path, 40, filter={"traces": str(traces), "balance": "downsample"})
    execute(cases.STAGE, recipe, QUIET)
    execute(label.STAGE, recipe, QUIET)
    return recipe


def run(recipe: Recipe, skip_bad: bool) -> Outcome:
    return execute(filter.STAGE, recipe, QUIET, skip_bad=skip_bad)


def test_every_bad_line_is_named_and_the_stage_is_not_finished(labelled: Recipe) -> None:
    with pytest.raises(CombinedError) as caught:
        run(labelled, skip_bad=False)
    path = labelled.run_dir.parents[1] / "traces.jsonl"
    assert [error.place for error in caught.value.errors] == [f"{path}:4", f"{path}:21"]
    assert not (labelled.run_dir / "filter" / "manifest.json").exists()


def test_with_skip_bad_bad_lines_are_rejects_and_counted(labelled: Recipe) -> None:
    with pytest.raises(CombinedError):
        run(labelled, skip_bad=False)
    outcome = run(labelled, skip_bad=True)
    assert outcome.manifest.rejects["unreadable_line"] == 2
    folder = labelled.run_dir / "filter"
    refused = [
        reject
        for reject in read_rows(folder / "rejects.jsonl", Reject)
        if reject.reason == "unreadable_line"
    ]
    assert [(reject.stage, reject.raw) for reject in refused] == [
        ("filter", "no trace"),
        ("filter", '{"case_id": "q001/reader-small"}'),
    ]
    kept = {row.case_id: row for row in read_rows(folder / "rows.jsonl", Trace)}
    assert kept
    assert not set(kept) & {reject.key for reject in refused}


def test_what_was_skipped_is_not_passed_over_without_the_switch(labelled: Recipe) -> None:
    run(labelled, skip_bad=True)
    assert run(labelled, skip_bad=True).action == "passed over"
    with pytest.raises(CombinedError):
        run(labelled, skip_bad=False)
