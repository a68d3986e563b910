from __future__ import annotations

from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.recipe.base import validate
from prerouter.recipe.recipe import Recipe

ENGINE = {"kind": "transformers", "model": "small"}
SAMPLE = {"source": "sample", "answer_models": [{"name": "reader"}]}


def recipe(**sections: Any) -> Recipe:
    return validate(Recipe, {"name": "x", "cases": SAMPLE, **sections}, "r.yaml")


def teach(metadata: str) -> dict[str, Any]:
    return {"engine": ENGINE, "prompt": {"metadata": metadata}}


def train(metadata: str) -> dict[str, Any]:
    return {"model": "student", "metadata": metadata}


def test_generated_metadata_come_from_the_profiles() -> None:
    made = recipe(profile={"engine": ENGINE}, teach=teach("generated"))
    assert made.cases_file == "profile/rows.jsonl"
    assert recipe(teach=teach("full")).cases_file == "cases/rows.jsonl"
    recipe(
        profile={"engine": ENGINE}, teach=teach("head_only"), filter={}, train=train("generated")
    )
    # The guideline writes over whatever the cases hold, and has no setting of its own.
    guided = {"teacher": "guideline"}
    recipe(profile={"engine": ENGINE}, teach=guided, filter={}, train=train("generated"))


@pytest.mark.parametrize(
    ("sections", "mistake"),
    [
        ({"teach": teach("generated")}, "teach.prompt.metadata: generated needs `profile`"),
        (
            {"teach": teach("full"), "filter": {}, "train": train("generated")},
            "train.metadata: generated needs `profile`",
        ),
        ({"profile": {"engine": ENGINE}}, "infers metadata that nothing shows"),
        (
            {"profile": {"engine": ENGINE}, "teach": teach("head_only")},
            "infers metadata that nothing shows",
        ),
        (
            {
                "profile": {"engine": ENGINE},
                "teach": teach("full"),
                "filter": {},
                "train": train("generated"),
            },
            "teach.prompt.metadata: full can't stand beside `profile`",
        ),
        (
            {"profile": {"engine": ENGINE, "task_types": ["a", "a"]}, "teach": teach("generated")},
            "each type is named once",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(sections: dict[str, Any], mistake: str) -> None:
    with pytest.raises(CombinedError) as refused:
        recipe(**sections)
    assert mistake in str(refused.value)
