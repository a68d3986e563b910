"""How likely each of a few texts is as the next one, by vLLM's log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Run = Callable[[Any], Any]
"""Prompts of token ids with their keys and parameters, to keys with an output or a reason."""


def read_next(
    run: Run, prompts: dict[int, list[int]], endings: list[list[int]]
) -> Iterator[tuple[int, list[float] | str]]:
    """Log-probabilities of endings of one token each, or why a prompt has none."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    tokens = [ending[0] for ending in endings]
    parameters = SamplingParams(
        max_tokens=1,
        temperature=0.0,
        logprob_token_ids=sorted(set(tokens)),
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    asked = ((index, ids, parameters) for index, ids in prompts.items())
    for index, output in run(asked):
        if isinstance(output, str):
            yield index, output
        else:
            place = output.outputs[0].logprobs[0]
            yield index, [place[token].logprob for token in tokens]


def read_endings(
    run: Run, prompts: dict[int, list[int]], endings: list[list[int]]
) -> Iterator[tuple[int, list[float] | str]]:
    """Log-probabilities of endings of any length, or why a prompt has none."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    parameters = SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    asked = (
        ((index, column), [*ids, *ending], parameters)
        for index, ids in prompts.items()
        for column, ending in enumerate(endings)
    )
    rows: dict[int, dict[int, float]] = {index: {} for index in prompts}
    refused: dict[int, str] = {}
    for (index, column), output in run(asked):
        if isinstance(output, str):
            refused[index] = output
            continue
        ending = endings[column]
        given = output.prompt_logprobs[-len(ending) :]
        rows[index][column] = sum(
            place[token].logprob for place, token in zip(given, ending, strict=True)
        )
    for index, row in rows.items():
        yield index, refused.get(index) or [row[column] for column in range(len(endings))]
