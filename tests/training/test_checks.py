from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.training.checks import (
    IGNORED,
    check_batches,
    check_completions,
    check_prompts,
    check_rows,
)
from prerouter.training.examples import TokenisedExample, tokenise
from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

from .conftest import Train, example, section

END = 2


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(str(tiny_model_dir), None)


@pytest.fixture(scope="module")
def rows(tokenizer: Any) -> list[TokenisedExample]:
    return [tokenise(example(n), tokenizer, False) for n in range(3)]


def _row(row: TokenisedExample) -> dict[str, list[int]]:
    prompt = len(row.prompt_ids)
    return {"input_ids": list(row.ids), "labels": [IGNORED] * prompt + list(row.ids[prompt:])}


def _batch(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
    import torch

    width = max(len(row["input_ids"]) for row in rows)
    return {
        name: torch.tensor([row[name] + [fill] * (width - len(row[name])) for row in rows])
        for name, fill in (("input_ids", 0), ("labels", IGNORED))
    }


def _completions(rows: list[TokenisedExample]) -> frozenset[str]:
    return frozenset(row.example.completion[0].content for row in rows)


def test_rows_as_given_pass_in_any_order(rows: list[TokenisedExample]) -> None:
    check_rows(rows, [_row(row) for row in reversed(rows)], "train")


def test_packed_rows_are_taken_apart(rows: list[TokenisedExample]) -> None:
    parts = [_row(row) for row in rows]
    packed = {
        "input_ids": [token for part in parts for token in part["input_ids"]],
        "labels": [label for part in parts for label in part["labels"]],
        "seq_lengths": [len(part["input_ids"]) for part in parts],
    }
    check_rows(rows, [packed], "train")


def _cut(row: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: values[:-10] for name, values in row.items()}


def _unmasked(row: dict[str, list[int]]) -> dict[str, list[int]]:
    return {**row, "labels": row["input_ids"]}


@pytest.mark.parametrize("change", [_cut, _unmasked])
def test_an_altered_row_is_an_error(change: Any, rows: list[TokenisedExample]) -> None:
    altered = [change(_row(rows[0])), *(_row(row) for row in rows[1:])]
    with pytest.raises(StageError, match="1 are missing or altered, 1 were not given"):
        check_rows(rows, altered, "train")


def test_a_dropped_and_a_doubled_row_are_errors(rows: list[TokenisedExample]) -> None:
    with pytest.raises(StageError, match="of 3 examples given, the trainer kept 2"):
        check_rows(rows, [_row(row) for row in rows[1:]], "train")
    with pytest.raises(StageError, match="of 3 examples given, the trainer kept 4"):
        check_rows(rows, [_row(row) for row in [*rows, rows[0]]], "train")


def test_a_prompt_that_is_not_the_start_is_an_error(rows: list[TokenisedExample]) -> None:
    check_prompts(rows)
    turned = replace(rows[0], prompt_ids=(*rows[0].prompt_ids[:-1], 0))
    with pytest.raises(StageError, match="case-0#0"):
        check_prompts([rows[1], turned])
    with pytest.raises(StageError, match="case-0#0"):
        check_prompts([replace(rows[0], ids=rows[0].prompt_ids)])


def test_labels_that_are_not_the_completion_are_an_error(
    rows: list[TokenisedExample], tokenizer: Any
) -> None:
    check_completions(rows, tokenizer, END)
    shorter = replace(rows[0], ids=rows[0].ids[:-2])
    with pytest.raises(StageError, match="the labels read"):
        check_completions([shorter], tokenizer, END)
    twice = replace(rows[0], ids=(*rows[0].ids, *rows[0].completion_ids))
    with pytest.raises(StageError, match="the labels read"):
        check_completions([twice], tokenizer, END)


def test_a_completion_that_the_template_splits_is_an_error(tokenizer: Any) -> None:
    made = example(0)
    message = made.completion[0].model_copy(update={"content": "   {}"})
    row = tokenise(made.model_copy(update={"completion": (message,)}), tokenizer, False)
    spoilt = message.model_copy(update={"content": "<|im_end|>{}"})
    other = tokenise(made.model_copy(update={"completion": (spoilt,)}), tokenizer, False)
    for broken in (replace(row, example=made), other):
        with pytest.raises(StageError, match="case-0#0"):
            check_completions([broken], tokenizer, END)


def test_collated_batches_pass(rows: list[TokenisedExample], tokenizer: Any) -> None:
    batch = _batch([_row(row) for row in rows])
    assert check_batches([batch], _completions(rows), tokenizer, END) == 3


def _with(label: int, position: int) -> Any:
    def change(row: dict[str, list[int]]) -> dict[str, list[int]]:
        labels = list(row["labels"])
        labels[position] = label
        return {**row, "labels": labels}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cut, "no example's completion"),
        (lambda row: {**row, "labels": [IGNORED] * len(row["labels"])}, "no example's completion"),
        (_with(IGNORED, -2), "no example's completion"),
        (_with(5, -4), "a label is not the token"),
        (_with(0, -1), "a padding token bears loss"),
    ],
)
def test_a_batch_that_would_teach_something_else_is_an_error(
    change: Any, message: str, rows: list[TokenisedExample], tokenizer: Any
) -> None:
    batch = _batch([change(_row(row)) for row in rows])
    with pytest.raises(StageError, match=message):
        check_batches([batch], _completions(rows), tokenizer, END)


def test_no_batch_at_all_is_an_error(tokenizer: Any) -> None:
    with pytest.raises(StageError, match="no label bears loss"):
        check_batches([], frozenset(), tokenizer, END)


def test_trl_masks_exactly_the_prompt(
    rows: list[TokenisedExample], tokenizer: Any, tiny_model_dir: Path, tmp_path: Path
) -> None:
    recipe = section()
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(tmp_path)}
    trainer = build_trainer(rows, [], recipe, settings, str(tiny_model_dir), tokenizer)
    assert [
        {name: row[name] for name in ("input_ids", "labels")} for row in trainer.train_dataset
    ] == [_row(row) for row in rows]


def test_packing_that_keeps_examples_whole_passes_and_cutting_is_refused(train: Train) -> None:
    four = [example(n) for n in range(4)]
    report = train(four, sft={"packing": True, "max_steps": 1})
    assert report.train_examples == 4
    with pytest.raises(StageError, match="missing or altered"):
        train(four, sft={"packing": True, "packing_strategy": "wrapped", "max_steps": 1})
