"""Any OpenAI-compatible server: `vllm serve`, or a hosted model behind an API."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import MissingDependencyError, RecipeError
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import Message
from prerouter.engines.background import results_as_done
from prerouter.engines.choices import choice_endings
from prerouter.engines.dead_server import SettingError, Watch, no_connection, status_fault
from prerouter.engines.entropy_bound import bound_fields
from prerouter.engines.hidden_key import hide_key, short_detail, without_key
from prerouter.engines.prefix_order import prefix_order
from prerouter.engines.replies import read_reply
from prerouter.engines.retries import ServerError, attempts, retry_after_seconds
from prerouter.engines.schema_probe import PROBE, PROBE_SAMPLING, follows_probe
from prerouter.engines.server_tokens import choice_log_probability, count_of, token_ids
from prerouter.recipe.engine import OpenAIEngine

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIServer:
    """An `Engine` over HTTP. Nothing is opened, and no key read, before the first request.

    At most `concurrency` requests are paid for and not yet taken by the consumer. A request that
    fails is tried again by one layer of retries (`retries.attempts`); what fails for good is a
    completion with its reason, which costs that request only.
    """

    def __init__(self, section: OpenAIEngine) -> None:
        try:
            import openai  # noqa: F401
            import tenacity  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(error.name or "openai", "openai") from None
        self._section = section
        self._info = EngineInfo(
            kind="openai", model=section.model, versions={"openai": version("openai")}
        )
        self._prompt_tokens = 0
        self._cached_tokens: int | None = None
        self._honours_schema: bool | None = None
        self._probed = False
        self._watch = Watch(section)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def cached_share(self) -> float | None:
        """Share of all prompt tokens so far that the server had in its prefix cache.

        None where the server does not tell (vLLM: --enable-prompt-tokens-details).
        """
        if self._cached_tokens is None or not self._prompt_tokens:
            return None
        return self._cached_tokens / self._prompt_tokens

    def honours_schema(self) -> bool | None:
        """Whether the server holds a reply to the schema it is sent; None if that can't be told.

        One tiny request at the first call. Some servers answer 200 and ignore the schema.
        """
        if not self._probed:
            ((_, completion),) = self.generate([PROBE], PROBE_SAMPLING)
            self._honours_schema = follows_probe(completion)
            self._probed = True
        return self._honours_schema

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt length in tokens, by vLLM's /tokenize. RecipeError where the server has none."""
        body = {"messages": _chat(messages), **self._thinking(False)}
        return count_of(self._call([(self._root("tokenize"), body)])[0], self._section.base_url)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        """Yield (index, completion) as they get done. `seconds` includes retries and their waits.

        Token counts are the server's own, 0 where it gives none; those of attempts that gave no
        completion are its lost ones. Entropies are lower bounds (`entropy_bound`). Raises
        RecipeError where they are asked for and the recipe doesn't take bounds, or the key's
        variable is not set; StageError where the server turns all calls away for one reason
        (`dead_server`).
        """
        bound = bound_fields(self._section, sampling)
        # The same seed, or no sampling, would run to the same limit at the same price.
        tries = self._section.cut_off_attempts if sampling.temperature else 1

        async def ask(client: AsyncOpenAI, index: int) -> Completion:
            body = self._body(requests[index], sampling) | bound
            completion = await self._ask(client, body, sampling)
            for _ in range(tries - 1):
                if completion.finish_reason != "length":
                    break
                if "seed" in body:
                    body["seed"] += 1
                completion = _after(completion, await self._ask(client, body, sampling))
            return completion

        yield from results_as_done(
            self._open_client, ask, prefix_order(requests), self._section.concurrency
        )

    def score_choices(
        self,
        requests: Sequence[GenerationRequest],
        choices: Sequence[str],
        thinking: bool = False,
        *,
        first_tokens: bool = False,
    ) -> list[ChoiceScores]:
        """Natural log-probability of each choice as the next text, in the order of the requests.

        Exact, by the log-probabilities that vLLM gives for a prompt's own tokens: each prompt is
        read once for each choice, of which `first_tokens` takes the first token where these differ.
        A prompt that the server refuses costs that request; RecipeError where the server has no
        such thing.
        """
        place, tokenize = self._section.base_url, self._root("tokenize")
        plain = [(tokenize, {"prompt": text, "add_special_tokens": False}) for text in choices]
        chats = [
            (tokenize, {"messages": _chat(request.messages), **self._thinking(thinking)})
            for request in requests
        ]
        ids = [token_ids(body, place) for body in self._call([*plain, *chats])]
        endings, prompts = choice_endings(ids[: len(choices)], first_tokens), ids[len(choices) :]
        asked = [
            ("/completions", {"prompt": [*prompt, *ending], "max_tokens": 1, "prompt_logprobs": 0})
            for prompt in prompts
            for ending in endings
        ]
        began = time.perf_counter()
        replies = iter(self._post_all(asked))
        share = (time.perf_counter() - began) / max(len(prompts), 1)
        scores = []
        for prompt in prompts:
            bodies = [next(replies) for _ in endings]
            # A server reads a prompt anew for every choice, and bills it.
            read = sum(len(prompt) + len(ending) for ending in endings)
            faults = [body.reason for body in bodies if isinstance(body, ServerError)]
            row = [
                choice_log_probability(body, ending, place)
                for body, ending in zip(bodies, endings, strict=True)
                if isinstance(body, str)
            ]
            if faults:
                scores.append(ChoiceScores((), read, faults[0], share, len(endings)))
            else:
                scores.append(ChoiceScores(tuple(row), read, None, share, len(endings)))
        return scores

    def _body(self, request: GenerationRequest, sampling: Sampling) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": _chat(request.messages),
            "n": 1,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._section.reply_limit_field: sampling.max_tokens,
            **self._thinking(sampling.thinking),
            **self._section.extra_body,
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if sampling.schema is not None:
            schema = {"name": "reply", "schema": sampling.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _thinking(self, thinking: bool) -> dict[str, Any]:
        if self._section.thinking_switch == "none":
            return {}
        return {"chat_template_kwargs": {"enable_thinking": thinking}}

    async def _ask(
        self, client: AsyncOpenAI, body: dict[str, Any], sampling: Sampling
    ) -> Completion:
        began = time.perf_counter()
        number = lost_prompt = lost_output = 0
        try:
            async for attempt in attempts(self._section):
                number = attempt.retry_state.attempt_number
                with attempt:
                    try:
                        text = await self._post(client, "/chat/completions", body)
                        reply = read_reply(
                            text,
                            thinking=sampling.thinking,
                            entropy_tokens=sampling.entropy_tokens,
                        )
                        completion = hide_key(reply.completion, client.api_key)
                    except ServerError as fault:
                        lost_prompt += fault.prompt_tokens
                        lost_output += fault.completion_tokens
                        raise
        except ServerError as fault:
            self._watch.failed(fault)
            tries = "1 attempt" if number == 1 else f"{number} attempts"
            error = f"{fault.reason} (after {tries})"
            # What ails the settings passes once they are mended.
            passing = fault.passing or isinstance(fault, SettingError)
            completion = Completion("", "error", error=error, passing=passing)
        else:
            self._watch.answered()
            self._prompt_tokens += completion.prompt_tokens
            if reply.cached_tokens is not None:
                self._cached_tokens = (self._cached_tokens or 0) + reply.cached_tokens
        return dataclasses.replace(
            completion,
            seconds=time.perf_counter() - began,
            lost_prompt_tokens=lost_prompt,
            lost_completion_tokens=lost_output,
        )

    def _call(self, posts: list[tuple[str, dict[str, Any]]]) -> list[str]:
        """Bodies of the replies in order. RecipeError where one fails for good."""
        bodies = []
        for body in self._post_all(posts):
            if isinstance(body, ServerError):
                raise RecipeError(
                    self._section.base_url,
                    f"gives no tokens of its own model ({body.reason})",
                    "a vLLM server",
                    "count and score with kind: transformers or vllm; a router that asks for one "
                    "word goes without by verdict_by: reply or ask_by: reply",
                )
            bodies.append(body)
        return bodies

    def _post_all(self, posts: list[tuple[str, dict[str, Any]]]) -> list[str | ServerError]:
        """Bodies of the replies in order, or what one failed of for good."""

        async def call(client: AsyncOpenAI, number: int) -> str | ServerError:
            try:
                async for attempt in attempts(self._section):
                    with attempt:
                        text = await self._post(client, *posts[number])
            except ServerError as fault:
                return fault
            return text

        numbers = range(len(posts))
        replies = dict(results_as_done(self._open_client, call, numbers, self._section.concurrency))
        return [replies[number] for number in numbers]

    async def _post(self, client: AsyncOpenAI, path: str, body: dict[str, Any]) -> str:
        """The body of a 200, the key taken out should the server echo it. Raises ServerError."""
        import httpx2
        import openai

        limit = self._section.timeout_seconds
        try:
            # The client's own timeout counts from one received byte to the next.
            async with asyncio.timeout(limit):
                response = await client.post(
                    path, cast_to=httpx2.Response, body={"model": self._section.model, **body}
                )
        except (TimeoutError, openai.APITimeoutError) as error:
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                raise no_connection("connection failed: ConnectTimeout") from None
            raise SettingError(
                f"no reply within {limit:g} seconds",
                passing=True,
                mend="look after the server, or raise engine.timeout_seconds",
            ) from None
        except openai.APIStatusError as error:
            status = error.status_code
            detail = short_detail(error.body, client.api_key)
            reason = f"HTTP {status}: {detail}" if detail else f"HTTP {status}"
            asked = retry_after_seconds(error.response.headers.get("retry-after"))
            raise status_fault(status, reason, self._section, asked) from None
        except openai.APIConnectionError as error:
            cause = type(error.__cause__).__name__ if error.__cause__ else "unknown cause"
            reason = f"connection failed: {cause}"
            if isinstance(error.__cause__, (httpx2.ConnectError, httpx2.ProxyError)):
                raise no_connection(reason) from None
            raise ServerError(reason, passing=True) from None
        except UnicodeEncodeError:
            # Half a character (a lone surrogate) in the prompt, say.
            raise ServerError("the request holds text that can't be sent", passing=False) from None
        try:
            # Whatever charset the header names: JSON is UTF-8.
            return without_key(response.content.decode(), client.api_key)
        except UnicodeDecodeError:
            raise ServerError("malformed reply: not UTF-8", passing=True) from None

    def _open_client(self) -> AbstractAsyncContextManager[AsyncOpenAI]:
        from prerouter.engines.http import open_client

        return open_client(self._section)

    def _root(self, path: str) -> str:
        """vLLM's own endpoints stand beside /v1, not below it."""
        return f"{self._section.base_url.rstrip('/').removesuffix('/v1')}/{path}"


def _chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _after(cut_off: Completion, completion: Completion) -> Completion:
    """`completion` as the attempt after one that was cut off, which was paid for."""
    return dataclasses.replace(
        completion,
        seconds=cut_off.seconds + completion.seconds,
        lost_prompt_tokens=cut_off.prompt_tokens
        + cut_off.lost_prompt_tokens
        + completion.lost_prompt_tokens,
        lost_completion_tokens=cut_off.completion_tokens
        + cut_off.lost_completion_tokens
        + completion.lost_completion_tokens,
    )
