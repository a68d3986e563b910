"""Exact entropies from vLLM, held against plain transformers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsContext

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.start import start_engine
from prerouter.engines.transformers import TransformersModel
from prerouter.engines.vllm import VllmModel
from prerouter.engines.vllm_entropy import (
    asking,
    check_entropies,
    take_entropies,
    with_bits,
    with_entropies,
)
from prerouter.engines.vllm_worker import EntropyKeeper, EntropyWorker
from prerouter.recipe.engine import VllmEngine
from tests.vllm.traces import MODEL

TOKENS = 6


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmModel]:
    """Prompts are read in parts, few run at once, and the cache holds fewer than run: what is put
    off is begun again."""
    engine = start_engine(
        VllmEngine(
            kind="vllm",
            model=MODEL,
            dtype="float32",
            max_model_len=512,
            arguments={
                "enforce_eager": True,
                "enable_chunked_prefill": True,
                "max_num_batched_tokens": 128,
                "max_num_seqs": 4,
                "num_gpu_blocks_override": 7,
                "disable_log_stats": False,
            },
        )
    )
    assert isinstance(engine, VllmModel)
    yield engine
    engine.llm.llm_engine.engine_core.shutdown()


def requests() -> list[GenerationRequest]:
    # From some 30 tokens to some 380, with a beginning that they share.
    asked = [f"{'The bridge was mended. ' * (10 * times)}Who mended it?" for times in range(7)]
    return [GenerationRequest((Message(role="user", content=text),)) for text in asked]


def run(engine: Any, sampling: Sampling) -> list[Completion]:
    done = dict(engine.generate(requests(), sampling))
    assert [completion.error for completion in done.values()] == [None] * len(requests())
    return [done[index] for index in range(len(requests()))]


def preemptions(engine: VllmModel) -> float:
    return sum(m.value for m in engine.llm.get_metrics() if m.name == "vllm:num_preemptions")


def test_entropies_are_those_of_transformers(engine: VllmModel, exact: TransformersModel) -> None:
    sampling = Sampling(max_tokens=48, entropy_tokens=TOKENS)
    expected = run(exact, sampling)
    # The second time, what was read lies in the prefix cache.
    for _ in range(2):
        for one, other in zip(run(engine, sampling), expected, strict=True):
            assert one.text == other.text
            assert len(one.entropies) == TOKENS
            assert one.entropies == pytest.approx(other.entropies, abs=1e-3)
            assert not one.entropies_are_bounds
    assert engine.cached_share
    assert preemptions(engine) > 0


def test_they_are_of_the_model_and_not_of_how_it_is_sampled(
    engine: VllmModel, exact: TransformersModel
) -> None:
    sampled = Sampling(max_tokens=2, temperature=1.7, top_p=0.3, entropy_tokens=1)
    expected = run(exact, Sampling(max_tokens=2, entropy_tokens=1))
    for one, other in zip(run(engine, sampled), expected, strict=True):
        assert one.entropies == pytest.approx(other.entropies, abs=1e-3)


def test_no_more_than_are_written_and_none_unasked(engine: VllmModel) -> None:
    assert {len(done.entropies) for done in run(engine, Sampling(3, entropy_tokens=30))} == {3}
    assert {done.entropies for done in run(engine, Sampling(3))} == {()}


def test_nothing_stays_in_the_engine(engine: VllmModel) -> None:
    before = next(engine._numbers)
    results = engine.generate(requests(), Sampling(60, entropy_tokens=50))
    next(results)
    results.close()
    names = [f"{engine._name}-{number}" for number in range(before, next(engine._numbers))]
    assert len(names) > len(requests())
    assert not any(take_entropies(engine._engine, names).values())


@pytest.mark.parametrize(
    ("arguments", "schema", "problem"),
    [
        ({}, {"type": "object"}, r"what the schema allows.*kind: transformers"),
        ({"speculative_config": {"method": "ngram"}}, None, r"arguments\.speculative_config"),
        ({"worker_extension_cls": "some.Worker"}, None, r"arguments\.worker_extension_cls"),
    ],
)
def test_what_can_not_be_exact_is_refused(
    arguments: dict[str, Any], schema: dict[str, Any] | None, problem: str
) -> None:
    with pytest.raises(RecipeError, match=problem):
        check_entropies(arguments, schema)


@pytest.mark.parametrize(
    ("bits", "error"),
    [
        ({0: 1.0, 2: 1.0}, "kept 2 entropies of 3"),
        ({0: 1.0, 1: float("nan"), 2: 1.0}, "not finite"),
    ],
)
def test_a_reply_without_its_entropies_is_an_error(bits: dict[int, float], error: str) -> None:
    found = with_bits(Completion("text", "stop", completion_tokens=3), bits, 30)
    assert error in (found.error or "")
    assert (found.text, found.entropies) == ("", ())


def test_arguments_that_leave_no_room_stay_as_they_are() -> None:
    given = {"speculative_config": {"method": "ngram"}}
    assert with_entropies(given) == given
    own = with_entropies({"logits_processors": ["some:Processor"]})["logits_processors"]
    assert own[0] == "some:Processor"
    assert len(own) == 2


def test_slots_of_the_second_model_runner() -> None:
    """vLLM's second runner needs a GPU, or Triton: its calls are made by hand here."""
    prompts = np.array([4, 0, 7, 5])
    keeper = EntropyKeeper(None, SimpleNamespace(prompt_len=SimpleNamespace(np=prompts)))
    assert keeper.add_request(2, SamplingParams(extra_args=asking("two", 2)))
    assert keeper.add_request(0, SamplingParams(extra_args=asking("none", 2)))
    assert keeper.add_request(3, SamplingParams(extra_args=asking("three", 1)))
    # Somebody who asks for nothing takes over a slot.
    assert not keeper.add_request(0, SamplingParams())
    logits = torch.tensor([[1.0, 1, 1, 1], [0, 0, -torch.inf, -torch.inf], [9, 9, 9, 9]])
    for slots, lengths in (
        ([3, 2, 0], [5, 6, 4]),  # slot 2 is in the middle of its prompt
        ([0, 2, 3], [5, 7, 6]),  # slot 3 has all it asked for
        ([2, 0, 3], [8, 6, 7]),
        ([2, 0, 3], [9, 7, 8]),
    ):
        assert keeper.apply(logits, context(slots, lengths)) is logits
    found = EntropyWorker().take_prerouter_entropies(["two", "three", "none", "unknown"])
    assert {name: dict(kept) for name, kept in found.items()} == {
        "three": {0: 2.0},
        "two": {0: 1.0, 1: 2.0},
    }
    assert EntropyWorker().take_prerouter_entropies(["two"]) == {}


def context(slots: list[int], lengths: list[int]) -> LogitsContext:
    mapping = torch.tensor(slots)
    return LogitsContext(
        expanded_idx_mapping=mapping,
        idx_mapping=mapping,
        idx_mapping_np=np.array(slots),
        expanded_local_pos=torch.zeros(len(slots)),
        input_ids=torch.zeros(len(slots)),
        pos=torch.tensor(lengths) - 1,
        seq_lens_upper_bound_np=np.array(lengths),
    )
