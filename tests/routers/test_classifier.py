from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import DecisionFailure, MetadataSetting, Route, RoutingCase, Split
from prerouter.recipe.classify import ClassifySection
from prerouter.recipe.recipe import Recipe
from prerouter.routers.classifier import ClassifierRouter
from prerouter.stages.classify import labelled_prompts
from prerouter.training.classifier import train_classifier

from .test_probe import pairs


@pytest.fixture(scope="module")
def folder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student that has learnt which of two words a question begins with."""
    cases = {case.case_id: case for case, _ in pairs()}
    labels = [label for _, label in pairs()]
    section = ClassifySection(
        model="tiny",
        device="cpu",
        dtype="float32",
        arguments={"max_steps": 40, "learning_rate": 5e-3, "per_device_train_batch_size": 8},
    )
    sides = {case.question_id: Split.TRAIN for case in cases.values()}
    recipe = Recipe.model_validate(
        {
            "name": "tiny",
            "cases": {"source": "table", "path": "rows.jsonl"},
            "classify": section.model_dump(mode="json", exclude_unset=True),
        }
    )
    rows = labelled_prompts(labels, cases, sides, recipe)[Split.TRAIN]
    target = tmp_path_factory.mktemp("classify")
    train_classifier(rows, [], section, str(tiny_model), target, 13, "test", SilentProgress())
    return target / "model"


def router(folder: Path, max_length: int = 2000) -> ClassifierRouter:
    return ClassifierRouter(
        folder,
        "compact",
        MetadataSetting.FULL,
        max_length=max_length,
        batch_size=4,
        dtype="float32",
        priced_as="tiny",
    )


def test_new_cases_are_routed_as_was_learnt_in_their_order(folder: Path) -> None:
    new = pairs(20, start=100)
    decisions = list(router(folder).route([case for case, _ in new]))
    assert [d.case_id for d in decisions] == [case.case_id for case, _ in new]
    assert [d.route for d in decisions] == [label.route for _, label in new]
    for decision in decisions:
        assert decision.p_lc is not None
        assert (decision.p_lc > 0.5) == (decision.route is Route.LC)
        assert decision.prompt_tokens > 0
        assert (decision.completion_tokens, decision.calls, decision.model) == (0, 1, "tiny")


def test_loading_draws_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    router(folder)
    assert capfd.readouterr() == ("", "")


def test_a_prompt_without_room_costs_itself_alone(folder: Path) -> None:
    short, long = (case for case, _ in pairs(2))
    long = RoutingCase.model_validate(long.model_dump() | {"question": "Name " * 900})
    first, second = router(folder).route([long, short])
    assert (first.route, first.failure, first.p_lc) == (None, DecisionFailure.TOO_LONG, None)
    assert second.route is not None


def test_a_head_whose_numbers_overflow_decides_nothing(folder: Path) -> None:
    broken = router(folder)
    broken._model.score.weight.data.fill_(math.nan)
    decisions = list(broken.route([case for case, _ in pairs(3)]))
    assert {(d.route, d.p_lc, d.failure) for d in decisions} == {
        (None, None, DecisionFailure.UNPARSABLE)
    }
    assert all(d.calls == 1 and d.prompt_tokens for d in decisions)


def test_weights_of_pickles_are_refused(folder: Path, tmp_path: Path) -> None:
    import torch

    copy = shutil.copytree(folder, tmp_path / "model")
    (copy / "model.safetensors").unlink()
    torch.save({}, copy / "pytorch_model.bin")
    with pytest.raises(RecipeError, match="can't be loaded"):
        router(copy)


def test_decisions_come_before_the_last_case_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prerouter.routers import classifier

    read: list[int] = []
    scored = classifier.classify_probabilities

    def count(model: object, batch: list[list[int]], pad: int) -> list[float]:
        read.append(len(batch))
        return scored(model, batch, pad)  # type: ignore[arg-type]

    monkeypatch.setattr(classifier, "classify_probabilities", count)
    decisions = router(folder).route([case for case, _ in pairs(70)])
    next(decisions)
    assert sum(read) == 64
    assert len(list(decisions)) == 69
    assert sum(read) == 70
