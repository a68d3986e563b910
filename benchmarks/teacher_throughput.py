"""Replies a second through the teach stage's engine, beside bare vLLM and a bare asyncio client.

    python benchmarks/teacher_throughput.py [--cases 32] [--max-tokens 200] [--rounds 2] [--server]

Needs vLLM's own environment (`make test-vllm` builds .venv-vllm). Guided prompts of the sample's
cases, each with a seed of its own, held to the trace schema. In one process and on one engine,
alternating: LLM.generate on token ids made beforehand, in the order given; and our pass over the
cases (render, order, generate, parse, write). With --server, the same against a server on loopback
started by scripts/serve_teacher.sh, beside openai's AsyncOpenAI under a semaphore. The prefix cache
is emptied before each pass. Replies cut off at --max-tokens count as replies: what is compared is
the engine's pace. The two passes of a round stand side by side in time: on a machine that does
other work too, the median of the rounds tells more than the sums.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import AnswerModel, RagConfig, Reject, RoutingCase, Trace
from prerouter.engines.embedded import resolve_model
from prerouter.engines.openai import OpenAIServer
from prerouter.engines.vllm import VllmModel
from prerouter.prompts.render import render_teacher
from prerouter.prompts.trace import trace_schema
from prerouter.recipe.cases import SampleSource
from prerouter.recipe.engine import OpenAIEngine, VllmEngine
from prerouter.recipe.teach import TeachSection
from prerouter.routers.prompted import engine_traces, request_seed, trace_key
from prerouter.runs.rejects import reject_key
from prerouter.runs.rows import RowLog
from prerouter.sources.sample import load_sample

MODEL = "embedded:SmolLM2-135M-Instruct"
MAX_MODEL_LEN = 4096
SEED = 13
REPOSITORY = Path(__file__).parents[1]


@dataclass
class Pace:
    """Replies and generated tokens of all passes, over their seconds."""

    replies: int = 0
    tokens: int = 0
    seconds: float = 0.0
    parsed: int = 0

    def line(self, name: str) -> str:
        return (
            f"{name:<22} {self.replies / self.seconds:>8.2f} replies/s"
            f" {self.tokens / self.seconds:>8.1f} tokens/s"
        )


class Counted:
    """An engine whose generated tokens are counted, rejected replies' among them."""

    def __init__(self, engine: VllmModel | OpenAIServer, pace: Pace) -> None:
        self._engine = engine
        self._pace = pace
        self.info = engine.info
        self.count_tokens = engine.count_tokens
        self.score_choices = engine.score_choices
        self.honours_schema = engine.honours_schema

    @property
    def cached_share(self) -> float | None:
        return self._engine.cached_share

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        for index, completion in self._engine.generate(requests, sampling):
            if completion.error:
                raise RuntimeError(completion.error)
            self._pace.tokens += completion.completion_tokens
            yield index, completion


def sample_cases(count: int) -> list[RoutingCase]:
    models = (
        AnswerModel(name="small-1.5b", context_window=8_192),
        AnswerModel(name="large-70b", context_window=131_072),
    )
    source = SampleSource(
        source="sample", path=REPOSITORY / "data" / "sample", answer_models=models
    )
    return load_sample(source, RagConfig()).cases[:count]


def teach(
    engine: VllmModel | OpenAIServer, cases: list[RoutingCase], section: TeachSection
) -> Pace:
    pace = Pace()
    due = [(case, 0) for case in cases]
    with (
        TemporaryDirectory() as folder,
        RowLog(Path(folder) / "rows.jsonl", Trace, trace_key) as traces,
        RowLog(Path(folder) / "rejects.jsonl", Reject, reject_key) as rejects,
    ):
        began = time.perf_counter()
        for result in engine_traces(due, Counted(engine, pace), section, SEED):
            pace.replies += 1
            if isinstance(result, Trace):
                traces.append(result)
            else:
                rejects.append(result)
        pace.seconds = time.perf_counter() - began
        pace.parsed = len(traces.done)
    return pace


def compare(
    name: str,
    bare: Callable[[], Pace],
    ours: Callable[[], Pace],
    empty: Callable[[], None],
    rounds: int,
) -> None:
    """Alternate the two, the first to go changing each round, and print their paces."""
    totals = {"bare": Pace(), "ours": Pace()}
    passes = {"bare": bare, "ours": ours}
    ratios = []
    ours()  # warms up compilers, grammars and connections for both
    for number in range(rounds):
        seconds = {}
        for side in ("bare", "ours") if number % 2 == 0 else ("ours", "bare"):
            empty()
            pace = passes[side]()
            # One by one, so that what else the machine does is seen.
            print(pace.line(f"pass {number + 1} {side}"), flush=True)
            seconds[side] = pace.seconds
            total = totals[side]
            total.replies += pace.replies
            total.tokens += pace.tokens
            total.seconds += pace.seconds
            total.parsed += pace.parsed
        ratios.append(seconds["bare"] / seconds["ours"])
    print(totals["bare"].line(f"bare {name}"))
    print(totals["ours"].line("prerouter"))
    first, second = totals["bare"], totals["ours"]
    replies = (second.replies / second.seconds) / (first.replies / first.seconds)
    tokens = (second.tokens / second.seconds) / (first.tokens / first.seconds)
    print(f"ratio {replies:.3f} in replies, {tokens:.3f} in tokens (target 0.95)")
    by_round = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    print(f"ratio by round {by_round}; median {statistics.median(ratios):.3f}")
    print(f"whole traces {second.parsed} of {second.replies}")


def bench_in_process(cases: list[RoutingCase], section: TeachSection, rounds: int) -> None:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    assert isinstance(section.engine, VllmEngine)
    engine = VllmModel(section.engine)
    llm = engine.llm
    tokenizer = llm.get_tokenizer()
    prompts, parameters = [], []
    for case in cases:
        messages = [message.model_dump() for message in render_teacher(case, section.prompt)]
        text = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, enable_thinking=False, tokenize=False
        )
        ids = tokenizer(text, add_special_tokens=False).input_ids
        prompts.append({"prompt_token_ids": ids})
        parameters.append(
            SamplingParams(
                max_tokens=section.max_tokens,
                temperature=section.temperature,
                top_p=section.top_p,
                seed=request_seed(SEED, case, 0),
                structured_outputs=StructuredOutputsParams(json=trace_schema()),
            )
        )

    def bare() -> Pace:
        began = time.perf_counter()
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        seconds = time.perf_counter() - began
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        return Pace(len(outputs), tokens, seconds)

    def ours() -> Pace:
        return teach(engine, cases, section)

    compare("LLM.generate", bare, ours, llm.reset_prefix_cache, rounds)
    print(f"cached share of the prompt tokens {engine.cached_share or 0:.2f}")


def bench_server(cases: list[RoutingCase], section: TeachSection, rounds: int) -> None:
    import httpx2
    import openai

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = f"http://127.0.0.1:{port}"
    server = OpenAIEngine(
        kind="openai",
        model="teacher",
        base_url=f"{root}/v1",
        concurrency=len(cases),
        # The bare client asks once, and --max-tokens may cut most replies off.
        cut_off_attempts=1,
    )
    section = section.model_copy(update={"engine": server})
    engine = OpenAIServer(server)
    schema = {"name": "reply", "schema": trace_schema(), "strict": True}

    async def ask_all() -> Pace:
        free = asyncio.Semaphore(len(cases))
        limits = httpx2.Limits(max_connections=len(cases), max_keepalive_connections=len(cases))
        http = httpx2.AsyncClient(limits=limits, timeout=600)
        client = openai.AsyncOpenAI(
            api_key="EMPTY", base_url=server.base_url, max_retries=0, http_client=http
        )

        async def ask(case: RoutingCase) -> int:
            async with free:
                messages: Any = [m.model_dump() for m in render_teacher(case, section.prompt)]
                reply = await client.chat.completions.create(
                    model="teacher",
                    messages=messages,
                    max_tokens=section.max_tokens,
                    temperature=section.temperature,
                    top_p=section.top_p,
                    seed=request_seed(SEED, case, 0),
                    response_format={"type": "json_schema", "json_schema": schema},
                )
            return int(reply.usage.completion_tokens)

        async with client:
            began = time.perf_counter()
            tokens = await asyncio.gather(*(ask(case) for case in cases))
            return Pace(len(tokens), sum(tokens), time.perf_counter() - began)

    def empty() -> None:
        httpx2.post(f"{root}/reset_prefix_cache").raise_for_status()

    with running_server(port):
        compare(
            "AsyncOpenAI",
            lambda: asyncio.run(ask_all()),
            lambda: teach(engine, cases, section),
            empty,
            rounds,
        )
        print(f"cached share of the prompt tokens {engine.cached_share or 0:.2f}")


@contextmanager
def running_server(port: int) -> Iterator[None]:
    import httpx2

    # Development mode offers the address that empties the prefix cache.
    environment = {
        **os.environ, "PORT": str(port), "PYTHON": sys.executable, "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }  # fmt: skip
    server = subprocess.Popen(
        [
            REPOSITORY / "scripts" / "serve_teacher.sh", resolve_model(MODEL),
            "--served-model-name=teacher", "--dtype=bfloat16", "--enforce-eager",
            f"--max-model-len={MAX_MODEL_LEN}", "--disable-uvicorn-access-log",
        ],
        env=environment,
    )  # fmt: skip
    try:
        while True:
            if server.poll() is not None:
                raise SystemExit("the server did not start: read its lines above")
            try:
                httpx2.get(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            except httpx2.TransportError:
                time.sleep(0.5)
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--server", action="store_true", help="beside a bare asyncio client")
    arguments = parser.parse_args()
    engine = VllmEngine(
        kind="vllm",
        model=MODEL,
        dtype="bfloat16",
        max_model_len=MAX_MODEL_LEN,
        arguments={"enforce_eager": True},
    )
    section = TeachSection(engine=engine, max_tokens=arguments.max_tokens)
    cases = sample_cases(arguments.cases)
    print(f"{len(cases)} guided prompts a pass, {arguments.rounds} rounds")
    bench = bench_server if arguments.server else bench_in_process
    bench(cases, section, arguments.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
