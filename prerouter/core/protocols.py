"""The seams between rooms: engines, readers, routers, progress. Structural, no base classes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from prerouter.core.records import Answer, Decision, Message, Reference, RoutingCase


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt. `seed` belongs to the request, so that N samples of a case differ."""

    messages: tuple[Message, ...]
    seed: int | None = None


@dataclass(frozen=True)
class Sampling:
    """How to generate. `schema` holds the reply to a JSON schema where the engine can.

    `entropy_tokens` asks for the entropy, in bits over the whole vocabulary, of each of that many
    first tokens. `thinking` goes through the chat template (Qwen3's enable_thinking).
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    schema: dict[str, Any] | None = None
    entropy_tokens: int = 0
    thinking: bool = False


FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class Completion:
    """What came back for one request. `error` is set if and only if finish_reason is "error".

    `passing` False tells of an error that the same request would meet again (a prompt too long).
    `entropies_are_bounds` tells that the true entropies may be higher: a server told its likeliest
    tokens only. The `lost` tokens went to attempts before this one, or to replies that were none:
    they were paid for, and belong to no text.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning: str | None = None
    entropies: tuple[float, ...] = ()
    entropies_are_bounds: bool = False
    error: str | None = None
    passing: bool = True
    seconds: float = 0.0
    lost_prompt_tokens: int = 0
    lost_completion_tokens: int = 0


@dataclass(frozen=True)
class ChoiceScores:
    """Natural log-probability of each choice as the next text after one prompt, or the reason why
    that prompt has none. `prompt_tokens` were read in all, in `calls` passes: some engines read a
    prompt once for each choice. `seconds` is its share of its batch's wall time."""

    log_probabilities: tuple[float, ...] = ()
    prompt_tokens: int = 0
    error: str | None = None
    seconds: float = 0.0
    calls: int = 1


@dataclass(frozen=True)
class EngineInfo:
    """What a manifest says of the model behind an engine."""

    kind: str
    model: str
    revision: str | None = None
    versions: dict[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """A model that writes. Order out is order in; one bad request costs that request only."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def cached_share(self) -> float | None:
        """Share of all prompt tokens so far that a prefix cache gave; None where nobody tells."""
        ...

    def honours_schema(self) -> bool | None:
        """Whether replies are held to a schema that is sent; None where that can't be told."""
        ...

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt length in the model's own tokens, chat template included."""
        ...

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        """Yield (index of the request, its completion) as they get done, each index once."""
        ...

    def score_choices(
        self,
        requests: Sequence[GenerationRequest],
        choices: Sequence[str],
        thinking: bool = False,
        *,
        first_tokens: bool = False,
    ) -> list[ChoiceScores]:
        """How likely each choice is as the next text, one row a request, in their order; by the
        choices' `first_tokens` alone, where these differ and a model writes nothing but choices."""
        ...


class Reader(Protocol):
    """Answers one case over one document body by one route."""

    def answer(self, case: RoutingCase, reference: Reference, document: str) -> Answer: ...


class Router(Protocol):
    """Takes the decision. A classical or fixed router answers at once, a learned one in batches."""

    @property
    def name(self) -> str: ...

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        """Yield one decision for each case, in the order of the cases."""
        ...


class Progress(Protocol):
    """How a stage tells what it does. Stages never print."""

    def start(self, task: str, total: int | None) -> None: ...

    def advance(self, steps: int = 1) -> None: ...

    def note(self, message: str) -> None: ...


class SilentProgress:
    """For library use and tests."""

    def start(self, task: str, total: int | None) -> None:
        return None

    def advance(self, steps: int = 1) -> None:
        return None

    def note(self, message: str) -> None:
        return None
