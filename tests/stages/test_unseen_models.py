"""An answer model that is left out: nothing learns from it, its row of the table says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prerouter.core.errors import CombinedError, PrerouterError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Decision, RoutingCase, Split, Trace
from prerouter.probing.representations import States
from prerouter.probing.run_files import read_run
from prerouter.recipe.probe import ProbeStudy
from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, evaluate, filter, label, probe, route, teach

from .tables import MODELS, table_recipe, with_task_types

SEEN, UNSEEN = MODELS
STAGES = (cases, label, teach, filter, route, evaluate)


def recipe_of(folder: Path, unseen: list[str], **sections: Any) -> Recipe:
    recipe = table_recipe(
        folder,
        40,
        split={"group_by": "document", "unseen_models": unseen},
        teach={"teacher": "guideline"},
        filter={"one_class": "warn"},
        route={"routers": ["always_rag", "task_majority", "decision_tree"]},
        evaluate={"resamples": 100, "report": False},
        **sections,
    )
    return with_task_types(recipe)


def run(recipe: Recipe) -> Recipe:
    for stage in STAGES:
        execute(stage.STAGE, recipe, SilentProgress())
    return recipe


def models_of(recipe: Recipe, file: str, kind: type[Trace] | type[Decision]) -> set[str]:
    by_id = {c.case_id: c for c in read_rows(recipe.run_dir / "cases/rows.jsonl", RoutingCase)}
    return {by_id[r.case_id].answer_model.name for r in read_rows(recipe.run_dir / file, kind)}


def test_nothing_learns_from_it_and_every_router_decides_it(tmp_path: Path) -> None:
    recipe = run(recipe_of(tmp_path, [UNSEEN]))
    assert models_of(recipe, "teach/rows.jsonl", Trace) == {SEEN}
    assert models_of(recipe, "filter/rows.jsonl", Trace) == {SEEN}
    assert models_of(recipe, "route/rows.jsonl", Decision) == set(MODELS)
    both = run(recipe_of(tmp_path, [], name="both"))
    learnt = [read_manifest(each.run_dir / "route") for each in (recipe, both)]
    assert learnt[0] is not None
    assert learnt[1] is not None
    assert learnt[0].report["training_pairs"] * 2 == learnt[1].report["training_pairs"]


def probe_study(recipe: Recipe) -> ProbeStudy:
    return ProbeStudy.model_validate(
        {
            "name": f"probes-{recipe.name}",
            "runs_dir": recipe.run_dir.parent,
            "run": recipe.run_dir,
            "rows": [{"name": "a", "model": "embedded:small", "prompt": "direct"}],
            "targets": ["ideal_label"],
        }
    )


def test_a_probe_does_not_learn_from_it(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, [UNSEEN])
    for stage in (cases, label):
        execute(stage.STAGE, recipe, SilentProgress())
    known = read_run(probe_study(recipe))
    (file,) = known.cases
    by_side = {
        side: {c.answer_model.name for c in known.cases[file] if known.sides[c.question_id] is side}
        for side in (Split.TRAIN, Split.TEST)
    }
    assert by_side == {Split.TRAIN: {SEEN}, Split.TEST: set(MODELS)}
    learnt = [c for c in known.cases[file] if known.sides[c.question_id] is Split.TRAIN]
    assert known.unseen == {file: len(learnt)}


def test_a_probe_tells_how_many_test_cases_are_of_it(tmp_path: Path) -> None:
    notes = []
    for unseen in ([UNSEEN], []):
        recipe = recipe_of(tmp_path, unseen)
        for stage in (cases, label):
            execute(stage.STAGE, recipe, SilentProgress())
        study = probe_study(recipe)
        known = read_run(study)
        (asked,) = known.cases.values()
        shape = (len(asked), 4)
        vectors = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        known_states = np.ones(len(asked), dtype=bool)
        of_unseen = [
            index
            for index, case in enumerate(asked)
            if case.answer_model.name == UNSEEN and known.sides[case.question_id] is Split.TEST
        ]
        # One of them has no state, and the last question no label: neither is a test case.
        known_states[of_unseen[0]] = False
        counted = sum(asked[index].case_id in known.labels for index in of_unseen[1:])
        states = States({1: vectors}, np.zeros((len(asked), 0)), known_states, {}, 2, 0)
        (row,) = study.rows
        found = probe._probe(study, row, "ideal_label", 1, known, known.labels, states)
        assert 0 < counted < found.test_cases
        notes.append([note for note in found.notes if "not learnt from" in note])
    told = f"{counted} test cases are of answer models that were not learnt from"
    assert notes == [[f"{told} (split.unseen_models)"], []]


def test_leaving_one_out_makes_a_probe_study_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "model_identity", lambda *_: "a model")
    prints = []
    for unseen in ([], [UNSEEN]):
        recipe = recipe_of(tmp_path, unseen)
        for stage in (cases, label):
            execute(stage.STAGE, recipe, SilentProgress())
        prints.append(probe._fingerprint(probe_study(recipe)))
    assert prints[0].differences(prints[1]) == [f'split.unseen_models: absent is now ["{UNSEEN}"]']


def test_the_table_says_which_model_nobody_learnt_from(tmp_path: Path) -> None:
    recipe = run(recipe_of(tmp_path, [UNSEEN]))
    table = (recipe.run_dir / "evaluate" / "table.md").read_text("utf-8")
    titles = [line for line in table.splitlines() if line.startswith("**Answer model")]
    assert len(titles) == 2
    for title in titles:
        assert ("not seen in training" in title) is (UNSEEN in title)


def test_leaving_one_out_makes_what_learns_run_anew(tmp_path: Path) -> None:
    run(recipe_of(tmp_path, []))
    changed = recipe_of(tmp_path, [UNSEEN])
    execute(cases.STAGE, changed, SilentProgress())
    assert execute(label.STAGE, changed, SilentProgress()).action == "passed over"
    for stage in (teach, filter, route, evaluate):
        assert execute(stage.STAGE, changed, SilentProgress()).action == "done", stage.__name__


@pytest.mark.parametrize(
    ("unseen", "message"),
    [(["reader-lagre"], "which no case has"), (list(MODELS), "nothing is left to learn from")],
)
def test_names_that_make_no_sense_are_refused(
    tmp_path: Path, unseen: list[str], message: str
) -> None:
    with pytest.raises(PrerouterError) as caught:
        execute(cases.STAGE, recipe_of(tmp_path, unseen), SilentProgress())
    assert isinstance(caught.value, CombinedError)
    assert message in " ".join(caught.value.lines)
