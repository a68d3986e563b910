"""From a recipe's section to vLLM's own engine arguments."""

from __future__ import annotations

import dataclasses
import difflib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prerouter.core.errors import CombinedError, MissingDependencyError, RecipeError
from prerouter.engines.embedded import resolve_model
from prerouter.recipe.engine import VllmArguments


def engine_arguments(section: VllmArguments) -> dict[str, Any]:
    """Keyword arguments of vLLM's `LLM`, which hands them on to its EngineArgs.

    Raises MissingDependencyError without vLLM; CombinedError for names that the installed vLLM
    doesn't know, each with the nearest that it does.
    """
    _import_vllm()
    from vllm import EngineArgs
    from vllm.platforms import current_platform

    known = [field.name for field in dataclasses.fields(EngineArgs)]
    unknown = sorted(set(section.arguments) - set(known))
    if unknown:
        raise CombinedError([_unknown(name, known) for name in unknown])
    arguments = dict(section.arguments)
    if current_platform.is_cpu():
        # The CPU's generator can't take up a seeded request in the middle: with prompts read
        # in parts, a seed ends the engine.
        arguments.setdefault("enable_chunked_prefill", False)
    return {
        "model": resolve_model(section.model),
        "revision": section.revision,
        "dtype": section.dtype,
        "max_model_len": section.max_model_len,
        "tensor_parallel_size": section.tensor_parallel_size,
        "pipeline_parallel_size": section.pipeline_parallel_size,
        "quantization": section.quantization,
        "trust_remote_code": False,
        **arguments,
    }


def _unknown(name: str, known: list[str]) -> RecipeError:
    near = difflib.get_close_matches(name, known, n=1)
    return RecipeError(
        f"engine.arguments.{name}",
        "the installed vLLM knows no such argument",
        "the fields of its EngineArgs",
        f"did you mean {near[0]}?" if near else "remove it",
    )


def _import_vllm() -> None:
    # vLLM writes its log to standard output, which belongs to the command line; its worker
    # processes learn of a setting by the environment only.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    # The first import of vLLM keeps an exception, and with it every frame that called it. In a
    # thread of its own none of ours is among them, and the engine's memory can be freed.
    with ThreadPoolExecutor(1) as executor:
        executor.submit(_import).result()


def _import() -> None:
    try:
        from vllm import LLM  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(error.name or "vllm", "vllm") from None
