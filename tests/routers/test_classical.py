from __future__ import annotations

import hashlib
import io
import json
import random
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from prerouter.core.errors import CheckpointError, StageError
from prerouter.core.records import (
    ROUTES,
    AnswerModel,
    Decision,
    DocumentProfile,
    Label,
    MetadataSetting,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.recipe.calibrate import GIVES_P_LC
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.pipelines import ClassicalKind
from prerouter.routers.skops_file import (
    ABOUT_FILE,
    ALLOWED_TYPES,
    MODEL_FILE,
    TRUSTED,
    import_skops,
    schema_types,
)

# Nearest neighbours read the question, not the metadata: tests of their own, in another file.
KINDS: tuple[ClassicalKind, ...] = tuple(
    kind for kind in get_args(ClassicalKind) if kind != "nearest_neighbours"
)
Pairs = list[tuple[RoutingCase, Label]]


def make_case(
    number: int,
    tokens: int | None = 10_000,
    task_type: str | None = "location",
    window: int | None = 128_000,
    model: str = "gpt-4o",
) -> RoutingCase:
    return RoutingCase(
        case_id=f"c{number}",
        question_id=f"q{number}",
        group_id=f"d{number}",
        question="Who signed the treaty?",
        task_type=task_type,
        document=DocumentProfile(document_id=f"d{number}", type="novel", tokens=tokens),
        answer_model=AnswerModel(name=model, context_window=window),
    )


def training_pairs(count: int = 120, seed: int = 0) -> Pairs:
    """Comparison over a short document belongs to LC, with some noise."""
    draw = random.Random(seed)
    pairs = []
    for number in range(count):
        tokens = draw.choice([None, *range(1_000, 100_000, 500)])
        task = draw.choice(["location", "comparison", None])
        lc = task == "comparison" and (tokens or 0) < 50_000
        if draw.random() < 0.1:
            lc = not lc
        route, margin = (Route.LC, 0.5) if lc else (Route.RAG, -0.5)
        case = make_case(number, tokens, task, model=draw.choice(["gpt-4o", "qwen"]))
        pairs.append((case, Label(case_id=case.case_id, route=route, margin=margin)))
    return pairs


def decide(router: ClassicalRouter, cases: list[RoutingCase]) -> list[Decision]:
    return [decision.model_copy(update={"seconds": 0.0}) for decision in router.route(cases)]


@pytest.fixture(scope="module")
def unseen() -> list[RoutingCase]:
    return [case for case, _ in training_pairs(80, seed=9)]


@pytest.fixture(params=KINDS)
def fitted(request: pytest.FixtureRequest) -> ClassicalRouter:
    return ClassicalRouter(request.param, seed=5).fit(training_pairs())


def test_it_learns_and_decides_in_order(fitted: ClassicalRouter, unseen: list[RoutingCase]) -> None:
    decisions = list(fitted.route(unseen))
    assert [decision.case_id for decision in decisions] == [case.case_id for case in unseen]
    right = [
        decision.route
        == (
            Route.LC
            if case.task_type == "comparison" and (case.document.tokens or 0) < 50_000
            else Route.RAG
        )
        for case, decision in zip(unseen, decisions, strict=True)
    ]
    assert np.mean(right) > 0.85
    for decision in decisions:
        assert decision.router == fitted.name
        assert decision.p_lc is not None
        assert (decision.route is Route.LC) == (decision.p_lc > 0.5)
        assert decision.seconds > 0
    assert fitted.name in GIVES_P_LC  # so that it may be calibrated
    assert list(fitted.route([])) == []


def test_a_tie_goes_to_the_cheap_route() -> None:
    case = make_case(0)
    pairs = [
        (case, Label(case_id="c0", route=route, margin=0.0)) for route in (Route.LC, Route.RAG)
    ]
    decision = next(ClassicalRouter("decision_tree", seed=0).fit(pairs).route([case]))
    assert (decision.p_lc, decision.route) == (0.5, Route.RAG)


def three_routes(count: int = 120) -> Pairs:
    """The task type tells the route."""
    kinds = {"location": Route.RAG, "reasoning": Route.LONG_RAG, "comparison": Route.LC}
    return [
        (case, Label(case_id=case.case_id, route=kinds[name], margin=0.0))
        for number, name in enumerate([*kinds] * (count // 3))
        for case in [make_case(number, task_type=name)]
    ]


def test_three_routes_are_learnt_and_decided() -> None:
    router = ClassicalRouter("decision_tree", seed=1).fit(three_routes(30))
    found = list(router.route([case for case, _ in three_routes(3)]))
    assert [decision.route for decision in found] == list(Route)
    assert [decision.p_lc for decision in found] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_router_of_three_routes_decides_as_before(
    kind: ClassicalKind, tmp_path: Path
) -> None:
    router = ClassicalRouter(kind, seed=1).fit(three_routes())
    router.save(tmp_path)
    cases = [case for case, _ in three_routes(3)]
    assert [decision.route for decision in router.route(cases)] == list(Route)
    assert decide(ClassicalRouter.load(tmp_path), cases) == decide(router, cases)


def test_a_router_sees_the_metadata_that_its_setting_shows(tmp_path: Path) -> None:
    pairs = three_routes()
    router = ClassicalRouter("decision_tree", 1, metadata=MetadataSetting.HEAD_ONLY).fit(pairs)
    router.save(tmp_path)
    for each in (router, ClassicalRouter.load(tmp_path)):
        found = list(each.route([case for case, _ in pairs[:3]]))
        # Nothing but the hidden task type tells them apart.
        assert len({decision.p_lc for decision in found}) == 1


def test_the_papers_sizes() -> None:
    tree = ClassicalRouter("decision_tree", seed=0).fit(training_pairs(500))
    forest = ClassicalRouter("random_forest", seed=0).fit(training_pairs(500))
    assert tree._fitted().named_steps["model"].get_depth() <= 6
    assert len(forest._fitted().named_steps["model"].estimators_) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind: ClassicalKind, unseen: list[RoutingCase]) -> None:
    one = decide(ClassicalRouter(kind, seed=1).fit(training_pairs()), unseen)
    assert one == decide(ClassicalRouter(kind, seed=1).fit(training_pairs()), unseen)
    if kind == "random_forest":
        assert one != decide(ClassicalRouter(kind, seed=2).fit(training_pairs()), unseen)


def test_unseen_categories_and_missing_metadata(fitted: ClassicalRouter) -> None:
    cases = [
        make_case(1, task_type="never seen", model="new model"),
        make_case(2, tokens=None, task_type=None, window=None),
        make_case(3, tokens=0),
    ]
    assert all(decision.route is not None for decision in fitted.route(cases))


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_that_no_case_has(kind: ClassicalKind, tmp_path: Path) -> None:
    pairs = [
        (make_case(i, None, None, None), Label(case_id=f"c{i}", route=route, margin=0.1))
        for i, route in enumerate((Route.LC, Route.RAG, Route.RAG))
    ]
    router = ClassicalRouter(kind, seed=0).fit(pairs)
    router.save(tmp_path)
    full = [make_case(9)]
    assert decide(ClassicalRouter.load(tmp_path), full) == decide(router, full)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("route", ROUTES)
def test_one_class_gives_a_constant_router(
    kind: ClassicalKind, route: Route, tmp_path: Path
) -> None:
    pairs = [(case, Label(case_id="c", route=route, margin=0.1)) for case, _ in training_pairs(20)]
    router = ClassicalRouter(kind, seed=0).fit(pairs)
    router.save(tmp_path)
    for each in (router, ClassicalRouter.load(tmp_path)):
        decision = next(each.route([make_case(0)]))
        assert (decision.route, decision.p_lc) == (route, float(route is Route.LC))


def test_only_cases_are_learnt_from_and_decided(fitted: ClassicalRouter) -> None:
    label = Label(case_id="c", route=Route.LC, margin=1.0)
    reference: Any = Reference(question_id="q", answer="gold")
    with pytest.raises(TypeError, match="RoutingCase only"):
        list(fitted.route([reference]))
    with pytest.raises(TypeError, match="RoutingCase only"):
        ClassicalRouter("decision_tree", seed=0).fit([(reference, label)])


def test_nothing_to_learn_from_and_nothing_learnt() -> None:
    router = ClassicalRouter("decision_tree", seed=0)
    with pytest.raises(StageError, match="no labelled case"):
        router.fit([])
    with pytest.raises(StageError, match="not fitted"):
        list(router.route([make_case(0)]))


def test_a_saved_router_decides_as_before(
    fitted: ClassicalRouter, unseen: list[RoutingCase], tmp_path: Path
) -> None:
    folder = tmp_path / "routers" / fitted.kind
    fitted.save(folder)
    assert {path.name for path in folder.iterdir()} == {MODEL_FILE, ABOUT_FILE}
    loaded = ClassicalRouter.load(folder)
    assert decide(loaded, unseen) == decide(fitted, unseen)
    about = json.loads((folder / ABOUT_FILE).read_text("utf-8"))
    assert about["trained_on"] == 120
    assert about["classes"] == ["LC", "RAG"]
    assert set(about["versions"]) == {"scikit-learn", "skops", "numpy"}
    loaded.save(folder)
    assert decide(ClassicalRouter.load(folder), unseen) == decide(fitted, unseen)


def change_about(folder: Path, **fields: object) -> None:
    path = folder / ABOUT_FILE
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | fields), "utf-8")


def replace_model(folder: Path, data: bytes) -> None:
    """As an attacker would: the checksum agrees."""
    (folder / MODEL_FILE).write_bytes(data)
    change_about(folder, sha256=hashlib.sha256(data).hexdigest())


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        ClassicalRouter.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    ClassicalRouter("decision_tree", seed=5).fit(training_pairs()).save(tmp_path)
    return tmp_path


def test_a_tampered_file_is_refused(saved: Path) -> None:
    data = bytearray((saved / MODEL_FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (saved / MODEL_FILE).write_bytes(bytes(data))
    assert "checksum differs" in refusal(saved)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"feature_version": 99}, "other features"),
        ({"features": {"document_tokens": "number"}}, "other features"),
        ({"versions": {"scikit-learn": "0.24.2"}}, "scikit-learn 0.24.2"),
        ({"versions": {}}, "scikit-learn unknown"),
        ({"kind": "random_forest"}, "another model"),
        ({"kind": "gradient_boosting"}, "DecisionTreeClassifier"),
        ({"kind": "perceptron"}, "no such router"),
        ({"classes": ["RAG"]}, "another model"),
        ({"format_version": 2}, "no such router"),
        ({"extra": 1}, "no such router"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    saved: Path, fields: dict[str, object], words: str
) -> None:
    change_about(saved, **fields)
    assert words in refusal(saved)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\x00", '{"kind": NaN}'])
def test_a_broken_description_is_refused(saved: Path, text: str) -> None:
    (saved / ABOUT_FILE).write_text(text, "utf-8")
    refusal(saved)


@pytest.mark.parametrize("name", [MODEL_FILE, ABOUT_FILE])
def test_an_incomplete_folder_is_refused(saved: Path, name: str) -> None:
    (saved / name).unlink()
    assert name in refusal(saved)


class Foreign:
    def __init__(self) -> None:
        self.value = 1


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (Foreign(), "Foreign"),
        # skops trusts both of these by itself; a router does not.
        (LogisticRegression().fit([[0.0], [1.0]], [0, 1]), "LogisticRegression"),
        (Pipeline([("f", FunctionTransformer(np.exp))]), "FunctionTransformer"),
    ],
)
def test_a_foreign_type_is_refused(saved: Path, thing: object, named: str) -> None:
    replace_model(saved, import_skops().dumps(thing))
    message = refusal(saved)
    assert "asks to load" in message
    assert named in message


def types_in(folder: Path) -> set[str]:
    with zipfile.ZipFile(folder / MODEL_FILE) as archive:
        return schema_types(json.loads(archive.read("schema.json")))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_trusted_is_what_is_needed(kind: ClassicalKind, tmp_path: Path) -> None:
    needed: set[str] = set()
    bare = [(make_case(i, None, None, None), pair[1]) for i, pair in enumerate(training_pairs(20))]
    one = [(case, Label(case_id="c", route=Route.LC, margin=1.0)) for case, _ in bare]
    for pairs in (training_pairs(), three_routes(), bare, one):
        ClassicalRouter(kind, seed=5).fit(pairs).save(tmp_path)
        needed |= types_in(tmp_path)
    assert needed == ALLOWED_TYPES[kind]


def test_nothing_that_calls_is_trusted() -> None:
    every = set().union(*ALLOWED_TYPES.values())
    assert set(TRUSTED) <= every
    assert not any("Function" in name or "operator" in name for name in every)


@pytest.mark.parametrize("data", [b"", b"PK", b"\x80\x04N.", import_skops().dumps({"a": 1})])
def test_what_is_no_model_is_refused(saved: Path, data: bytes) -> None:
    replace_model(saved, data)
    refusal(saved)


def rewrite(data: bytes, change: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, change.get(name, old.read(name)))
    return buffer.getvalue()


def test_a_file_that_unpacks_to_gigabytes_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prerouter.routers.skops_file.MAX_UNPACKED_BYTES", 1_000_000)
    data = (saved / MODEL_FILE).read_bytes()
    replace_model(saved, rewrite(data, {"schema.json": b" " * 2_000_000}))
    assert len((saved / MODEL_FILE).read_bytes()) < 200_000
    assert "unpacks to" in refusal(saved)


@pytest.mark.parametrize(
    ("field", "value"), [("left_child", 10**9), ("left_child", 0), ("feature", 10**6)]
)
def test_a_tree_that_would_read_foreign_memory_is_refused(
    saved: Path, field: str, value: int
) -> None:
    data = (saved / MODEL_FILE).read_bytes()
    changed = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                array = np.load(io.BytesIO(archive.read(name)))
                if array.dtype.names and field in array.dtype.names:
                    array[field][0] = value
                    buffer = io.BytesIO()
                    np.save(buffer, array)
                    changed[name] = buffer.getvalue()
    assert changed
    replace_model(saved, rewrite(data, changed))
    assert "another model" in refusal(saved)


@pytest.mark.parametrize("count", ["-1", "0", "1"])
def test_a_node_count_that_hides_nodes_is_refused(saved: Path, count: str) -> None:
    data = (saved / MODEL_FILE).read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
    state = find_state(schema)
    state["node_count"]["content"] = count
    replace_model(saved, rewrite(data, {"schema.json": json.dumps(schema).encode()}))
    refusal(saved)


def find_state(node: Any) -> dict[str, Any]:
    due = [node]
    while due:
        part = due.pop()
        if isinstance(part, dict):
            if "node_count" in part:
                found: dict[str, Any] = part
                return found
            due.extend(part.values())
        elif isinstance(part, list):
            due.extend(part)
    raise AssertionError("no tree in this file")


def spoilt_words(pipeline: Any) -> None:
    words = pipeline.named_steps["features"].named_transformers_["words"]
    words.vocabulary_ = {"who": 10**9, "signed": 0}


def spoilt_categories(pipeline: Any) -> None:
    pipeline.named_steps["features"].named_transformers_["categories"]._n_features_outs = [1, 1, 1]


def spoilt_columns(pipeline: Any) -> None:
    name, part, _ = pipeline.named_steps["features"].transformers_[0]
    pipeline.named_steps["features"].transformers_[0] = (name, part, [0])


def spoilt_shape(pipeline: Any) -> None:
    model = pipeline.named_steps["model"]
    model.estimators_ = model.estimators_.reshape(50, 2)


def spoilt_loss(pipeline: Any) -> None:
    """Three trees a step, added to an array with one column."""
    two = ClassicalRouter("gradient_boosting", seed=5).fit(training_pairs())
    other = two._fitted().named_steps["model"]
    model = pipeline.named_steps["model"]
    model._loss, model.init_ = other._loss, other.init_


def spoilt_start(pipeline: Any) -> None:
    two = ClassicalRouter("gradient_boosting", seed=5).fit(training_pairs())
    pipeline.named_steps["model"].init_ = two._fitted().named_steps["model"].init_


def spoilt_setting(pipeline: Any) -> None:
    pipeline.named_steps["model"].set_params(verbose=1)


def spoilt_weights(pipeline: Any) -> None:
    pipeline.named_steps["model"].coef_ = np.zeros((1, 3))


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("logistic_regression", spoilt_words),
        ("logistic_regression", spoilt_weights),
        ("logistic_regression", spoilt_setting),
        ("gradient_boosting", spoilt_shape),
        ("gradient_boosting", spoilt_categories),
        ("random_forest", spoilt_categories),
        ("decision_tree", spoilt_columns),
        ("decision_tree", spoilt_categories),
    ],
)
def test_a_model_that_its_library_would_trust_blindly_is_refused(
    kind: ClassicalKind, spoil: Callable[[Any], None], tmp_path: Path
) -> None:
    router = ClassicalRouter(kind, seed=5).fit(training_pairs())
    router.save(tmp_path)
    spoil(router._fitted())
    replace_model(tmp_path, import_skops().dumps(router._fitted()))
    refusal(tmp_path)


@pytest.mark.parametrize("spoil", [spoilt_loss, spoilt_start])
def test_boosting_that_would_write_foreign_memory_is_refused(
    spoil: Callable[[Any], None], tmp_path: Path
) -> None:
    router = ClassicalRouter("gradient_boosting", seed=5).fit(three_routes())
    router.save(tmp_path)
    spoil(router._fitted())
    replace_model(tmp_path, import_skops().dumps(router._fitted()))
    assert "another model" in refusal(tmp_path)


@pytest.mark.parametrize("value", [10**9, 0, -7])
def test_a_boosted_tree_that_would_read_foreign_memory_is_refused(
    value: int, tmp_path: Path
) -> None:
    router = ClassicalRouter("gradient_boosting", seed=5).fit(training_pairs())
    router.save(tmp_path)
    tree = router._fitted().named_steps["model"].estimators_[3, 0].tree_
    assert tree.node_count > 1
    # A view into the tree's own memory.
    tree.children_left[0] = value
    replace_model(tmp_path, import_skops().dumps(router._fitted()))
    assert "another model" in refusal(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_two_fits_give_the_same_file(kind: ClassicalKind, tmp_path: Path) -> None:
    for name in ("one", "two"):
        ClassicalRouter(kind, seed=5).fit(training_pairs()).save(tmp_path / name)
    schemas = []
    for name in ("one", "two"):
        with zipfile.ZipFile(tmp_path / name / MODEL_FILE) as archive:
            schema = archive.read("schema.json").decode()
            schemas.append(re.sub(r'"(__id__|file)": ?("[^"]*"|[0-9]+)', "", schema))
    assert schemas[0] == schemas[1]
    # An address in memory, which another process would have elsewhere.
    assert "_stop_words_id" not in schemas[0]


def test_words_of_a_script_without_spaces_are_words() -> None:
    from prerouter.routers.pipelines import QUESTION, columns, matrix

    case = make_case(1).model_copy(update={"question": "数字、What IS it?"})
    row = dict(
        zip(columns("logistic_regression"), matrix([case], "logistic_regression")[0], strict=True)
    )
    assert row[QUESTION] == "数 字 what is it"


def test_saving_works_beside_a_lazy_library() -> None:
    # In one run the student is trained before the baselines are saved.
    code = (
        "import sys, types\n"
        "class Lazy(types.ModuleType):\n"
        "    def __getattr__(self, name):\n"
        "        if name.startswith('__'):\n"
        "            raise AttributeError(name)\n"
        "        raise NameError('a part that needs another library')\n"
        "sys.modules['transformers'] = Lazy('transformers')\n"
        "from prerouter.routers.skops_file import import_skops\n"
        "assert import_skops().dumps({'a': 1})\n"
        "assert type(sys.modules['transformers']) is Lazy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
