from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Example, Message, Rationale, Route, Split, Step
from prerouter.prompts.trace import format_trace
from prerouter.recipe.train import TrainSection
from prerouter.training.report import TrainReport

Train = Callable[..., TrainReport]


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    spec = importlib.util.spec_from_file_location(
        "tiny_model", repository / "tests" / "tiny_model.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: Path = module.make_tiny_model(tmp_path_factory.mktemp("tiny"))
    return folder


def example(number: int, split: Split = Split.TRAIN, words: str = "") -> Example:
    """A short prompt and a whole six-step reply. Even numbers go to LC."""
    route = Route.RAG if number % 2 else Route.LC
    reply = format_trace(
        Rationale(steps=dict.fromkeys(Step, f"Case {number}."), reflection="Fine."), route
    )
    return Example(
        case_id=f"case-{number}",
        sample=0,
        split=split,
        prompt=(
            Message(role="system", content="Route the case."),
            Message(role="user", content=f"question: {number} {words}"),
        ),
        completion=(Message(role="assistant", content=reply),),
    )


def section(**changes: Any) -> TrainSection:
    sft = {
        "per_device_train_batch_size": 2,
        "gradient_checkpointing": False,
        "learning_rate": 5e-3,
        "max_steps": 4,
        "save_strategy": "no",
        **changes.pop("sft", {}),
    }
    settings = {"max_length": 600, "device": "cpu", "dtype": "float32", **changes, "sft": sft}
    return TrainSection(model="tiny", **settings)


@pytest.fixture
def train(tiny_model_dir: Path, tmp_path: Path) -> Train:
    """`train_student` on the tiny model, in a folder of this test's own."""
    from prerouter.training.sft import train_student

    def run(
        examples: list[Example],
        validation: list[Example] | None = None,
        model: Path = tiny_model_dir,
        folder: Path = tmp_path / "train",
        **changes: Any,
    ) -> TrainReport:
        return train_student(
            examples,
            validation or [],
            section(**changes),
            str(model),
            folder,
            13,
            "test",
            SilentProgress(),
        )

    return run
