"""The distilled router: a small model that writes the six steps and then the route, or names the
route at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from prerouter.core.errors import CheckpointError, InputError, PrerouterError
from prerouter.core.protocols import Completion, Engine, GenerationRequest, Sampling
from prerouter.core.records import (
    ROUTES,
    Decision,
    DecisionFailure,
    Message,
    MetadataSetting,
    RagConfig,
    Route,
    RoutingCase,
    StudentMode,
)
from prerouter.engines.batches import chunk_of
from prerouter.engines.transformers import TransformersModel
from prerouter.measures.calibration import apply_temperature, from_odds
from prerouter.prompts.render import StudentForm, prompt_hash, render_student
from prerouter.prompts.trace import TraceError, parse_trace, trace_schema
from prerouter.publishing.checkpoint import ROUTER_FILE, read_router
from prerouter.publishing.threshold import Threshold
from prerouter.publishing.weights import check_model_size
from prerouter.recipe.engine import Dtype, VllmEngine
from prerouter.recipe.teach import PromptPart
from prerouter.routers.failures import call_failure, no_odds, reply_failure, second_odds

RouterEngine = Literal["transformers", "vllm"]

VLLM_CHUNK = 1024
"""Cases. vLLM fills its own batches, of some hundreds on a GPU, and empties them at each chunk."""


class LearnedRouter:
    """A router over any engine (Chen et al., 2026, arXiv 2605.10235). Public as prerouter.Router.

    It generates greedily. A reply that is no whole trace is a decision with a failure and the raw
    text, never a guess; `fallback` is what its maker advises to do then, and is not applied here.
    In mode `decide` it reads p_lc off one forward pass: how likely LC is as the next word against
    RAG, the log-odds divided by `temperature`. It is LC where p_lc is above `threshold`. Words that
    begin with different tokens are told apart by these alone: a student writes one of them and
    nothing else, so that the rest of the word follows.
    One thread at a time asks it; `prerouter serve` and the adapters see to that.
    `model` is what a price table calls the student. `without` names the parts that the traces
    lacked which it was trained on; `head_characters` and `rag` are the document heads and the
    retrieval that it was trained for. Nothing is inferred here: a router of the `generated` setting
    (router.json says which) decides from the title and types that its caller gives, best inferred
    as `prerouter profile` does.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        form: StudentForm,
        metadata: MetadataSetting,
        thinking: bool,
        max_tokens: int,
        *,
        mode: StudentMode = StudentMode.EXPLAIN,
        temperature: float = 1.0,
        threshold: float = 0.5,
        without: Sequence[PromptPart] = (),
        fallback: Route = Route.RAG,
        head_characters: int = 600,
        rag: RagConfig | None = None,
        chunk_size: int = 64,
        model: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self._name = name
        self._model = model
        self._engine = engine
        self._form = form
        self._metadata = metadata
        self._without = tuple(without)
        self._sampling = Sampling(
            max_tokens=max_tokens, schema=trace_schema(self._without), thinking=thinking
        )
        self.mode = mode
        self.checkpoint = checkpoint
        self._temperature = temperature
        self._threshold = threshold
        self._chunk_size = chunk_size
        self.fallback = fallback
        self.head_characters = head_characters
        self.rag = rag or RagConfig()

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        name: str = "student",
        batch_size: int = 16,
        dtype: Dtype = "bfloat16",
        verify: bool = True,
        mode: StudentMode | str | None = None,
        threshold: float | Threshold | None = None,
        engine: RouterEngine = "transformers",
    ) -> LearnedRouter:
        """Load a router's folder, once it has been found whole and safe (`verify`: every hash).

        `mode` is the router's usual one, the first in router.json, where it isn't given, and
        `threshold` the one that it was published with; a `Threshold` brings its temperature along.
        `engine` vllm needs the extra of that name; it makes its own batches, whatever `batch_size`
        says. Raises InputError for a threshold in another mode than `decide`, and CheckpointError,
        also where the router was trained on other prompts than this version of prerouter renders,
        or not in that mode, where the threshold was fitted to another checkpoint and where the
        model can't be loaded.
        """
        folder = Path(folder)
        config = read_router(folder, verify=verify)
        rendered = prompt_hash(config.prompt_form)
        if config.prompt_hash != rendered:
            raise CheckpointError(
                f"{folder}/{ROUTER_FILE}",
                f"its prompt has hash {config.prompt_hash[:12]}…",
                f"{rendered[:12]}…, the prompt that this version of prerouter renders",
                "install the version of prerouter that published it, or train again",
            )
        mode = StudentMode(mode) if mode else config.modes[0]
        if mode not in config.modes:
            raise CheckpointError(
                f"{folder}/{ROUTER_FILE}",
                f"the router was not trained to {mode}",
                ", ".join(config.modes),
                f"train it with train.mix: {{{mode}: 1}}",
            )
        if threshold is not None and mode is not StudentMode.DECIDE:
            raise InputError(
                "threshold",
                f"is given, and the router is to {mode}, which takes none",
                "mode decide",
                'add --mode decide (mode="decide"), or leave the threshold out',
            )
        temperature = config.temperature
        if isinstance(threshold, Threshold):
            threshold.check(str(folder), config.checkpoint)
            temperature, threshold = threshold.temperature, threshold.threshold
        return cls(
            name,
            _load_model(folder, dtype, batch_size, engine),
            config.prompt_form,
            config.metadata,
            config.thinking,
            config.max_tokens,
            mode=mode,
            temperature=temperature,
            threshold=config.threshold if threshold is None else threshold,
            without=config.without,
            fallback=config.fallback,
            head_characters=config.head_characters,
            rag=config.rag,
            chunk_size=VLLM_CHUNK if engine == "vllm" else chunk_of(batch_size),
            model=config.base_model,
            checkpoint=config.checkpoint,
        )

    @property
    def name(self) -> str:
        return self._name

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        """Yield one decision for each case, in the order of the cases, chunk by chunk."""
        explain = self.mode is StudentMode.EXPLAIN
        for start in range(0, len(cases), self._chunk_size):
            chunk = cases[start : start + self._chunk_size]
            yield from self._explain(chunk) if explain else self._decide(chunk)

    def decide(self, cases: RoutingCase | Sequence[RoutingCase]) -> list[Decision]:
        """Decisions for one case or several."""
        return list(self.route([cases] if isinstance(cases, RoutingCase) else cases))

    def count_text_tokens(self, text: str) -> int:
        """Length of a plain text, such as a document's body, in the router's own tokens."""
        empty = self._engine.count_tokens([Message(role="user", content="")])
        return self._engine.count_tokens([Message(role="user", content=text)]) - empty

    def _requests(self, cases: Sequence[RoutingCase]) -> list[GenerationRequest]:
        return [
            GenerationRequest(render_student(case, self._form, self._metadata, self.mode))
            for case in cases
        ]

    def _decide(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        scores = self._engine.score_choices(
            self._requests(cases), [*ROUTES], self._sampling.thinking, first_tokens=True
        )
        for case, scored in zip(cases, scores, strict=True):
            p_lc, route, failure, raw = None, None, None, scored.error
            if scored.error is not None:
                failure = call_failure(scored.error)
            elif (odds := second_odds(scored.log_probabilities)) is None:
                failure, raw = DecisionFailure.UNPARSABLE, no_odds(scored.log_probabilities)
            else:
                p_lc = self._p_lc(odds)
                route = Route.LC if p_lc > self._threshold else Route.RAG
            yield Decision(
                case_id=case.case_id,
                router=self._name,
                route=route,
                failure=failure,
                p_lc=p_lc,
                raw=raw,
                model=self._model,
                calls=scored.calls,
                prompt_tokens=scored.prompt_tokens,
                seconds=scored.seconds,
            )

    def _p_lc(self, odds: float) -> float:
        """LC against RAG alone: what else the model might have said is left out."""
        # By the same steps as `calibrate` and the routing table take, rounding and all.
        return float(apply_temperature([from_odds(odds)], self._temperature)[0])

    def _explain(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        requests = self._requests(cases)
        waiting: dict[int, Completion] = {}
        due = 0
        for index, completion in self._engine.generate(requests, self._sampling):
            waiting[index] = completion
            while due in waiting:
                yield self._decision(cases[due], waiting.pop(due))
                due += 1

    def _decision(self, case: RoutingCase, completion: Completion) -> Decision:
        route, failure, rationale, raw = None, None, None, None
        try:
            parsed = parse_trace(completion.text, completion.finish_reason, without=self._without)
            route, rationale = parsed.decision, parsed.rationale
        except TraceError as error:
            failure = reply_failure(error.reason, completion.error)
            raw = completion.error or completion.text
        return Decision(
            case_id=case.case_id,
            router=self._name,
            route=route,
            failure=failure,
            rationale=rationale,
            raw=raw,
            model=self._model,
            calls=1,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            seconds=completion.seconds,
        )


def _load_model(folder: Path, dtype: Dtype, batch_size: int, engine: RouterEngine) -> Engine:
    check_model_size(folder)
    try:
        if engine == "vllm":
            from prerouter.engines.vllm import VllmModel

            return VllmModel(VllmEngine(kind="vllm", model=str(folder), dtype=dtype))
        return TransformersModel(str(folder), dtype=dtype, batch_size=batch_size)
    except PrerouterError:
        raise
    # What a stranger's files make transformers, torch or tokenizers raise means one thing here.
    except Exception as error:
        raise CheckpointError(
            str(folder), f"can't be loaded: {type(error).__name__}: {error!s:.300}"
        ) from error
