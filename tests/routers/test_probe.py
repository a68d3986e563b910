from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from prerouter.core.errors import CheckpointError, StageError
from prerouter.core.records import (
    Decision,
    DecisionFailure,
    Label,
    MetadataSetting,
    Route,
    StudentMode,
)
from prerouter.recipe.probe_router import HeadKind
from prerouter.routers.probe import HeadSettings, ProbedModel, ProbeRouter, new_head
from prerouter.routers.skops_file import (
    ABOUT_FILE,
    ALLOWED_TYPES,
    MODEL_FILE,
    dump_model,
    schema_types,
)

from .test_classical import Pairs, make_case
from .test_neighbours import replace_model

HEADS: tuple[HeadKind, ...] = get_args(HeadKind)


def pairs(count: int = 60, start: int = 0) -> Pairs:
    found = []
    for number in range(start, start + count):
        lc = number % 3 == 0
        words = "Compare the totals" if lc else "Name the author"
        case = make_case(number).model_copy(update={"question": f"{words} {number}"})
        route = Route.LC if lc else Route.RAG
        found.append((case, Label(case_id=case.case_id, route=route, margin=0.5)))
    return found


def probed(model: Path) -> ProbedModel:
    return ProbedModel.of(
        str(model),
        None,
        "float32",
        "compact",
        StudentMode.DECIDE,
        MetadataSetting.FULL,
        False,
    )


def settings(kind: HeadKind = "linear", layer: str | int = "penultimate") -> HeadSettings:
    return HeadSettings(kind, layer, (1e-2, 1.0), 3, seed=5)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(params=HEADS)
def fitted(request: pytest.FixtureRequest, tiny_model: Path, states: Path) -> ProbeRouter:
    return ProbeRouter(probed(tiny_model)).fit(pairs(), settings(request.param), states)


def decide(router: ProbeRouter, test: Pairs) -> list[Decision]:
    decisions = router.route([case for case, _ in test])
    return [decision.model_copy(update={"seconds": 0.0}) for decision in decisions]


def test_it_learns_and_decides_in_order(fitted: ProbeRouter, tiny_model: Path) -> None:
    test = pairs(30, start=500)
    decisions = list(fitted.route([case for case, _ in test]))
    assert [each.case_id for each in decisions] == [case.case_id for case, _ in test]
    right = [each.route is label.route for each, (_, label) in zip(decisions, test, strict=True)]
    assert np.mean(right) > 0.9
    for each in decisions:
        assert each.router == "probe_router"
        assert each.p_lc is not None
        assert (each.route is Route.LC) == (each.p_lc > 0.5)
        assert (each.calls, each.completion_tokens) == (1, 0)
        assert each.prompt_tokens > 50
        assert each.seconds > 0
        assert each.model == str(tiny_model)


def test_the_batch_does_not_decide(fitted: ProbeRouter, tiny_model: Path, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    alone = ProbeRouter.load(tmp_path, batch_size=1)
    for one, other in zip(decide(fitted, pairs(9, 500)), decide(alone, pairs(9, 500)), strict=True):
        assert one.p_lc == pytest.approx(other.p_lc, abs=1e-3)
        assert one.route == other.route


def test_the_layer_is_chosen(tiny_model: Path, tmp_path: Path) -> None:
    embedding = ProbeRouter(probed(tiny_model)).fit(pairs(), settings(layer=0), tmp_path)
    # All prompts end alike, and an embedding knows nothing of what came before.
    assert len({round(each.p_lc or 0, 6) for each in decide(embedding, pairs(9, 500))}) == 1


def test_a_saved_router_decides_as_before(
    fitted: ProbeRouter, tiny_model: Path, tmp_path: Path
) -> None:
    fitted.save(tmp_path)
    loaded = ProbeRouter.load(tmp_path)
    test = pairs(9, 500)
    assert decide(loaded, test) == decide(fitted, test)
    loaded.save(tmp_path / "again")
    again = (tmp_path / "again" / ABOUT_FILE).read_text("utf-8")
    assert json.loads(again)["c"] == json.loads((tmp_path / ABOUT_FILE).read_text("utf-8"))["c"]
    moved = tmp_path / "moved"
    shutil.copytree(tiny_model, moved)
    assert [each.route for each in decide(ProbeRouter.load(tmp_path, model=str(moved)), test)] == [
        each.route for each in decide(fitted, test)
    ]


@pytest.mark.parametrize("kind", HEADS)
def test_what_is_trusted_is_what_is_needed(kind: HeadKind, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    needed: set[str] = set()
    for one_class in (False, True):
        labels = np.array(["LC"] * 20 + ["LC" if one_class else "RAG"] * 20)
        head = new_head(kind, 1, one_class, 0.1).fit(draw.normal(size=(40, 8)), labels)
        path = tmp_path / "head"
        path.write_bytes(dump_model(head)[0])
        with zipfile.ZipFile(path) as archive:
            needed |= schema_types(json.loads(archive.read("schema.json")))
    assert needed == ALLOWED_TYPES[kind]


def test_a_model_with_other_files_is_refused(
    tiny_model: Path, states: Path, tmp_path: Path
) -> None:
    router = ProbeRouter(probed(tiny_model)).fit(pairs(), settings(), states)
    router.save(tmp_path / "router")
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    weights = other / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(CheckpointError, match="states of another"):
        ProbeRouter.load(tmp_path / "router", model=str(other))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 65}, "can't be loaded"),
        ({"head": "mlp"}, "asks to load"),
        ({"classes": ["RAG"]}, "another model"),
        ({"c": 0.5}, "another model"),
        ({"sha256": "0" * 64}, "checksum differs"),
        ({"layer": -1}, "no such router"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    tiny_model: Path, states: Path, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    ProbeRouter(probed(tiny_model)).fit(pairs(), settings(), states).save(tmp_path)
    path = tmp_path / ABOUT_FILE
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(CheckpointError, match=words):
        ProbeRouter.load(tmp_path)


def test_another_prompt_is_refused(tiny_model: Path, states: Path, tmp_path: Path) -> None:
    ProbeRouter(probed(tiny_model)).fit(pairs(), settings(), states).save(tmp_path)
    path = tmp_path / ABOUT_FILE
    about = json.loads(path.read_text("utf-8"))
    about["probed"]["prompt_hash"] = "0" * 64
    path.write_text(json.dumps(about), "utf-8")
    with pytest.raises(CheckpointError, match="another compact prompt"):
        ProbeRouter.load(tmp_path)


def test_a_head_of_another_make_is_refused(tiny_model: Path, states: Path, tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    ProbeRouter(probed(tiny_model)).fit(pairs(), settings(), states).save(tmp_path)
    replace_model(tmp_path, LogisticRegression().fit([[0.0], [1.0]], ["LC", "RAG"]))
    with pytest.raises(CheckpointError, match="another model"):
        ProbeRouter.load(tmp_path)
    assert (tmp_path / MODEL_FILE).exists()


def test_one_class_gives_a_constant_router(tiny_model: Path, states: Path, tmp_path: Path) -> None:
    one = [(case, Label(case_id="c", route=Route.RAG, margin=0.0)) for case, _ in pairs(40)]
    ProbeRouter(probed(tiny_model)).fit(one, settings(), states).save(tmp_path)
    decisions = decide(ProbeRouter.load(tmp_path), pairs(4, 500))
    assert {(each.route, each.p_lc) for each in decisions} == {(Route.RAG, 0.0)}


def test_a_prompt_that_is_too_long_costs_itself_only(fitted: ProbeRouter) -> None:
    long = make_case(1).model_copy(update={"question": "word " * 3000})
    short = make_case(2)
    decisions = list(fitted.route([long, short]))
    assert decisions[0].failure is DecisionFailure.TOO_LONG
    assert decisions[0].p_lc is None
    assert decisions[1].route is not None


def test_a_training_case_that_is_too_long_is_left_out(tiny_model: Path, tmp_path: Path) -> None:
    long = make_case(999).model_copy(update={"question": "word " * 3000})
    label = Label(case_id="c999", route=Route.LC, margin=1.0)
    router = ProbeRouter(probed(tiny_model)).fit([*pairs(), (long, label)], settings(), tmp_path)
    router.save(tmp_path / "router")
    assert json.loads((tmp_path / "router" / ABOUT_FILE).read_text())["trained_on"] == 60
    with pytest.raises(StageError, match="no labelled case"):
        ProbeRouter(probed(tiny_model)).fit([(long, label)], settings(), tmp_path)


def test_nothing_is_decided_before_it_is_fitted(tiny_model: Path) -> None:
    with pytest.raises(StageError, match="not fitted"):
        next(ProbeRouter(probed(tiny_model)).route([make_case(0)]))


def test_large_batches_are_asked_for_at_once(fitted: ProbeRouter, tiny_model: Path) -> None:
    asked: list[int] = []
    large = ProbeRouter(probed(tiny_model), batch_size=20)
    large._pipeline, large._layer = fitted._pipeline, fitted._layer
    read = fitted._started().prompt_states

    class Recorded:
        def prompt_states(self, requests: list[Any], thinking: bool) -> Any:
            asked.append(len(requests))
            return read(requests, thinking)

    large._reader = Recorded()  # type: ignore[assignment]
    assert len(decide(large, pairs(100))) == 100
    assert asked == [80, 20]
