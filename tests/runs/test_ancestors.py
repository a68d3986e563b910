from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Label, Route
from prerouter.recipe.recipe import Recipe
from prerouter.runs.ancestors import check_ancestors
from prerouter.runs.stage import Stage, StageRun, execute


def recipe(folder: Path, **changes: Any) -> Recipe:
    data = {
        "name": "run",
        "runs_dir": str(folder),
        "cases": {"source": "table", "path": "mine.csv"},
        "score": {"metric": "token_f1"},
    }
    return Recipe.model_validate(data | changes)


def write_one(run: StageRun) -> None:
    run.write("rows.jsonl", [Label(case_id="case", route=Route.RAG, margin=0)])


class Chain:
    """cases, score, label and evaluate, each over the one before it and `cases`."""

    def __init__(self) -> None:
        self.data = "as it was"
        self.lost: list[str] = []

        def stage(name: str, section: Callable[[Recipe], object], *parents: str) -> Stage:
            return Stage(
                name,
                sections=lambda recipe: {name: section(recipe)},
                parents=lambda recipe: tuple(f"{parent}/rows.jsonl" for parent in parents),
                run=write_one,
                inputs=lambda recipe: {"mine.csv": self.data} if name == "cases" else {},
                lost=lambda recipe: self.lost if name == "score" else [],
            )

        self.stages = {
            each.name: each
            for each in (
                stage("cases", lambda recipe: recipe.cases),
                stage("score", lambda recipe: recipe.score, "cases"),
                stage("label", lambda recipe: recipe.label, "cases", "score"),
                stage("evaluate", lambda recipe: recipe.evaluate, "cases", "label"),
            )
        }

    def run(self, recipe: Recipe, *, skip_bad: bool = False) -> None:
        for stage in self.stages.values():
            execute(stage, recipe, SilentProgress(), skip_bad=skip_bad)

    def check(self, recipe: Recipe, verb: str = "evaluate") -> None:
        check_ancestors(self.stages[verb], recipe, self.stages)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    made = Chain()
    made.run(recipe(tmp_path))
    return made


def test_nothing_has_changed(chain: Chain, tmp_path: Path) -> None:
    for verb in chain.stages:
        chain.check(recipe(tmp_path), verb)


@pytest.mark.parametrize("verb", ["label", "evaluate"])
def test_a_changed_section_above_is_told_whatever_lies_between(
    chain: Chain, tmp_path: Path, verb: str
) -> None:
    with pytest.raises(StageError) as caught:
        chain.check(recipe(tmp_path, score={"metric": "rouge_l"}), verb)
    assert caught.value.line == (
        f'{verb}: needs score, which is out of date: score.metric: "token_f1" is now "rouge_l"; '
        "run `prerouter score` on this recipe first, or `prerouter run`"
    )


def test_a_stage_does_not_ask_for_its_own_section(chain: Chain, tmp_path: Path) -> None:
    chain.check(recipe(tmp_path, score={"metric": "rouge_l"}), "score")


def test_the_first_stage_that_is_out_of_date_is_named(chain: Chain, tmp_path: Path) -> None:
    chain.data = "other"
    with pytest.raises(
        StageError, match=r"needs cases, .*mine\.csv changed; run `prerouter cases`"
    ):
        chain.check(recipe(tmp_path, score={"metric": "rouge_l"}))


def test_a_stage_made_anew_leaves_those_below_it_behind(chain: Chain, tmp_path: Path) -> None:
    def other(run: StageRun) -> None:
        run.write("rows.jsonl", [Label(case_id="case", route=Route.LC, margin=1)])

    score = chain.stages["score"]
    anew = Stage("score", score.sections, score.parents, other)
    execute(anew, recipe(tmp_path), SilentProgress(), force=True)
    with pytest.raises(StageError, match=r"needs label, .*: score/rows\.jsonl changed"):
        chain.check(recipe(tmp_path))


def test_what_a_stage_above_lost_is_missed(chain: Chain, tmp_path: Path) -> None:
    chain.lost.append("model.safetensors is gone")
    with pytest.raises(StageError, match=r"needs score, .*model\.safetensors is gone"):
        chain.check(recipe(tmp_path))


def test_a_stage_above_that_is_not_finished_is_named(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "run" / "score" / "manifest.json").unlink()
    with pytest.raises(StageError, match="evaluate: needs score, which is not finished"):
        chain.check(recipe(tmp_path))


def test_cases_made_with_bad_rows_skipped_are_what_was_asked_for(tmp_path: Path) -> None:
    chain = Chain()
    chain.run(recipe(tmp_path), skip_bad=True)
    chain.check(recipe(tmp_path))
