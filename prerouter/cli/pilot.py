"""The pilot of `prerouter estimate`: a few real calls, whose traces `teach` finds done."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from prerouter.core.errors import StageError
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    Engine,
    EngineInfo,
    GenerationRequest,
    Progress,
    Sampling,
)
from prerouter.core.records import Message, RoutingCase, Trace
from prerouter.prompts.trace import TraceReason
from prerouter.recipe.recipe import Recipe

Item = TypeVar("Item")


@dataclass
class Pilot:
    """What the pilot's calls took. `tokens` maps a trace's key to (prompt tokens, output tokens) of
    every call whose tokens the engine told, a refused one as well: the prompt's own, and the output
    of all attempts. `lost_prompt_tokens` went to attempts that gave no reply to keep; `failed`
    counts by error."""

    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost_prompt_tokens: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


class Metered:
    """An engine that keeps what each request of its only batch came to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.completions: dict[int, Completion] = {}

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    @property
    def cached_share(self) -> float | None:
        return self._engine.cached_share

    def honours_schema(self) -> bool | None:
        return self._engine.honours_schema()

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self._engine.count_tokens(messages)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        with contextlib.closing(self._engine.generate(requests, sampling)) as completions:
            for index, completion in completions:
                self.completions[index] = completion
                yield index, completion

    def score_choices(
        self,
        requests: Sequence[GenerationRequest],
        choices: Sequence[str],
        thinking: bool = False,
        *,
        first_tokens: bool = False,
    ) -> list[ChoiceScores]:
        return self._engine.score_choices(requests, choices, thinking, first_tokens=first_tokens)


def draw_evenly(items: Sequence[Item], count: int, seed: int) -> list[Item]:
    """`count` of `items` in their order, one drawn at random from each of `count` equal blocks;
    all of them where there are no more."""
    if count >= len(items):
        return list(items)
    borders = np.linspace(0, len(items), count + 1).astype(int)
    drawn = np.random.default_rng(seed).integers(borders[:-1], borders[1:])
    return [items[position] for position in drawn]


def run_pilot(
    recipe: Recipe, cases: Sequence[RoutingCase], count: int, progress: Progress
) -> Pilot:
    """Ask the teacher for the first sample of `count` of `cases`, as `teach` would, and leave the
    traces where it goes on from. Raises StageError where not a single call succeeds."""
    from prerouter.engines.start import start_engine
    from prerouter.routers.prompted import engine_traces, trace_key
    from prerouter.runs.stage import part_of
    from prerouter.stages import teach

    section = recipe.teach
    assert section is not None
    assert section.engine is not None
    pilot = Pilot()
    with part_of(teach.STAGE, recipe, progress) as run:
        rejects, log = run.reject_log(), run.log(Trace, trace_key)
        chosen = {f"{case.case_id}|0": case for case in draw_evenly(cases, count, recipe.seed)}
        keys = [key for key in chosen if key not in log.done and key not in rejects.done]
        due = [(chosen[key], 0) for key in keys]
        progress.start("estimate: pilot", len(due))
        if not due:
            return pilot
        engine = Metered(start_engine(section.engine))
        for result in engine_traces(due, engine, section, recipe.seed):
            if isinstance(result, Trace):
                log.append(result)
            else:
                rejects.append(result)
                if result.reason != TraceReason.CALL_FAILED:
                    pilot.refused[result.reason] += 1
            progress.advance()
    for index, completion in engine.completions.items():
        if completion.finish_reason == "error":
            pilot.failed[completion.error or "no reason"] += 1
        pilot.lost_prompt_tokens += completion.lost_prompt_tokens
        output = completion.completion_tokens + completion.lost_completion_tokens
        if output:
            pilot.tokens[keys[index]] = (completion.prompt_tokens, output)
    if pilot.failed.total() == len(due):
        raise StageError(
            "--pilot",
            f"all {len(due)} calls failed: {pilot.failed.most_common(1)[0][0]}",
            next_step="mend teach.engine, or give --output-tokens",
        )
    return pilot
