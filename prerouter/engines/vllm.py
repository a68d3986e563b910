"""vLLM in process: the engine of a large teacher on this machine's accelerators, or its CPU."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import secrets
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from prerouter.core.errors import RecipeError, StageError
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import Message
from prerouter.engines.chat import OPEN_THINKING, check_chat, encode_chat
from prerouter.engines.choices import choice_endings
from prerouter.engines.prefix_order import prefix_order
from prerouter.engines.thinking import part_thinking
from prerouter.engines.transformers import NO_TOKENS, PROMPT_TOO_LONG
from prerouter.engines.vllm_arguments import engine_arguments
from prerouter.engines.vllm_choices import read_endings, read_next
from prerouter.engines.vllm_death import raise_when_killed
from prerouter.engines.vllm_entropy import (
    asking,
    check_entropies,
    take_entropies,
    with_bits,
    with_entropies,
)
from prerouter.recipe.engine import VllmEngine

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput, SamplingParams

Key = TypeVar("Key")


class VllmModel:
    """An `Engine` over vLLM's own scheduler, which is kept full: no barrier between batches.

    What is done is given out at once, so a kill loses what is in flight and no more. One seed does
    not give one text again: what else is in the batch changes the last bits of the numbers. One
    iterator of `generate` at a time.
    """

    def __init__(self, section: VllmEngine) -> None:
        if section.data_parallel_size > 1:
            raise RecipeError(
                "engine.data_parallel_size",
                "vLLM runs one replica in process",
                "1, with tensor and pipeline parallel sizes",
                "start `vllm serve --data-parallel-size N` and use kind: openai",
            )
        self._arguments = arguments = engine_arguments(section)
        import vllm

        self._has_reasoning_parser = bool(arguments.get("reasoning_parser"))
        before = set(multiprocessing.active_children())
        self.llm = _start(section.model, with_entropies(arguments))
        self._engine = self.llm.llm_engine
        raise_when_killed(self._engine, set(multiprocessing.active_children()) - before)
        self._tokenizer = self.llm.get_tokenizer()
        check_chat(self._tokenizer, section.model)
        self._max_len: int = self._engine.model_config.max_model_len
        # Twice what runs at once, so that the scheduler never waits for the next prompt.
        self._window: int = 2 * self._engine.vllm_config.scheduler_config.max_num_seqs
        self._info = EngineInfo(
            kind="vllm",
            model=section.model,
            revision=section.revision,
            versions={"vllm": vllm.__version__},
        )
        # Engines that share a process keep their requests apart.
        self._name = f"prerouter-{secrets.token_hex(8)}"
        self._numbers = itertools.count()
        self._entropies: dict[str, dict[int, float]] = {}
        self._prompt_tokens = 0
        self._cached_tokens = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def cached_share(self) -> float | None:
        """Share of all prompt tokens so far that came from the prefix cache; None before any."""
        return self._cached_tokens / self._prompt_tokens if self._prompt_tokens else None

    def honours_schema(self) -> bool | None:
        """Replies are held to a schema by vLLM's structured outputs."""
        return True

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt length in tokens, chat template and generation prompt included."""
        return len(encode_chat(self._tokenizer, messages, thinking=False)[0])

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        """Yield (index, completion) as they get done. `seconds` counts from a request's admission.

        Entropies are those of the model's own distribution, before temperature and top_p; they and
        `completion_tokens` count the end-of-turn token. Raises RecipeError where they can't be
        exact (with a schema, or speculative decoding), or where a model that thinks would be held
        to a schema from its first token on; StageError where the engine dies.
        """
        yield from self.stream(
            ((index, requests[index]) for index in prefix_order(requests)), sampling
        )

    def stream(
        self, arriving: Iterable[tuple[int, GenerationRequest] | None], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        """`generate` over requests that arrive while others run, each with its own number.

        None tells that nothing has arrived since; with nothing running, `arriving` has to wait.
        """
        if sampling.entropy_tokens:
            check_entropies(self._arguments, sampling.schema)
        opened: dict[int, bool] = {}
        began: dict[int, float] = {}

        def prompts() -> Iterator[tuple[int, list[int] | None, SamplingParams] | None]:
            for arrived in arriving:
                if arrived is None:
                    yield None
                    continue
                index, request = arrived
                began[index] = time.perf_counter()
                try:
                    ids, opened[index] = encode_chat(
                        self._tokenizer, request.messages, sampling.thinking
                    )
                except TypeError:
                    opened[index] = False
                    yield index, None, _parameters(sampling, sampling.max_tokens, None)
                    continue
                if sampling.schema is not None and (sampling.thinking or opened[index]):
                    self._check_reasoning_parser()
                room = min(sampling.max_tokens, max(1, self._max_len - len(ids)))
                yield index, ids, _parameters(sampling, room, request.seed)

        for index, output in self._outputs(prompts(), sampling.entropy_tokens):
            seconds = time.perf_counter() - began.pop(index)
            opens = opened.pop(index)
            if isinstance(output, str):
                yield index, Completion("", "error", error=output, passing=False, seconds=seconds)
            else:
                written = self._completion(output, opens or sampling.thinking, opens, seconds)
                bits = self._entropies.get(output.request_id, {})
                yield index, with_bits(written, bits, sampling.entropy_tokens)

    def score_choices(
        self,
        requests: Sequence[GenerationRequest],
        choices: Sequence[str],
        thinking: bool = False,
        *,
        first_tokens: bool = False,
    ) -> list[ChoiceScores]:
        """Natural log-probability of each choice as the next text, in the order of the requests.

        Choices of one token, and with `first_tokens` all that begin differently, are read off one
        pass over each prompt, what the prompts share taken from the prefix cache. Longer ones cost
        a whole pass each, by the log-probabilities of a prompt's own tokens, for which vLLM takes
        nothing from its cache. A prompt that does not fit costs that request. Raises ValueError for
        a choice of no tokens.
        """
        ids = [self._tokenizer(text, add_special_tokens=False).input_ids for text in choices]
        endings = choice_endings(ids, first_tokens)
        scores: dict[int, ChoiceScores] = {}
        prompts: dict[int, list[int]] = {}
        for index in prefix_order(requests):
            try:
                prompts[index], _ = encode_chat(self._tokenizer, requests[index].messages, thinking)
            except TypeError:
                scores[index] = ChoiceScores(error=NO_TOKENS)
        one_each = all(len(ending) == 1 for ending in endings)
        read = read_next if one_each else read_endings
        passes, behind = (1, 0) if one_each else (len(endings), sum(map(len, endings)))
        began = time.perf_counter()
        for index, row in read(self._outputs, prompts, endings):
            if isinstance(row, str):
                scores[index] = ChoiceScores(prompt_tokens=len(prompts[index]), error=row)
            else:
                tokens = passes * len(prompts[index]) + behind
                scores[index] = ChoiceScores(tuple(row), tokens, calls=passes)
        share = (time.perf_counter() - began) / max(len(prompts), 1)
        return [
            dataclasses.replace(scores[index], seconds=share if index in prompts else 0.0)
            for index in range(len(requests))
        ]

    def _outputs(
        self,
        prompts: Iterable[tuple[Key, list[int] | None, SamplingParams] | None],
        entropy_tokens: int = 0,
    ) -> Iterator[tuple[Key, RequestOutput | str]]:
        """Run prompts of token ids; each key with its output, or with the reason it has none.
        None among the prompts: no more of them now."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        waiting = iter(prompts)
        running: dict[str, Key] = {}
        try:
            while True:
                while len(running) < self._window and (prompt := next(waiting, None)):
                    key, ids, parameters = prompt
                    if ids is None:
                        yield key, NO_TOKENS
                        continue
                    size, most = len(ids), self._max_len
                    if size >= most:
                        yield key, f"{PROMPT_TOO_LONG}: {size} tokens, the model takes {most}"
                        continue
                    name = f"{self._name}-{next(self._numbers)}"
                    if entropy_tokens:
                        parameters.extra_args = asking(name, entropy_tokens)
                    try:
                        self._engine.add_request(name, {"prompt_token_ids": ids}, parameters)
                    except (ValueError, VLLMClientError) as error:
                        yield key, f"refused by vLLM: {_one_line(error)}"
                        continue
                    running[name] = key
                if not running:
                    return
                done = [output for output in self._step() if output.finished]
                if entropy_tokens:
                    self._entropies = self._take_entropies([output.request_id for output in done])
                for output in done:
                    yield running.pop(output.request_id), output
        except StageError:
            # A dead engine has nothing to be aborted: its sockets are closed.
            running.clear()
            raise
        finally:
            with contextlib.suppress(EngineDeadError):
                self._engine.abort_request(list(running))
                if entropy_tokens:
                    take_entropies(self._engine, list(running))

    def _step(self) -> list[RequestOutput]:
        with self._death():
            outputs: list[RequestOutput] = self._engine.step()
        return outputs

    def _take_entropies(self, names: list[str]) -> dict[str, dict[int, float]]:
        with self._death():
            return take_entropies(self._engine, names)

    @contextlib.contextmanager
    def _death(self) -> Iterator[None]:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except EngineDeadError as error:
            raise StageError(
                f"vllm {self._info.model}",
                f"the engine died ({_one_line(error)})",
                next_step="read vLLM's own lines above; a rerun goes on with what is missing",
            ) from error

    def _check_reasoning_parser(self) -> None:
        if not self._has_reasoning_parser:
            raise RecipeError(
                "engine.arguments",
                "a model that thinks can't be held to a schema without knowing where thinking ends",
                "reasoning_parser: qwen3, deepseek_r1 or another of vLLM's",
                "set it, or turn thinking off",
            )

    def _completion(
        self, output: RequestOutput, thinks: bool, opened: bool, seconds: float
    ) -> Completion:
        (written,) = output.outputs
        self._prompt_tokens += len(output.prompt_token_ids)
        self._cached_tokens += output.num_cached_tokens or 0
        if written.finish_reason not in ("stop", "length"):
            error = f"vLLM ended the request: {written.finish_reason}"
            return Completion("", "error", error=error, seconds=seconds)
        reasoning, text = None, f"{OPEN_THINKING}{written.text}" if opened else written.text
        if thinks:
            reasoning, text = part_thinking(text)
        return Completion(
            text,
            written.finish_reason,
            prompt_tokens=len(output.prompt_token_ids),
            completion_tokens=len(written.token_ids),
            reasoning=reasoning,
            seconds=seconds,
        )


def _start(model: str, arguments: dict[str, Any]) -> LLM:
    from vllm import LLM

    try:
        return LLM(**arguments)
    except (TypeError, ValueError) as error:
        raise RecipeError(
            "engine", f"vLLM refuses it: {_one_line(error)}", "the arguments of vLLM's EngineArgs"
        ) from error
    except RuntimeError as error:
        raise StageError(
            f"vllm {model}",
            f"did not start ({_one_line(error)})",
            next_step="read vLLM's own lines above",
        ) from error


def _parameters(sampling: Sampling, max_tokens: int, seed: int | None) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    held = sampling.schema is not None
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=seed,
        structured_outputs=StructuredOutputsParams(json=sampling.schema) if held else None,
        # A forged turn inside a reply is to be seen, and refused.
        skip_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
