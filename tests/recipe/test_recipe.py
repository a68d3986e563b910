from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.recipe.base import apply_overrides, validate
from prerouter.recipe.calibrate import GIVES_P_LC
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.recipe.route import BASELINES
from prerouter.recipe.train import OWNED_SFT_FIELDS, sft_choices, sft_fields

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))

MINIMAL: dict[str, Any] = {
    "name": "mine",
    "cases": {"source": "table", "path": "mine.parquet"},
}
STUDENT: dict[str, Any] = {
    "teach": {"teacher": "guideline"},
    "filter": {},
    "train": {"model": "Qwen/Qwen3-1.7B"},
}


def mistakes(data: dict[str, Any]) -> list[str]:
    with pytest.raises(CombinedError) as caught:
        validate(Recipe, data, "r.yaml")
    return caught.value.lines


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_recipe_that_ships_is_valid(path: Path) -> None:
    assert load_recipe(path).name


def test_own_paired_scores_need_no_more_than_cases() -> None:
    recipe = validate(Recipe, MINIMAL, "r.yaml")
    assert recipe.answer is None
    assert recipe.score is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["cases.source=parquet"], "source must be one of: sample, lara, table, longbench_v2"),
        (["cases.pth=x"], "did you mean path?"),
        (["cases.columns.questoin=q"], "did you mean question?"),
        (["cases.scale.high=1.7e308"], "less than or equal to 1000000000"),
        (["cases.scale.low=-1.7e308"], "greater than or equal to -1000000000"),
        ([f"cases.answer_models=[{{name: {'m' * 300}}}]"], "200 characters at most"),
        (["cases={source: lara, path: x, context_windows: {m: -1}}"], "greater than 0"),
        (["train=", "route="], "route: is blank"),
        (["split.train=0.9"], "must add up to 1"),
        (["rag.overlap_tokens=600"], "overlap_tokens must be smaller"),
        (["filter.per_case=1"], "filter needs `teach`"),
        (["train.model=x"], "train needs `filter`"),
        (["route.routers=[student]"], "need `train`"),
        (["route.routers=[always_rag, always_rag]"], "each router is named once"),
        (["calibrate.routers=[classifier, classifier]"], "each router is named once"),
        (["calibrate.routers=[]"], "at least 1 item"),
        (["calibrate.router=classifier"], "did you mean routers?"),
        (["evaluate.resamples=500"], "evaluate needs `route`"),
        (["teach.teacher=engine"], "needs an `engine`"),
        (["teach.engine.kind=tgi"], "kind must be one of: transformers, vllm, openai"),
        (
            ["teach.engine={kind: vllm, model: m, arguments: {trust_remote_code: true}}"],
            "trust_remote_code is never set",
        ),
        (["teach={teacher: guideline, prompt: {without: [reflection]}}"], "reads no prompt"),
        (
            [
                "teach={engine: {kind: vllm, model: m}, prompt: {paradigm: direct}}",
                "filter={}",
                "train.model=m",
            ],
            "paradigm has to be guided",
        ),
        (
            [
                "teach.teacher=guideline",
                "filter={}",
                "train.model=m",
                "route.routers=[always_rag]",
                "evaluate={}",
                "publish={}",
            ],
            "publish needs `student`",
        ),
        (
            ["teach.teacher=guideline", "filter={}", "train={model: m, mix: {explain: 0}}"],
            "explain or decide has to be 1 or more",
        ),
        (
            [
                "teach.teacher=guideline",
                "filter={}",
                "train.model=m",
                "route.routers=[student_decide]",
            ],
            "student_decide needs train.mix.decide: 1 or more",
        ),
        (
            [
                "teach.teacher=guideline",
                "filter={}",
                "train={model: m, mix: {explain: 0, decide: 1}}",
                "route.routers=[student]",
            ],
            "route.routers student needs train.mix.explain: 1 or more",
        ),
        (["cases.answer_models=[{name: m}, {name: m}]"], "their cases would clash"),
        (["seed=-1"], "greater than or equal to 0"),
        (["name=../escape"], "match pattern"),
    ],
)
def test_a_mistake_is_told_with_what_is_accepted(changes: list[str], message: str) -> None:
    lines = mistakes(apply_overrides(MINIMAL, changes))
    assert any(message in line for line in lines), lines


@pytest.mark.parametrize(
    ("train", "students"),
    [
        (None, ()),
        ({"model": "m"}, ("student_before", "student")),
        (
            {"model": "m", "mix": {"decide": 1}},
            ("student_before", "student", "student_decide"),
        ),
        ({"model": "m", "mix": {"explain": 0, "decide": 1}}, ("student_decide",)),
    ],
)
def test_where_no_router_is_named_all_that_there_is_decide(
    train: dict[str, Any] | None, students: tuple[str, ...]
) -> None:
    data = {**MINIMAL, "teach": {"teacher": "guideline"}, "filter": {}, "route": {}}
    recipe = Recipe.model_validate(data if train is None else {**data, "train": train})
    assert recipe.route is not None
    assert recipe.route.routers == (*BASELINES, *students)


COMPARED = [
    "route={routers: [guideline, always_rag, decision_tree], published: {theirs: routers/theirs}}",
    "calibrate={routers: [decision_tree]}",
]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (
            "[guidelin, always_rag]",
            "evaluate.compare guidelin is none of guideline, always_rag, decision_tree, theirs, "
            "decision_tree_tuned, oracle",
        ),
        ("[theirs, student]", "evaluate.compare student is none of"),
        ("[guideline, guideline]", "evaluate.compare guideline with itself"),
    ],
)
def test_a_pair_that_cannot_be_compared_is_told_at_once(pair: str, message: str) -> None:
    lines = mistakes(apply_overrides(MINIMAL, [*COMPARED, f"evaluate.compare=[{pair}]"]))
    assert any(message in line for line in lines), lines


def test_whatever_has_decisions_may_be_compared() -> None:
    pairs = "[[theirs, guideline], [decision_tree_tuned, guideline], [always_rag, oracle]]"
    data = apply_overrides(MINIMAL, [*COMPARED, f"evaluate.compare={pairs}"])
    recipe = validate(Recipe, data, "r.yaml")
    assert recipe.evaluate is not None
    assert len(recipe.evaluate.compare or ()) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("learning_rat", "did you mean learning_rate?"),
        ("max_length", "use train.max_length"),
        ("seed", "use seed"),
        ("bf16", "use train.dtype"),
        ("push_to_hub", "use publish"),
        ("trust_remote_code", "may not bring code along"),
    ],
)
def test_sft_fields_are_refused_by_name(name: str, message: str) -> None:
    lines = mistakes({**MINIMAL, **STUDENT, "train": {"model": "m", "sft": {name: 1}}})
    assert any(message in line for line in lines), lines


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("learning_rate", 2e-5, True),
        ("learning_rate", 1, True),
        ("learning_rate", "fast", False),
        ("learning_rate", True, False),
        ("max_steps", "many", False),
        ("num_train_epochs", "many", False),
        ("max_steps", 2.5, False),
        ("gradient_checkpointing", "yes", False),
        ("gradient_checkpointing", False, True),
        ("lr_scheduler_type", "cosine", True),
        ("optim", "adamw_torch", True),
        ("save_strategy", "no", True),
        ("report_to", ["tensorboard"], True),
        ("report_to", "none", True),
        ("deepspeed", {"zero": 2}, True),
    ],
)
def test_sft_values_are_of_the_kind_that_the_field_takes(
    name: str, value: object, accepted: bool
) -> None:
    data = {**MINIMAL, **STUDENT, "train": {"model": "m", "sft": {name: value}}}
    if accepted:
        validate(Recipe, data, "r.yaml")
    else:
        assert any(f"{name} takes" in line for line in mistakes(data))


def test_the_list_of_sft_fields_is_that_of_the_installed_trl() -> None:
    from scripts import make_sft_fields

    assert sft_fields() == make_sft_fields.sft_fields()
    assert sft_choices() == make_sft_fields.sft_choices()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr_scheduler_type", "cosin", "did you mean cosine?"),
        ("train_sampling_strategy", "foo", "random, sequential"),
        ("per_device_train_batch_size", 0, "is above 0, got 0"),
        ("gradient_accumulation_steps", -1, "is above 0, got -1"),
        ("num_train_epochs", 0.0, "is above 0, got 0.0"),
        ("max_steps", 0, "is above 0, got 0"),
        ("max_steps", -1, None),
        ("eval_steps", None, None),
        ("report_to", "none", None),
        ("logging_steps", 0.1, None),
    ],
)
def test_sft_values_that_can_not_work_are_told_at_once(
    name: str, value: object, message: str | None
) -> None:
    data = {**MINIMAL, **STUDENT, "train": {"model": "m", "sft": {name: value}}}
    if message is None:
        validate(Recipe, data, "r.yaml")
    else:
        assert any(name in line and message in line for line in mistakes(data))


@pytest.mark.parametrize("router", ["guideline", "always_rag", "task_majority", "student"])
def test_a_router_without_a_probability_is_not_calibrated(router: str) -> None:
    changes = [
        f"route={{routers: [{router}, decision_tree]}}",
        f"calibrate={{routers: [{router}]}}",
    ]
    lines = mistakes(apply_overrides({**MINIMAL, **STUDENT}, changes))
    said = f"calibrate.routers {router} gives no p_lc: take some of {', '.join(GIVES_P_LC)}"
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    ("changes", "student"),
    [
        (["train.mix={explain: 1, decide: 1}"], "student"),
        (["train.mix={explain: 1, decide: 1}", "calibrate={}"], "student_decide"),
        (["train.mix={explain: 0, decide: 1}"], "student_decide"),
        (["calibrate={routers: [decision_tree]}"], "student"),
        (
            [
                "train.mix={explain: 1, decide: 1}",
                "calibrate={routers: [decision_tree, student_decide]}",
            ],
            "student_decide",
        ),
    ],
)
def test_the_published_mode_is_the_one_that_is_calibrated(changes: list[str], student: str) -> None:
    routed = "[decision_tree, student, student_decide]"
    if "train.mix={explain: 1, decide: 1}" not in changes:
        routed = f"[decision_tree, {student}]"
    recipe = validate(
        Recipe,
        apply_overrides({**MINIMAL, **STUDENT}, [f"route.routers={routed}", *changes]),
        "r.yaml",
    )
    assert recipe.student == student


def test_owned_fields_exist() -> None:
    assert set(OWNED_SFT_FIELDS) <= set(sft_fields())


def test_a_recipe_survives_a_round_trip_through_json() -> None:
    recipe = validate(Recipe, {**MINIMAL, **STUDENT}, "r.yaml")
    again = Recipe.model_validate(json.loads(recipe.model_dump_json()))
    assert again == recipe


@pytest.mark.parametrize("field", ["api_key_variable", "base_url"])
def test_a_key_pasted_into_the_recipe_is_not_shown(field: str) -> None:
    engine = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    engine[field] = "sk-sentinel"
    lines = mistakes({**MINIMAL, "teach": {"engine": engine}})
    assert any(field in line for line in lines)
    assert "sentinel" not in str(lines)


def test_a_student_needs_traces_of_the_train_split() -> None:
    teach = {"teacher": "guideline", "splits": ["validation"]}
    assert mistakes({**MINIMAL, **STUDENT, "teach": teach}) == [
        "r.yaml: recipe: train learns from the train split: teach.splits has to name it"
    ]
