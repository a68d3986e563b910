"""Training: non-padding tokens a second beside TRL's own trainer and a bare PyTorch loop.

All train the same model on the same examples in one run, by the same batch size, precision and
optimiser, each way in a process of its own, in turns, so that what else the machine does falls on
all. A turn counts from the end of its first step to the end of its last, which leaves loading out.
`checkpointed` is TRL as it comes, with gradient checkpointing; `trl` the same without it;
`padding_free` each batch as one row without padding, which is made for FlashAttention. These see
the batches that `prerouter` sees, so that losses can be held side by side. `grouped` is TRL with
batches of equal length (`train_sampling_strategy`). The examples are mixed as a recipe makes them:
six steps and the route at once, over the sample that ships, or
`--examples runs/NAME/train/examples.jsonl`.

    python benchmarks/sft_throughput.py [--model embedded:SmolLM2-135M-Instruct | tiny]
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from peak import matrix_peak

from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Example, RoutingCase, Split, SplitAssignment, Trace
from prerouter.engines.embedded import resolve_model
from prerouter.recipe.recipe import load_recipe
from prerouter.recipe.train import TrainSection
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages.pipeline import stages_of
from prerouter.stages.train import make_examples
from prerouter.training.examples import TokenisedExample, tokenise
from prerouter.training.tokens import choose_pad, find_end_of_turn
from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

if TYPE_CHECKING:
    from trl import SFTTrainer

REPOSITORY = Path(__file__).parents[1]
WAYS = ("trl", "prerouter", "grouped", "padding_free", "checkpointed", "bare")
SAME_BATCHES = ("checkpointed", "padding_free", "trl")
TARGET = 1.3


@dataclass
class Turn:
    """Clock, processor time, non-padding tokens so far and loss at the end of each step; MiB."""

    ends: list[tuple[float, float, int, float]] = field(default_factory=list)
    memory: float = 0.0

    def mark(self, tokens: int, loss: float) -> None:
        self.ends.append((time.perf_counter(), time.process_time(), tokens, loss))

    def speed(self, clock: int = 0) -> float:
        """Tokens a second of the wall's clock (0) or of processor time (1)."""
        first, last = self.ends[0], self.ends[-1]
        return (last[2] - first[2]) / (last[clock] - first[clock])

    @property
    def losses(self) -> list[float]:
        return [end[3] for end in self.ends]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="embedded:SmolLM2-135M-Instruct", help="or `tiny`")
    parser.add_argument("--examples", type=Path, help="Example rows, as `train` writes them")
    parser.add_argument("--steps", type=int, default=4, help="a turn, the first is not counted")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8, help="TRL's default is 8")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = _tiny(folder / "tiny") if options.model == "tiny" else resolve_model(options.model)
        found = _made(folder) if options.examples is None else _read(options.examples)
        count = options.steps * options.batch_size
        order = np.random.default_rng(13).permutation(len(found))[:count]
        examples = [found[position] for position in order]
        turns: dict[str, list[Turn]] = {way: [] for way in options.ways}
        for number in range(options.turns):
            for way in options.ways:
                turns[way].append(_apart(way, examples, model, folder, options))
                print(f"turn {number + 1}, {way}: {turns[way][-1].speed():.1f} tokens/s")
        rows = _tokenised(examples, model)
        operations = _operations(rows, model)
    _print(turns, rows, operations, options)


def _print(
    turns: dict[str, list[Turn]],
    rows: Sequence[TokenisedExample],
    operations: float,
    options: argparse.Namespace,
) -> None:
    peak = matrix_peak()
    lengths = sorted(len(row.ids) for row in rows)
    print(
        f"\n{options.model}, {options.dtype}, batches of {options.batch_size}; {len(rows)} examples"
        f" of {lengths[0]} to {lengths[-1]} tokens, {statistics.fmean(lengths):.0f} on average; "
        f"peak {peak / 1e9:.0f} GFLOP/s; medians over {options.turns} turns"
    )
    print(f"{'':14}{'tokens/s':>10}{'processor':>11}{'of peak':>9}{'MiB':>8}{'last loss':>11}")
    speeds = {}
    for way, taken in turns.items():
        speeds[way] = statistics.median(turn.speed() for turn in taken)
        processor = statistics.median(turn.speed(1) for turn in taken)
        used = speeds[way] * operations / sum(lengths) / peak
        memory = max(turn.memory for turn in taken)
        loss = taken[0].losses[-1]
        print(f"{way:14}{speeds[way]:10.1f}{processor:11.1f}{used:9.3f}{memory:8,.0f}{loss:11.4f}")
    for way in SAME_BATCHES:
        if not {way, "prerouter"} <= turns.keys():
            continue
        pairs = zip(turns[way][0].losses, turns["prerouter"][0].losses, strict=True)
        apart = max(abs(mine - other) / other for other, mine in pairs)
        ratio = speeds["prerouter"] / speeds[way]
        target = f" (target {TARGET})" if way == "trl" else ""
        print(f"prerouter beside {way}: {ratio:.2f}{target}; losses differ by {apart:.2%}")


def _apart(
    way: str,
    examples: Sequence[Example],
    model: str,
    folder: Path,
    options: argparse.Namespace,
) -> Turn:
    """One turn in a fresh process, so that its peak memory is its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_turn, way, examples, model, folder, options).result()


def _turn(
    way: str,
    examples: Sequence[Example],
    model: str,
    folder: Path,
    options: argparse.Namespace,
) -> Turn:
    from prerouter.training.quiet import quiet_libraries

    rows = _tokenised(examples, model)
    with quiet_libraries():
        turn = (_bare if way == "bare" else partial(_trained, way))(rows, model, folder, options)
    turn.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return turn


def _trained(
    way: str,
    rows: Sequence[TokenisedExample],
    model: str,
    folder: Path,
    options: argparse.Namespace,
) -> Turn:
    from transformers import TrainerCallback

    turn = Turn()

    class Marks(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **kwargs: Any) -> None:
            if "loss" in logs:
                turn.mark(state.num_input_tokens_seen, logs["loss"])

    section = TrainSection(
        model=options.model,
        dtype=options.dtype,
        device="cpu",
        sft={
            "per_device_train_batch_size": options.batch_size,
            "max_steps": options.steps,
            "gradient_checkpointing": way == "checkpointed",
            "padding_free": way == "padding_free",
            "learning_rate": 1e-5,
            "lr_scheduler_type": "constant",
            "save_strategy": "no",
            "train_sampling_strategy": "group_by_length" if way == "grouped" else "sequential",
        },
    )
    tokenizer = load_tokenizer(model, None)
    settings = sft_settings(section, 13, "throughput") | {"output_dir": str(folder)}
    if way == "padding_free":
        settings["max_length"] = None  # TRL allows none there
    end = find_end_of_turn(rows, tokenizer)
    tokenizer.pad_token = choose_pad(tokenizer, None, frozenset({end}), rows)
    trainer = build_trainer(rows, [], section, settings, model, tokenizer)
    if way != "prerouter":
        _as_trl_has_it(trainer)
    trainer.add_callback(Marks())
    trainer.train()
    return turn


def _as_trl_has_it(trainer: SFTTrainer) -> None:
    """Take our loss out of the trainer: what is left is TRL's class and nothing else."""
    from trl import SFTTrainer

    trainer.__class__ = SFTTrainer


def _bare(
    rows: Sequence[TokenisedExample], path: str, folder: Path, options: argparse.Namespace
) -> Turn:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    turn, seen = Turn(), 0
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
        seen += sum(len(row.ids) for row in chosen)
        turn.mark(seen, loss.item())
    return turn


def _operations(rows: Sequence[TokenisedExample], path: str) -> float:
    """Floating-point operations that training on `rows` needs, forward and back: six for a weight
    and token, the vocabulary for the completion's tokens only; attention is left out."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    embedding = model.get_input_embeddings().weight.numel()
    weights = sum(parameter.numel() for parameter in model.parameters()) - embedding
    read = sum(len(row.ids) for row in rows)
    learnt = sum(len(row.completion_ids) for row in rows)
    return float(6 * weights * read + 6 * embedding * learnt)


def _tokenised(examples: Sequence[Example], model: str) -> list[TokenisedExample]:
    tokenizer = load_tokenizer(model, None)
    return [tokenise(example, tokenizer, False) for example in examples]


def _read(path: Path) -> list[Example]:
    return [row for row in read_rows(path, Example) if row.split is Split.TRAIN]


def _made(folder: Path) -> list[Example]:
    """The quickstart's training examples in both modes: its stages up to the filter, in seconds."""
    recipe = load_recipe(
        REPOSITORY / "recipes" / "quickstart.yaml",
        [
            f"runs_dir={folder}",
            f"cases.path={REPOSITORY / 'data' / 'sample'}",
            "train.mix={explain: 1, decide: 1}",
        ],
    )
    assert recipe.train is not None
    for stage in stages_of(recipe):
        execute(stage, recipe, SilentProgress())
        if stage.name == "filter":
            break
    run = recipe.run_dir
    cases = {case.case_id: case for case in read_rows(run / recipe.cases_file, RoutingCase)}
    splits = read_rows(run / "cases" / "split.jsonl", SplitAssignment)
    sides = {row.question_id: row.split for row in splits}
    traces = read_rows(run / "filter" / "rows.jsonl", Trace)
    examples = make_examples(traces, cases, sides, recipe.train, ())
    return [example for example in examples if example.split is Split.TRAIN]


def _tiny(folder: Path) -> str:
    path = REPOSITORY / "tests" / "tiny_model.py"
    spec = importlib.util.spec_from_file_location("tiny_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.make_tiny_model(folder))


if __name__ == "__main__":
    main()
