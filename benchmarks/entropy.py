"""What exact entropies of the first tokens cost: generation with them beside plain generation.

One run, the same prompts; plain and measured passes take turns, and swap who goes first, so that
what else the machine does falls on both. The figure compares the fastest pass of each, since what
else runs only ever slows one; all passes are shown. vLLM is measured where it is installed, beside
transformers; each engine has read all prompts once before.

    python benchmarks/entropy.py
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prerouter.core.protocols import Engine, GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.start import start_engine
from prerouter.recipe.engine import EngineSection, TransformersEngine, VllmEngine

TARGETS = {"transformers": 10.0, "vllm": 25.0}


@dataclass(frozen=True)
class Pass:
    """Generated tokens and wall seconds of one pass over all prompts."""

    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="embedded:SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-characters", type=int, default=800)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--entropy-tokens", type=int, default=30, help="m: 30 in EDAR")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--text", type=Path, default=Path("data/sample/documents/report-22.txt"))
    options = parser.parse_args()

    requests = _requests(options.text.read_text("utf-8"), options)
    shared = {"model": options.model, "dtype": options.dtype}
    sections: list[EngineSection] = [
        TransformersEngine(kind="transformers", batch_size=options.batch_size, **shared)
    ]
    if importlib.util.find_spec("vllm"):
        arguments = {"max_num_seqs": options.batch_size, "enforce_eager": True}
        sections.append(VllmEngine(kind="vllm", max_model_len=2048, arguments=arguments, **shared))
    print(
        f"{options.prompts} prompts of {options.prompt_characters} characters, "
        f"{options.max_tokens} tokens out, entropies of {options.entropy_tokens}, "
        f"batches of {options.batch_size}, {options.dtype}"
    )
    for section in sections:
        _report(section.kind, start_engine(section), requests, options)


def _requests(text: str, options: argparse.Namespace) -> list[GenerationRequest]:
    step = max(1, (len(text) - options.prompt_characters) // options.prompts)
    pieces = [text[at * step :][: options.prompt_characters] for at in range(options.prompts)]
    ending = "\n\nTell in many words what this passage says, and what may come after it."
    return [GenerationRequest((Message(role="user", content=f"{p}{ending}"),)) for p in pieces]


def _report(
    kind: str, engine: Engine, requests: Sequence[GenerationRequest], options: argparse.Namespace
) -> None:
    ways = {
        "plain": Sampling(options.max_tokens),
        "entropies": Sampling(options.max_tokens, entropy_tokens=options.entropy_tokens),
    }
    _run(engine, requests, ways["plain"])
    taken: dict[str, list[Pass]] = {name: [] for name in ways}
    for turn in range(options.turns):
        for name in sorted(ways, reverse=turn % 2 == 0):
            taken[name].append(_run(engine, requests, ways[name]))
    for name, passes in taken.items():
        rates = [one.rate for one in passes]
        shown = ", ".join(f"{rate:.1f}" for rate in rates)
        print(
            f"{kind}, {name}: {max(rates):.1f} generated tokens/s, "
            f"median {statistics.median(rates):.1f} ({shown})"
        )
    plain, measured = (max(one.rate for one in taken[name]) for name in ways)
    cost = 100 * (plain / measured - 1)
    print(f"{kind}: entropies cost {cost:.1f}% (target {TARGETS[kind]:g}%)", flush=True)


def _run(engine: Engine, requests: Sequence[GenerationRequest], sampling: Sampling) -> Pass:
    began = time.perf_counter()
    done = [completion for _, completion in engine.generate(requests, sampling)]
    seconds = time.perf_counter() - began
    for completion in done:
        wanted = min(sampling.entropy_tokens, completion.completion_tokens)
        if completion.error or len(completion.entropies) != wanted:
            raise SystemExit(f"a pass failed: {completion.error or 'entropies are missing'}")
    return Pass(sum(completion.completion_tokens for completion in done), seconds)


if __name__ == "__main__":
    main()
