from __future__ import annotations

import json

import pytest

from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Label,
    MetadataSetting,
    RagConfig,
    Record,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.measures.features import FEATURES, case_features


def make_case(**fields: object) -> RoutingCase:
    return RoutingCase.model_validate(
        {
            "case_id": "case-secret",
            "question_id": "question-secret",
            "group_id": "group-secret",
            "question": "Who signed the treaty?",
            "task_type": "location",
            "document": DocumentProfile(
                document_id="document-secret",
                title="title-secret",
                type="novel",
                tokens=10_000,
                head="head-secret",
            ),
            "answer_model": AnswerModel(name="gpt-4o", context_window=40_000, thinking=True),
            "rag": RagConfig(chunk_tokens=600, overlap_tokens=100, top_k=5),
        }
        | fields
    )


def test_features_by_hand() -> None:
    assert case_features(make_case()) == {
        "document_tokens": 10_000.0,
        "question_words": 4.0,
        "window_share": 0.25,
        "retrieved_share": (5 * 500 + 100) / 10_000,
        "context_window": 40_000.0,
        "thinking": 1.0,
        "task_type": "location",
        "document_type": "novel",
        "answer_model": "gpt-4o",
    }


def test_the_schema_names_every_feature_in_order() -> None:
    features = case_features(make_case())
    assert list(features) == list(FEATURES)
    for name, kind in FEATURES.items():
        assert isinstance(features[name], float if kind == "number" else str)


def test_missing_metadata_are_none_and_never_zero() -> None:
    case = make_case(
        task_type=None,
        document=DocumentProfile(document_id="d"),
        answer_model=AnswerModel(name="m"),
    )
    features = case_features(case)
    missing = {name for name, value in features.items() if value is None}
    assert missing == {
        "document_tokens",
        "window_share",
        "retrieved_share",
        "context_window",
        "task_type",
        "document_type",
    }
    empty = make_case(document=DocumentProfile(document_id="d", tokens=0))
    assert case_features(empty)["retrieved_share"] is None
    short = make_case(document=DocumentProfile(document_id="d", tokens=10))
    assert case_features(short)["retrieved_share"] == 1.0


def test_what_a_prompt_hides_is_no_feature() -> None:
    case = make_case()
    shown, hidden = case_features(case), case_features(case, MetadataSetting.HEAD_ONLY)
    assert {name for name in FEATURES if hidden[name] != shown[name]} == {
        "task_type",
        "document_type",
    }
    assert hidden["task_type"] is hidden["document_type"] is None
    assert case_features(case, MetadataSetting.GENERATED) == shown


def test_no_identifier_title_or_head_is_a_feature() -> None:
    assert "secret" not in json.dumps(case_features(make_case()))


class Smuggler(RoutingCase):
    gold: str = "B"


@pytest.mark.parametrize(
    "other",
    [
        Label(case_id="c", route=Route.LC, margin=1.0),
        Reference(question_id="q", answer="gold"),
        Smuggler.model_validate(make_case().model_dump()),
        make_case().model_dump(),
        None,
    ],
)
def test_only_a_routing_case_has_features(other: Record | dict[str, object] | None) -> None:
    with pytest.raises(TypeError, match="RoutingCase only"):
        case_features(other)  # type: ignore[arg-type]
