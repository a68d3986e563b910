"""Non-padding tokens a second: our training function beside a bare PyTorch loop.

Both train the same model on the same rows in the same order, batch size, precision and optimiser;
they take turns in one run, so that what else the machine does falls on both. Each turn counts from
the end of its first step to the end of its last, which leaves loading and saving out on both sides.
On a busy machine, read the tokens a second of processor time (OMP_NUM_THREADS=1: threads that wait
for each other count as busy).

    python benchmarks/sft_throughput.py [--model embedded:SmolLM2-135M-Instruct | tiny]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Example, Message, Rationale, Route, Split, Step
from prerouter.engines.embedded import resolve_model
from prerouter.prompts.trace import format_trace
from prerouter.recipe.train import TrainSection
from prerouter.training.examples import tokenise
from prerouter.training.sft import train_student
from prerouter.training.trainer import load_tokenizer

TARGET = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="embedded:SmolLM2-135M-Instruct", help="or `tiny`")
    parser.add_argument("--steps", type=int, default=6, help="a turn, the first is not counted")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = _tiny(folder / "tiny") if options.model == "tiny" else resolve_model(options.model)
        examples = [_example(number) for number in range(options.steps * options.batch_size)]
        ours: list[Speed] = []
        bare: list[Speed] = []
        for turn in range(options.turns):
            ours.append(_ours(examples, model, folder / str(turn), options))
            bare.append(_bare(examples, model, options))
            print(f"turn {turn + 1}: ours {ours[-1].wall:.1f}, bare {bare[-1].wall:.1f} tokens/s")
    print(f"\n{options.model}, {options.dtype}, batch {options.batch_size}; medians of tokens/s")
    print(f"{'':12}{'prerouter':>12}{'bare loop':>12}{'ratio':>8}{'target':>8}")
    for name in ("wall", "processor"):
        mine = statistics.median(getattr(speed, name) for speed in ours)
        other = statistics.median(getattr(speed, name) for speed in bare)
        print(f"{name:12}{mine:12.1f}{other:12.1f}{mine / other:8.3f}{TARGET:8.1f}")


class Speed(NamedTuple):
    """Non-padding tokens a second, of the clock on the wall and of the process's own time."""

    wall: float
    processor: float


class _Times:
    """When each step ended, on both clocks."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def mark(self) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))

    def speed(self, tokens: int) -> Speed:
        (wall, processor), (last_wall, last_processor) = self.ends[0], self.ends[-1]
        return Speed(tokens / (last_wall - wall), tokens / (last_processor - processor))


class _StepTimes(SilentProgress):
    def __init__(self) -> None:
        self.times = _Times()

    def advance(self, steps: int = 1) -> None:
        if steps:
            self.times.mark()


def _ours(
    examples: Sequence[Example], model: str, folder: Path, options: argparse.Namespace
) -> Speed:
    section = TrainSection(
        model=options.model,
        dtype=options.dtype,
        device="cpu",
        sft={
            "per_device_train_batch_size": options.batch_size,
            "max_steps": options.steps,
            "gradient_checkpointing": False,
            "learning_rate": 1e-5,
            "lr_scheduler_type": "constant",
            "save_strategy": "no",
            "train_sampling_strategy": "sequential",
        },
    )
    progress = _StepTimes()
    train_student(examples, [], section, model, folder, 13, "throughput", progress)
    tokenizer = load_tokenizer(model, None)
    counted = [tokenise(row, tokenizer, False) for row in examples[options.batch_size :]]
    return progress.times.speed(sum(len(row.ids) for row in counted))


def _bare(examples: Sequence[Example], path: str, options: argparse.Namespace) -> Speed:
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(path, None)
    rows = [tokenise(example, tokenizer, False) for example in examples]
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    times = _Times()
    for start in range(0, len(rows), options.batch_size):
        chosen = rows[start : start + options.batch_size]
        width = max(len(row.ids) for row in chosen)
        ids = torch.zeros(len(chosen), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        labels = torch.full_like(ids, -100)
        for line, row in enumerate(chosen):
            prompt, length = len(row.prompt_ids), len(row.ids)
            ids[line, :length] = torch.tensor(row.ids)
            mask[line, :length] = 1
            labels[line, prompt:length] = torch.tensor(row.completion_ids)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bfloat16"):
            loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        times.mark()
    return times.speed(sum(len(row.ids) for row in rows[options.batch_size :]))


def _example(number: int) -> Example:
    """About 250 tokens in SmolLM2's, of several lengths so that batches hold some padding."""
    words = "a sentence of the document's head, as long as such a sentence is; " * (4 + number % 3)
    steps = dict.fromkeys(Step, f"Step of case {number}: about as long as it is.")
    reply = format_trace(Rationale(steps=steps, reflection="None."), Route.RAG)
    return Example(
        case_id=str(number),
        sample=0,
        split=Split.TRAIN,
        prompt=(
            Message(role="system", content="Route the case: RAG or LC."),
            Message(role="user", content=f"question: {number}\nhead: {words}"),
        ),
        completion=(Message(role="assistant", content=reply),),
    )


def _tiny(folder: Path) -> str:
    path = Path(__file__).parents[1] / "tests" / "tiny_model.py"
    spec = importlib.util.spec_from_file_location("tiny_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.make_tiny_model(folder))


if __name__ == "__main__":
    main()
