from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import InputError, PrerouterError, RecipeError, StageError
from prerouter.core.records import Split
from prerouter.prompts.trace import parse_trace
from prerouter.training.report import TrainReport

from .conftest import Train, example, section

TWO = [example(0), example(1)]


@pytest.fixture(scope="module")
def learnt(
    tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainReport, Path]:
    """A student that has learnt two examples by heart."""
    from prerouter.core.protocols import SilentProgress
    from prerouter.training.sft import train_student

    folder = tmp_path_factory.mktemp("learnt")
    report = train_student(
        TWO,
        [example(7, Split.VALIDATION)],
        section(sft={"max_steps": 120, "learning_rate": 1e-2}),
        str(tiny_model_dir),
        folder,
        13,
        "test",
        SilentProgress(),
    )
    return report, folder


def test_the_loss_falls(learnt: tuple[TrainReport, Path]) -> None:
    report, _ = learnt
    losses = [point.loss for point in report.losses]
    assert losses[0] > 4
    assert losses[-1] < 0.1
    assert report.eval_loss is not None


def test_the_report_counts(learnt: tuple[TrainReport, Path]) -> None:
    report, folder = learnt
    assert (report.steps, report.epochs, report.resumed_from) == (120, 120, 0)
    assert (report.train_examples, report.validation_examples) == (2, 1)
    assert report.tokens_seen == 120 * report.epoch_tokens
    assert 0 < report.epoch_completion_tokens < report.epoch_tokens
    assert report.trainable_parameters == report.total_parameters
    assert report.settings["learning_rate"] == 1e-2
    assert str(folder) not in report.model_dump_json()


def test_the_student_ends_by_itself_and_says_what_it_learnt(
    learnt: tuple[TrainReport, Path],
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = learnt[1] / "model"
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in TWO:
        prompt = tokenizer.apply_chat_template(
            [message.model_dump() for message in row.prompt],
            add_generation_prompt=True,
            enable_thinking=False,
            return_dict=True,
            return_tensors="pt",
        )
        written = model.generate(**prompt, max_new_tokens=400)[0, prompt["input_ids"].shape[1] :]
        assert tokenizer.convert_ids_to_tokens(written[-1].item()) == "<|im_end|>"
        text = tokenizer.decode(written, skip_special_tokens=True)
        assert text == row.completion[0].content
        assert parse_trace(text, "stop").decision


def test_the_export_is_safetensors_that_stop_at_the_end_of_turn(
    learnt: tuple[TrainReport, Path],
) -> None:
    from transformers import GenerationConfig

    folder = learnt[1] / "model"
    assert sorted(path.name for path in folder.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    config = GenerationConfig.from_pretrained(folder)
    assert config.eos_token_id == 2
    assert config.pad_token_id == 0
    assert not (learnt[1] / "checkpoints").exists()


def test_a_finished_run_stands(learnt: tuple[TrainReport, Path], train: Train) -> None:
    report, folder = learnt
    again = train(
        TWO,
        [example(7, Split.VALIDATION)],
        folder=folder,
        sft={"max_steps": 120, "learning_rate": 1e-2},
    )
    assert again == report


def test_other_examples_are_another_run(train: Train) -> None:
    first = train(TWO, sft={"max_steps": 1})
    second = train([example(2), example(3)], sft={"max_steps": 1})
    assert first.fingerprint != second.fingerprint
    assert first.losses != second.losses


def test_two_runs_with_one_seed_are_one(train: Train, tmp_path: Path) -> None:
    reports = [train(TWO, folder=tmp_path / name) for name in "ab"]
    assert reports[0].losses == reports[1].losses
    files = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_an_example_over_the_limit_is_refused_and_counted(train: Train) -> None:
    long = example(4, words="very " * 400)
    held_out = example(6, Split.VALIDATION, words="very " * 400)
    report = train([*TWO, long], [held_out], sft={"max_steps": 1})
    assert [(r.key, r.reason) for r in report.rejects] == [
        ("case-4#0#explain", "too_long"),
        ("case-6#0#explain", "too_long"),
    ]
    assert report.train_examples == 2
    assert report.validation_examples == 0
    assert report.longest_example <= 600


def test_all_examples_over_the_limit_is_an_error(train: Train) -> None:
    with pytest.raises(StageError, match="every one of 1 training examples is longer"):
        train([example(4, words="very " * 400)])


def test_no_example_is_an_error(train: Train) -> None:
    with pytest.raises(StageError, match="no training example"):
        train([])


def test_pad_that_is_the_end_of_turn_is_refused(train: Train) -> None:
    with pytest.raises(StageError, match=r"train.pad_token: '<\|im_end\|>' ends a turn"):
        train(TWO, pad_token="<|im_end|>")


def test_a_model_that_pads_with_its_end_of_turn_gets_another_pad(
    tiny_model_dir: Path, tmp_path: Path, train: Train
) -> None:
    from transformers import AutoTokenizer

    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    report = train(TWO, model=folder, sft={"max_steps": 1})
    assert (report.end_of_turn, report.pad_token) == ("<|im_end|>", "<|endoftext|>")


def _poison(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def test_a_loss_that_is_no_number_is_an_error_and_exports_nothing(
    tiny_model_dir: Path, tmp_path: Path, train: Train
) -> None:
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    _poison(folder)
    with pytest.raises(StageError, match="step 1: loss is nan"):
        train(TWO, model=folder)
    assert not (tmp_path / "train" / "model").exists()
    assert not (tmp_path / "train" / "checkpoints").exists()


def test_a_weight_that_is_no_number_is_an_error_though_no_loss_showed_it(
    tmp_path: Path, train: Train
) -> None:
    # The last step's update is seen by no later loss; a huge rate makes it overflow.
    with pytest.raises(StageError, match=r"not finite|is nan|is inf"):
        train(TWO, sft={"max_steps": 2, "learning_rate": 1e38, "lr_scheduler_type": "constant"})
    assert not (tmp_path / "train" / "model").exists()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"sft": {"lr_scheduler_type": "reduce_lr_on_plateau"}},
            RecipeError,
            "SFTConfig refuses it",
        ),
        ({"sft": {"padding_free": True}}, RecipeError, "the trainer refuses it"),
        ({"lora": {"target_modules": ["no_such"]}}, RecipeError, "no_such"),
        ({"pad_token": "<none>"}, StageError, "not in the model's vocabulary"),
    ],
)
def test_settings_that_cannot_work_are_one_line(
    changes: dict[str, Any], error: type[PrerouterError], message: str, train: Train
) -> None:
    with pytest.raises(error) as refused:
        train(TWO, **changes)
    assert message in refused.value.line


def test_a_model_that_is_not_there(train: Train, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train.model"):
        train(TWO, model=tmp_path / "nowhere")


def test_a_base_model_of_pickles_is_refused(
    tiny_model_dir: Path, tmp_path: Path, train: Train
) -> None:
    import torch

    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="can't be loaded"):
        train(TWO, model=folder)


def test_merged_adapters_give_the_logits_of_the_adapters(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from prerouter.training.examples import tokenise
    from prerouter.training.export import export_student, whole_student
    from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

    recipe = section(lora={"r": 4, "alpha": 8}, dtype="bfloat16", sft={"max_steps": 20})
    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    rows = [tokenise(row, tokenizer, False) for row in TWO]
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(tmp_path / "out")}
    trainer = build_trainer(rows, [], recipe, settings, str(tiny_model_dir), tokenizer)
    ids = torch.tensor([rows[0].ids])
    trainer.model.eval()
    with torch.no_grad():
        before = trainer.model(ids).logits
    trainer.train()
    # Without the wrapper that trains in bfloat16, so that the weights are compared and not that.
    adapters = trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False).eval()
    with torch.no_grad():
        adapted = adapters(ids).logits
    adapter_dir = tmp_path / "adapter"
    student = whole_student(trainer, lambda: pytest.fail("the trained model serves"), adapter_dir)
    assert student is not None
    export_student(student, tokenizer, 2, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    base = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    alone = PeftModel.from_pretrained(base, adapter_dir)
    with torch.no_grad():
        merged = model(ids).logits
        assert (alone(ids).logits - merged).abs().max() < 1e-3
    assert model.dtype == torch.float32
    assert (adapted - before).abs().max() > 0.1
    assert (adapted - merged).abs().max() < 1e-3


def test_only_the_adapters_are_trained(train: Train) -> None:
    report = train(TWO, lora={"r": 4}, sft={"max_steps": 1})
    assert 0 < report.trainable_parameters < report.total_parameters / 4


def test_weights_are_held_in_float32_under_bfloat16_arithmetic(tiny_model_dir: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from prerouter.training.examples import tokenise
    from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

    recipe = section(dtype="bfloat16")
    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    folder = tiny_model_dir.with_name("tiny-bfloat16")
    shutil.copytree(tiny_model_dir, folder, dirs_exist_ok=True)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    rows = [tokenise(row, tokenizer, False) for row in TWO]
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(folder / "out")}
    trainer = build_trainer(rows, [], recipe, settings, str(folder), tokenizer)
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert trainer.args.bf16


RESUMABLE = {"max_steps": 8, "save_strategy": "steps", "save_steps": 3, "warmup_steps": 2}

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.conftest import example, section
from prerouter.core.protocols import SilentProgress
from prerouter.training.sft import train_student

class Killer(SilentProgress):
    done = 0
    def advance(self, steps=1):
        self.done += steps
        if self.done == 5:
            os.kill(os.getpid(), signal.SIGKILL)

train_student([example(n) for n in range(4)], [], section(sft=%r), sys.argv[1], Path(sys.argv[2]),
              13, "test", Killer())
"""


def test_a_killed_run_goes_on_and_ends_as_if_it_had_not_been(
    tiny_model_dir: Path, tmp_path: Path, train: Train, repository: Path
) -> None:
    folder = tmp_path / "train"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED % RESUMABLE, str(tiny_model_dir), str(folder)],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    checkpoints = folder / "checkpoints"
    assert (checkpoints / "checkpoint-3").is_dir()
    # What a kill in the middle of a save leaves: a later folder without its last file.
    torn = shutil.copytree(checkpoints / "checkpoint-3", checkpoints / "checkpoint-6")
    (torn / "complete.json").unlink()
    (torn / "optimizer.pt").write_bytes(b"half")

    four = [example(n) for n in range(4)]
    (checkpoints / "processes").write_text("8")
    with pytest.raises(StageError, match="train: checkpoints of 8 processes stand, and 1 were"):
        train(four, folder=folder, sft=RESUMABLE)
    (checkpoints / "processes").write_text("1")
    resumed = train(four, folder=folder, sft=RESUMABLE)
    whole = train(four, folder=tmp_path / "whole", sft=RESUMABLE)
    assert (resumed.resumed_from, resumed.steps) == (3, 8)
    assert (whole.resumed_from, whole.steps) == (0, 8)
    assert [p.step for p in resumed.losses] == [p.step for p in whole.losses]
    for mine, other in zip(resumed.losses, whole.losses, strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=1e-4)
    assert resumed.tokens_seen == whole.tokens_seen


def test_progress_counts_every_step(tiny_model_dir: Path, tmp_path: Path, capfd: Any) -> None:
    from prerouter.training.sft import train_student

    class Counter:
        total: int | None = None
        steps = 0

        def start(self, task: str, total: int | None) -> None:
            self.total = total

        def advance(self, steps: int = 1) -> None:
            self.steps += steps

        def note(self, message: str) -> None:
            raise AssertionError(message)

    counter = Counter()
    train_student(TWO, [], section(), str(tiny_model_dir), tmp_path, 13, "test", counter)
    assert (counter.total, counter.steps) == (4, 4)
    assert capfd.readouterr().out == ""


def test_steps_follow_from_epochs(train: Train) -> None:
    four = [example(n) for n in range(4)]
    report = train(four, sft={"max_steps": -1, "num_train_epochs": 3})
    assert (report.steps, report.epochs) == (6, 3)
    assert all(a.step < b.step for a, b in pairwise(report.losses))


def test_several_gpus_without_a_launcher_are_refused(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import TrainingArguments

    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda _: 2))
    with pytest.raises(StageError, match="train: one process sees 2 GPUs"):
        train([example(0)])


def test_the_best_weights_are_told_by_their_step_without_a_watch(train: Train) -> None:
    best = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "greater_is_better": True,  # the worst of a loss that falls: the first
    }
    report = train([example(n) for n in range(4)], [example(6, Split.VALIDATION)], sft=best)
    assert (report.steps, report.exported_step) == (4, 2)


def test_the_log_of_losses_has_the_token_accuracy(learnt: tuple[TrainReport, Path]) -> None:
    shares = [point.token_accuracy for point in learnt[0].losses]
    assert all(share is not None and 0 <= share <= 1 for share in shares)
    assert shares[-1] > shares[0]  # type: ignore[operator]
