from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import RecipeError, StageError
from prerouter.core.protocols import Progress, SilentProgress
from prerouter.core.records import Message, Route
from prerouter.recipe.classify import SFT_ONLY_FIELDS, ClassifySection
from prerouter.training.classifier import (
    ClassifierReport,
    LabelledPrompt,
    classify_probabilities,
    encode_prompt,
    train_classifier,
)


def prompt(number: int, words: str = "") -> LabelledPrompt:
    """The route is told by a word of the prompt, so that it can be learnt."""
    route = Route.LC if number % 2 else Route.RAG
    text = f"question {number}: {'whole' if number % 2 else 'chunks'} {words}"
    return LabelledPrompt(f"case-{number}", (Message(role="user", content=text),), route)


def train(
    model: Path,
    folder: Path,
    rows: list[LabelledPrompt],
    progress: Progress | None = None,
    **changes: Any,
) -> ClassifierReport:
    arguments = {
        "max_steps": 40,
        "learning_rate": 5e-3,
        "per_device_train_batch_size": 4,
        **changes.pop("arguments", {}),
    }
    section = ClassifySection(
        model="tiny", device="cpu", dtype="float32", arguments=arguments, **changes
    )
    held_out = [prompt(20), prompt(21)]
    told = progress or SilentProgress()
    return train_classifier(rows, held_out, section, str(model), folder, 13, "test", told)


@pytest.mark.parametrize("lora", [None, {"r": 8}])
def test_it_learns_the_labels_and_its_folder_decides_as_it_did(
    lora: Any, tiny_model_dir: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    rows = [prompt(n) for n in range(12)]
    report = train(tiny_model_dir, tmp_path, rows, lora=lora)
    assert report.train_cases == {"RAG": 6, "LC": 6}
    assert report.validation_accuracy == 1.0
    assert (report.trainable_parameters < report.total_parameters) == (lora is not None)
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert not (tmp_path / "checkpoints").exists()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    ids = [encode_prompt(tokenizer, row.prompt) for row in [*rows, prompt(33, "long " * 30)]]
    together = classify_probabilities(model, ids, tokenizer.pad_token_id)
    assert [p > 0.5 for p in together] == [row.route is Route.LC for row in rows] + [True]
    # Padding moves nothing.
    alone = [classify_probabilities(model, [one], tokenizer.pad_token_id)[0] for one in ids]
    assert together == pytest.approx(alone, abs=1e-5)


def test_two_runs_with_one_seed_are_one(tiny_model_dir: Path, tmp_path: Path) -> None:
    import torch

    files = []
    for name in "ab":
        torch.manual_seed(ord(name))  # whatever ran before
        rows = [prompt(n) for n in range(4)]
        train(tiny_model_dir, tmp_path / name, rows, arguments={"max_steps": 2})
        files.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert files[0] == files[1]


def test_checkpoints_of_another_number_of_processes_are_told(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    class Stopping(SilentProgress):
        def advance(self, steps: int = 1) -> None:
            if steps and (tmp_path / "checkpoints" / "checkpoint-2").exists():
                raise KeyboardInterrupt

    rows, few = [prompt(n) for n in range(8)], {"max_steps": 4, "save_steps": 2}
    with pytest.raises(KeyboardInterrupt):
        train(tiny_model_dir, tmp_path, rows, progress=Stopping(), arguments=few)
    made_by = tmp_path / "checkpoints" / "processes"
    made_by.write_text("8")
    with pytest.raises(StageError, match="classify: checkpoints of 8 processes stand, and 1 were"):
        train(tiny_model_dir, tmp_path, rows, arguments=few)
    made_by.write_text("1")
    assert train(tiny_model_dir, tmp_path, rows, arguments=few).resumed_from == 2


def test_a_finished_run_stands_and_other_cases_are_another_run(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    rows, few = [prompt(n) for n in range(4)], {"max_steps": 2}
    report = train(tiny_model_dir, tmp_path, rows, arguments=few)
    weights = tmp_path / "model" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert train(tiny_model_dir, tmp_path, rows, arguments=few) == report
    assert weights.stat().st_mtime_ns == written
    train(tiny_model_dir, tmp_path, [*rows, prompt(5)], arguments=few)
    assert weights.stat().st_mtime_ns != written


def test_a_run_killed_after_its_export_goes_on_from_its_checkpoints(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    rows, few = [prompt(n) for n in range(8)], {"max_steps": 4, "save_steps": 2}
    with monkeypatch.context() as killed:
        killed.setattr("prerouter.training.resume.close", kill)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_model_dir, tmp_path, rows, arguments=few)
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert train(tiny_model_dir, tmp_path, rows, arguments=few).resumed_from == 4
    assert not (tmp_path / "checkpoints").exists()


def test_a_prompt_over_the_limit_is_refused_and_counted(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    rows = [*map(prompt, range(4)), prompt(5, "long " * 300)]
    report = train(tiny_model_dir, tmp_path, rows, max_length=200, arguments={"max_steps": 1})
    assert [(reject.key, reject.reason) for reject in report.rejects] == [("case-5", "too_long")]
    assert report.train_cases == {"RAG": 2, "LC": 2}


@pytest.mark.parametrize(("weight", "expected"), [(None, 1 / 4), ("balanced", 1 / 2)])
def test_balanced_a_rare_route_counts_as_much_as_the_other(
    weight: str | None, expected: float, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Of prompts that are all alike, the head can learn the share of their labels and no more."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    words = (Message(role="user", content="the same"),)
    rows = [LabelledPrompt(f"case-{n}", words, Route.RAG if n % 4 else Route.LC) for n in range(16)]
    whole = {"per_device_train_batch_size": 16, "max_steps": 60}
    train(tiny_model_dir, tmp_path, rows, class_weight=weight, arguments=whole)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    (p_lc,) = classify_probabilities(model, [encode_prompt(tokenizer, words)], 0)
    assert p_lc == pytest.approx(expected, abs=0.05)


def test_a_balanced_step_is_the_same_in_one_batch_and_in_several(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    rows = [LabelledPrompt(f"case-{n}", prompt(n).prompt, prompt(n // 3).route) for n in range(8)]
    losses = []
    for size, accumulated in ((8, 1), (2, 4)):
        few = {
            "max_steps": 3,
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": accumulated,
        }
        report = train(
            tiny_model_dir, tmp_path / str(size), rows, class_weight="balanced", arguments=few
        )
        losses.append([point.loss for point in report.losses])
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


def test_class_weights_are_for_the_plain_loss() -> None:
    with pytest.raises(ValueError, match="leave out label_smoothing_factor"):
        ClassifySection(
            model="tiny", class_weight="balanced", arguments={"label_smoothing_factor": 0.1}
        )


def test_one_route_alone_is_an_error(tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="the training cases are 3 RAG, 0 LC"):
        train(tiny_model_dir, tmp_path, [prompt(n) for n in (0, 2, 4)])


def test_a_setting_that_cannot_work_is_one_line(tiny_model_dir: Path, tmp_path: Path) -> None:
    rows = [prompt(0), prompt(1)]
    with pytest.raises(RecipeError, match=r"classify\.arguments: TrainingArguments refuses"):
        train(
            tiny_model_dir, tmp_path, rows, arguments={"lr_scheduler_type": "reduce_lr_on_plateau"}
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packing": True}, "no field of TrainingArguments"),
        ({"bf16": True}, "use classify.dtype"),
        ({"learning_rat": 1e-3}, "did you mean learning_rate"),
    ],
)
def test_settings_that_are_not_its_own_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassifySection(model="tiny", arguments=arguments)


def test_the_fields_that_training_arguments_lack_are_those_of_the_installed_trl() -> None:
    import dataclasses

    from transformers import TrainingArguments
    from trl import SFTConfig

    mine = {field.name for field in dataclasses.fields(TrainingArguments) if field.init}
    its = {field.name for field in dataclasses.fields(SFTConfig) if field.init}
    assert its - mine == SFT_ONLY_FIELDS
