"""Names, licences and languages that the Hub would refuse are told with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.recipe.base import validate
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.route import PublishSection


def line(**section: Any) -> str:
    with pytest.raises(CombinedError) as error:
        validate(PublishSection, section, "recipe.yaml")
    [told] = error.value.lines
    return told


@pytest.mark.parametrize(
    "name", ["you/router", "You-2/my_router.v1", "_lab/r", "0xABAD/x", "a/" + "b" * 94]
)
def test_a_name_that_the_hub_takes(name: str) -> None:
    assert PublishSection(repo_id=name).repo_id == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("https://huggingface.co/you/router", "did you mean you/router?"),
        ("huggingface.co/you/router/tree/main", "did you mean you/router?"),
        ("https://hf.co/datasets/you/traces?x=1", "did you mean you/traces?"),
        ("datasets/you/traces", "did you mean you/traces?"),
        ("you/router/", "did you mean you/router?"),
        ("router", "has an owner, such as you/router"),
        ("you/my router", "no name on the Hub"),
        ("you/a--b", "no name on the Hub"),
        ("you/a..b", "no name on the Hub"),
        ("you/router.git", "no name on the Hub"),
        ("you/-router", "no name on the Hub"),
        ("you/router\n", "did you mean you/router?"),
        ("you/rauter\u0131", "no name on the Hub"),
        ("a/" + "b" * 95, "at most 96 characters"),
    ],
)
def test_a_name_that_the_hub_refuses(name: str, told: str) -> None:
    found = line(repo_id=name)
    assert found.startswith("recipe.yaml: repo_id: got ")
    assert told in found


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"license": "Apache 2"}, "a licence by the Hub's identifier, such as apache-2.0"),
        ({"license": "gpl3"}, "a licence by the Hub's identifier"),
        ({"language": ["english"]}, "a language code of two or three letters"),
        ({"base_model": "SmolLM2"}, "has an owner, such as you/SmolLM2"),
    ],
)
def test_what_the_hub_has_no_word_for(section: dict[str, Any], told: str) -> None:
    assert told in line(**section)


def trained(train: dict[str, Any], **publish: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "r",
            "cases": {"source": "table", "path": "rows.jsonl"},
            "teach": {"teacher": "guideline"},
            "filter": {},
            "train": train,
            "route": {},
            "evaluate": {},
            "publish": publish,
        }
    )


@pytest.mark.parametrize(
    ("model", "publish", "base"),
    [
        ("Qwen/Qwen3-1.7B", {}, "Qwen/Qwen3-1.7B"),
        ("embedded:SmolLM2-135M-Instruct", {}, None),
        ("/models/base", {}, None),
        ("/models/base", {"base_model": "Qwen/Qwen3-1.7B"}, "Qwen/Qwen3-1.7B"),
    ],
)
def test_the_base_by_its_name_on_the_hub(
    model: str, publish: dict[str, Any], base: str | None
) -> None:
    assert trained({"model": model}, **publish).base_on_hub == base


def test_a_folder_that_is_named_like_a_repository_is_a_folder(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert trained({"model": "models/base"}).base_on_hub is None


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ({"model": "Qwen/Qwen3-1.7B"}, "publish.adapter needs train.lora"),
        ({"model": "/models/base", "lora": {}}, "publish.adapter needs publish.base_model"),
    ],
)
def test_an_adapter_needs_low_ranks_and_a_base_with_a_name(
    train: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        trained(train, adapter=True)
    assert trained({"model": "Qwen/Qwen3-1.7B", "lora": {}}, adapter=True).publish
