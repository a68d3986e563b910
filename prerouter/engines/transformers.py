"""transformers in process: the embedded default, on CPU or one GPU.

Replies cannot be held to a schema here; whoever asked for one parses the reply and refuses it. One
that does not open as a JSON object is ended after a few tokens: no more of it would make it one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Sequence
from typing import Any

from prerouter.core.errors import MissingDependencyError, RecipeError
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import Message
from prerouter.engines.attention import attending_by
from prerouter.engines.batches import Prefix, PromptState, Row
from prerouter.engines.chat import OPEN_THINKING, check_chat, encode_chat
from prerouter.engines.choices import choice_endings
from prerouter.engines.embedded import resolve_model
from prerouter.engines.grouped_attention import one_query_attention
from prerouter.engines.quiet import without_bars
from prerouter.engines.reading import PromptReader
from prerouter.engines.sampling import entropy_bits, new_generator, next_tokens, not_finite
from prerouter.engines.thinking import part_thinking
from prerouter.recipe.engine import Dtype

PROMPT_TOO_LONG = "prompt too long"
"""How the error of a request begins whose prompt leaves no room in the model's length."""

NO_TOKENS = "the prompt holds text that has no tokens"
"""The error of a request whose prompt holds half a character (a lone surrogate)."""

_OPENING_TOKENS = 8


class TransformersModel:
    """An `Engine` over a folder, a Hub name or an `embedded:` name.

    Weights are safetensors only and no code of a model's is run. Requests are batched by length;
    rows that end leave their batch. The numbers of a batch depend a little on its composition
    (padding, bf16), so near ties can fall otherwise in another batch.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        dtype: Dtype = "bfloat16",
        batch_size: int = 16,
        max_model_len: int | None = None,
    ) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise MissingDependencyError(error.name or "transformers", "train") from None

        folder = resolve_model(model)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            with without_bars():
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, revision=revision, trust_remote_code=False
                )
                self._model = transformers.AutoModelForCausalLM.from_pretrained(
                    folder,
                    revision=revision,
                    dtype=getattr(torch, dtype),
                    use_safetensors=True,
                    trust_remote_code=False,
                ).to(self._device)
        except (OSError, ValueError) as error:
            raise RecipeError(
                model,
                f"can't be loaded: {error}",
                "a folder or Hub name with a tokenizer and safetensors weights, without own code",
            ) from error
        check_chat(self._tokenizer, model)
        self._model.eval()
        self._begin(model, revision, batch_size, max_model_len)

    @classmethod
    def of(cls, model: Any, tokenizer: Any, *, batch_size: int = 16) -> TransformersModel:
        """An engine over a model that is loaded and ready to generate, such as a student in
        training. It holds what it has read: make another once the weights have changed."""
        engine = cls.__new__(cls)
        engine._model, engine._tokenizer = model, tokenizer
        engine._device = str(next(model.parameters()).device)
        engine._begin(model.config.name_or_path, None, batch_size, None)
        return engine

    def _begin(
        self, name: str, revision: str | None, batch_size: int, max_model_len: int | None
    ) -> None:
        import torch
        import transformers

        self._reader = PromptReader(self._model, self._device)
        limit = getattr(self._model.config, "max_position_embeddings", None)
        self._max_len: int | None = max_model_len or limit
        self._batch_size = batch_size
        self._stops = torch.tensor(_stop_tokens(self._model, self._tokenizer), device=self._device)
        self._info = EngineInfo(
            kind="transformers",
            model=name,
            revision=revision,
            versions={"torch": torch.__version__, "transformers": transformers.__version__},
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def cached_share(self) -> float | None:
        """Not counted here."""
        return None

    def honours_schema(self) -> bool | None:
        """Nothing holds a reply to a schema here."""
        return False

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt length in tokens, chat template and generation prompt included."""
        return len(encode_chat(self._tokenizer, messages, thinking=False)[0])

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        """Yield (index, completion) batch by batch, the longest prompts first.

        `completion_tokens` and `entropies` count the end-of-turn token; `seconds` is the batch's
        wall time over its size.
        """
        rows = []
        for index, request in enumerate(requests):
            try:
                ids, opened = encode_chat(self._tokenizer, request.messages, sampling.thinking)
            except TypeError:
                yield index, Completion("", "error", error=NO_TOKENS, passing=False)
                continue
            if self._max_len is not None and len(ids) >= self._max_len:
                error = f"{PROMPT_TOO_LONG}: {len(ids)} tokens, the model takes {self._max_len}"
                yield index, Completion("", "error", len(ids), error=error, passing=False)
                continue
            rows.append(Row(index, ids, opened, self._room(len(ids), sampling), request.seed))
        rows.sort(key=lambda row: -len(row.prompt))
        self._reader.share([row.prompt for row in rows])
        for start in range(0, len(rows), self._batch_size):
            batch = rows[start : start + self._batch_size]
            began = time.perf_counter()
            self._generate_batch(batch, sampling)
            seconds = (time.perf_counter() - began) / len(batch)
            for row in batch:
                yield row.index, self._completion(row, sampling, seconds)

    def score_choices(
        self,
        requests: Sequence[GenerationRequest],
        choices: Sequence[str],
        thinking: bool = False,
        *,
        first_tokens: bool = False,
    ) -> list[ChoiceScores]:
        """Natural log-probability of each choice as the next text, in the order of the requests.

        A prompt is read once for all choices, and what follows a choice's first token in a pass of
        its own; with `first_tokens`, choices that begin differently need none (`choice_endings`). A
        prompt that does not fit the model costs that request. Raises ValueError for a choice of no
        tokens.
        """
        endings = self._endings(choices, first_tokens)
        prompts, refused = self._encode(requests, endings, thinking)
        scores = {
            index: ChoiceScores(prompt_tokens=tokens, error=error)
            for index, (tokens, error) in refused.items()
        }
        self._reader.share(list(prompts.values()))
        order = sorted(prompts, key=lambda index: -len(prompts[index]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            began = time.perf_counter()
            rows = self._reader.score([prompts[index] for index in batch], endings)
            seconds = (time.perf_counter() - began) / len(batch)
            for index, row in zip(batch, rows, strict=True):
                scores[index] = ChoiceScores(tuple(row), len(prompts[index]), seconds=seconds)
        return [scores[index] for index in range(len(requests))]

    @property
    def layers(self) -> int:
        """How many layers the model has."""
        layers: int = self._model.config.get_text_config().num_hidden_layers
        return layers

    def prompt_states(
        self,
        requests: Sequence[GenerationRequest],
        thinking: bool = False,
        choices: Sequence[str] = (),
    ) -> Generator[tuple[int, PromptState], None, None]:
        """Yield (index, hidden states of the prompt's last token) batch by batch, the longest
        prompts first, with what `score_choices` says of the choices. A prompt that does not fit the
        model costs that request."""
        endings = self._endings(choices)
        prompts, refused = self._encode(requests, endings, thinking)
        for index, (tokens, error) in refused.items():
            yield index, PromptState(prompt_tokens=tokens, error=error)
        self._reader.share([ids[:-1] for ids in prompts.values()])
        order = sorted(prompts, key=lambda index: -len(prompts[index]))
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            began = time.perf_counter()
            read = self._reader.last_states([prompts[index] for index in batch], endings)
            seconds = (time.perf_counter() - began) / len(batch)
            for index, vectors, scores in zip(batch, read[0].numpy(), read[1], strict=True):
                tokens = len(prompts[index])
                yield index, PromptState(vectors, tuple(scores), tokens, seconds=seconds)

    def _endings(self, choices: Sequence[str], first_tokens: bool = False) -> list[list[int]]:
        ids = [self._tokenizer(choice, add_special_tokens=False).input_ids for choice in choices]
        return choice_endings(ids, first_tokens)

    def _encode(
        self, requests: Sequence[GenerationRequest], endings: list[list[int]], thinking: bool
    ) -> tuple[dict[int, list[int]], dict[int, tuple[int, str]]]:
        """Prompt ids by request, and the length and error of those that can't be read with one of
        the endings behind them."""
        longest = max(map(len, endings), default=0)
        prompts: dict[int, list[int]] = {}
        refused: dict[int, tuple[int, str]] = {}
        for index, request in enumerate(requests):
            try:
                ids, _ = encode_chat(self._tokenizer, request.messages, thinking)
            except TypeError:
                refused[index] = 0, NO_TOKENS
                continue
            if self._max_len is not None and len(ids) + longest > self._max_len:
                error = f"{PROMPT_TOO_LONG}: {len(ids)} tokens, the model takes {self._max_len}"
                refused[index] = len(ids), error
                continue
            prompts[index] = ids
        return prompts, refused

    def _room(self, prompt_tokens: int, sampling: Sampling) -> int:
        if self._max_len is None:
            return sampling.max_tokens
        return min(sampling.max_tokens, self._max_len - prompt_tokens)

    def _generate_batch(self, rows: list[Row], sampling: Sampling) -> None:
        import torch

        with torch.inference_mode():
            prefix = self._reader.prefill([row.prompt for row in rows])
            with self._one_query_a_row():
                self._continue(prefix, rows, sampling)

    def _continue(self, prefix: Prefix, running: list[Row], sampling: Sampling) -> None:
        import torch

        drawn = sampling.temperature > 0
        generators = [new_generator(row.seed) for row in running] if drawn else []
        logits = prefix.logits
        while True:
            if len(running[0].tokens) < sampling.entropy_tokens:
                for row, bits in zip(running, entropy_bits(logits).tolist(), strict=True):
                    row.entropies.append(bits)
            chosen = next_tokens(logits, sampling.temperature, sampling.top_p, generators)
            stopped = torch.isin(chosen, self._stops)
            for row, token, stop in zip(running, chosen.tolist(), stopped.tolist(), strict=True):
                row.tokens.append(token)
                row.stopped = stop
            if sampling.schema and len(running[0].tokens) == _OPENING_TOKENS:
                for row in running:
                    row.hopeless = not row.opened and not self._opens_an_object(row)
            keep = [place for place, row in enumerate(running) if row.goes_on]
            if not keep:
                return
            if len(keep) < len(running):
                running = [running[place] for place in keep]
                generators = [generators[place] for place in keep] if generators else []
                rest = torch.tensor(keep, device=self._device)
                prefix.select(rest)
                chosen = chosen[rest]
            logits = self._reader.extend(prefix, chosen[:, None])[:, -1]

    def _opens_an_object(self, row: Row) -> bool:
        text = self._tokenizer.decode(row.tokens, skip_special_tokens=False).lstrip()
        return not text or text.startswith(("{", "`", OPEN_THINKING))

    def _one_query_a_row(self) -> contextlib.AbstractContextManager[None]:
        """On CPU, plain matrix products read one token a row faster than the fused kernel does."""
        if self._device != "cpu":
            return contextlib.nullcontext()
        return attending_by(self._model, one_query_attention(self._model))

    def _completion(self, row: Row, sampling: Sampling, seconds: float) -> Completion:
        if error := not_finite(row.entropies):
            return Completion(
                "", "error", len(row.prompt), len(row.tokens), error=error, passing=False
            )
        tokens = row.tokens[:-1] if row.stopped else row.tokens
        # Special tokens are kept: a forged turn inside a reply is to be seen, and refused.
        text = self._tokenizer.decode(tokens, skip_special_tokens=False)
        reasoning, text = _split(text, row.opened, sampling.thinking)
        return Completion(
            text,
            "stop" if row.stopped or row.hopeless else "length",
            prompt_tokens=len(row.prompt),
            completion_tokens=len(row.tokens),
            reasoning=reasoning,
            entropies=tuple(row.entropies),
            seconds=seconds,
        )


def _split(text: str, opened: bool, thinking: bool) -> tuple[str | None, str]:
    """Thinking text apart. What is not closed stays in the text, tag first, so that its parser
    refuses it."""
    if opened:
        text = OPEN_THINKING + text
    return part_thinking(text) if opened or thinking else (None, text)


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The generation config's and tokenizer's eos, and what ends a turn in the chat template."""
    configured = model.generation_config.eos_token_id
    stops = set(configured if isinstance(configured, list) else [configured])
    stops.add(tokenizer.eos_token_id)
    marker = "marker"
    turns = [{"role": "user", "content": "-"}, {"role": "assistant", "content": marker}]
    after = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(marker)[2]
    ending = tokenizer(after, add_special_tokens=False).input_ids[:1]
    stops.update(token for token in ending if token in tokenizer.all_special_ids)
    return sorted(token for token in stops if token is not None)
