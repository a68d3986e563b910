"""What goes together in `train`, told before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from prerouter.recipe.train import TrainSection


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"watch": {}, "sft": {"save_steps": 5}}, "sft.save_steps is not set beside watch"),
        ({"watch": {"mode": "decide"}}, "watch.mode decide is not in mix"),
        ({"watch": {"every": 2.5}}, "2.5 is no whole number of steps"),
        ({"weights": {"by": "margin"}, "sft": {"packing": True}}, "sft.packing joins examples"),
        ({"weights": {"by": "margin"}, "sft": {"loss_type": "dft"}}, "plain loss"),
        ({"lora": {"quantization": "nf5"}}, "nf4"),
        ({"processes": 0}, "greater than 0"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainSection(model="tiny", **changes)


def test_a_recipe_without_the_new_keys_reads_as_it_did() -> None:
    """A run that was finished before they existed is not trained again."""
    dumped = TrainSection(model="tiny").model_dump(mode="json")
    assert all(
        dumped[name] is None for name in ("weights", "watch", "validation_examples", "processes")
    )
