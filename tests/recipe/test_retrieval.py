from __future__ import annotations

from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.recipe.base import validate
from prerouter.recipe.retrieval import MilvusSection, RetrievalSection


def section(**keys: Any) -> RetrievalSection:
    return validate(RetrievalSection, keys, "recipe")


def test_the_default_blends_evenly_and_loads_without_foreign_code() -> None:
    default = section()
    assert default.vector_ratio == 0.5
    assert default.unit == "chunk"
    assert default.embedding == "alibaba-nlp-community/gte-multilingual-base"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"embedding": "Alibaba-NLP/gte-multilingual-base"}, "take alibaba-nlp-community/gte"),
        ({"vector_ratio": 1.1}, "less than or equal to 1"),
        ({"vector_ratio": 0, "milvus": {"uri": "a.db"}}, "has none"),
        ({"unit_tokens": 3000}, "unit `chunk` reads no unit_tokens"),
        ({"unit": "long", "spans_per_unit": 3}, "unit `long` reads no spans_per_unit"),
        ({"unit": "hierarchical", "unit_tokens": 200}, "smaller than unit_tokens"),
        ({"candidates": 20}, "there is none"),
        ({"trust_remote_code": True}, "unknown key"),
        ({"milvus": {"uri": "vectors"}}, "should match pattern"),
        ({"milvus": {"uri": "https://me:secret@host"}}, "holds no credentials"),
        ({"milvus": {"uri": "a.db", "kind": "IVF_PQ"}}, "HNSW"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(CombinedError) as caught:
        section(**keys)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_path_is_milvus_lite_and_an_address_a_server() -> None:
    assert not MilvusSection(uri="runs/vectors.db").is_server
    assert MilvusSection(uri="http://localhost:19530").is_server


def test_a_section_that_was_written_out_is_read_back() -> None:
    for keys in ({}, {"unit": "long", "unit_tokens": 3000}, {"milvus": {"uri": "a.db"}}):
        written = section(**keys).model_dump()
        assert RetrievalSection.model_validate(written) == section(**keys)
