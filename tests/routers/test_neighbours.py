"""Nearest neighbours on the embeddings of questions, by a small encoder with random weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from prerouter.core.errors import CheckpointError
from prerouter.core.records import Decision, Label, Route, RoutingCase
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.importances import permutation_importances
from prerouter.routers.skops_file import (
    ABOUT_FILE,
    ALLOWED_TYPES,
    MODEL_FILE,
    audit,
    import_skops,
    schema_types,
)
from tests.retrieval.conftest import make_embedding

from .test_classical import Pairs, make_case

LC_WORDS, RAG_WORDS = "compare both parts", "who is it"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel

    return make_embedding(tmp_path_factory.mktemp("encoder"), BertConfig, BertModel)


def pairs(count: int = 80) -> Pairs:
    """The question tells the route, and no metadata does."""
    found = []
    for number in range(count):
        route = Route.LC if number % 4 == 0 else Route.RAG
        text = f"{LC_WORDS if route is Route.LC else RAG_WORDS} {number}"
        case = make_case(number).model_copy(update={"question": text})
        found.append((case, Label(case_id=case.case_id, route=route, margin=0.5)))
    return found


@pytest.fixture(scope="module")
def fitted(encoder: Path) -> ClassicalRouter:
    return ClassicalRouter("nearest_neighbours", 3, str(encoder)).fit(pairs(120))


def unseen() -> list[RoutingCase]:
    texts = [LC_WORDS, RAG_WORDS, f"{RAG_WORDS} again", "数字", "?"]
    return [
        make_case(900 + number).model_copy(update={"question": text})
        for number, text in enumerate(texts)
    ]


def decide(router: ClassicalRouter, cases: list[RoutingCase]) -> list[Decision]:
    return [decision.model_copy(update={"seconds": 0.0}) for decision in router.route(cases)]


def test_the_nearest_questions_decide(fitted: ClassicalRouter) -> None:
    decisions = decide(fitted, unseen())
    assert [each.route for each in decisions[:3]] == [Route.LC, Route.RAG, Route.RAG]
    for each in decisions:
        assert each.p_lc is not None
        assert each.p_lc * 25 == pytest.approx(round(each.p_lc * 25))


def test_fewer_cases_than_neighbours(encoder: Path) -> None:
    router = ClassicalRouter("nearest_neighbours", 3, str(encoder)).fit(pairs(4))
    assert decide(router, unseen())[0].p_lc == 0.25


def test_a_saved_router_decides_as_before(fitted: ClassicalRouter, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    assert decide(ClassicalRouter.load(tmp_path), unseen()) == decide(fitted, unseen())
    about = json.loads((tmp_path / ABOUT_FILE).read_text("utf-8"))
    assert about["embedding"]
    assert about["embedding_identity"]
    data = (tmp_path / MODEL_FILE).read_bytes()
    assert audit(data, "here", "nearest_neighbours")
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        types = schema_types(json.loads(archive.read("schema.json")))
    assert types == ALLOWED_TYPES["nearest_neighbours"]


def test_three_routes_are_saved_and_loaded(encoder: Path, tmp_path: Path) -> None:
    routes = [*Route]
    three = [
        (case, label.model_copy(update={"route": routes[number % 3]}))
        for number, (case, label) in enumerate(pairs(60))
    ]
    router = ClassicalRouter("nearest_neighbours", 3, str(encoder)).fit(three)
    router.save(tmp_path)
    assert decide(ClassicalRouter.load(tmp_path), unseen()) == decide(router, unseen())


def replace_model(folder: Path, model: object) -> None:
    data = import_skops().dumps(model)
    (folder / MODEL_FILE).write_bytes(data)
    path = folder / ABOUT_FILE
    about = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(about | {"sha256": hashlib.sha256(data).hexdigest()}), "utf-8")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_y", np.array([0, 1])),
        ("_y", np.full(120, 77)),
        ("_y", np.full(120, -9)),
        ("_fit_X", np.zeros((2, 16), dtype=np.float32)),
        ("_fit_X", np.full((120, 16), np.nan, dtype=np.float32)),
        ("n_neighbors", 10**6),
    ],
)
def test_points_or_labels_that_do_not_fit_are_refused(
    fitted: ClassicalRouter, tmp_path: Path, name: str, value: object
) -> None:
    fitted.save(tmp_path)
    import copy

    pipeline = copy.deepcopy(fitted._fitted())
    setattr(pipeline.named_steps["model"], name, value)
    replace_model(tmp_path, pipeline)
    with pytest.raises(CheckpointError):
        ClassicalRouter.load(tmp_path)


def test_another_encoder_is_refused(fitted: ClassicalRouter, encoder: Path, tmp_path: Path) -> None:
    import shutil

    other = tmp_path / "encoder"
    shutil.copytree(encoder, other)
    (other / "README.md").write_text("other files", "utf-8")
    fitted.save(tmp_path / "router")
    path = tmp_path / "router" / ABOUT_FILE
    about = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(about | {"embedding": str(other)}), "utf-8")
    with pytest.raises(CheckpointError, match="vectors of another"):
        ClassicalRouter.load(tmp_path / "router")


def test_its_importance_is_the_questions(fitted: ClassicalRouter) -> None:
    found = permutation_importances(fitted, pairs(60), seed=1)
    assert [each.feature for each in found.features] == ["question"]
    assert found.auc is not None
    assert found.auc > 0.9
    assert found.features[0].mean > 0.2
