"""The weights of a router's folder: which they are, how many numbers they hold, and whether these
are those of the model that config.json describes. Only the headers of the files are read."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prerouter.core.errors import CheckpointError

MAX_WEIGHTS_BYTES = 64_000_000_000
MAX_HEADER_BYTES = 16_000_000
MAX_LAYERS = 1_000
MAX_CONFIG_NUMBER = 2**24
"""Above every size, count, length or token id of a model that is a router."""

# A model that is being built registers what is tied more than once.
_SLACK = 4

# Bits of one number of each type that safetensors knows.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip


def checkpoint_sha256(files: Mapping[str, str]) -> str:
    """What names a checkpoint, from file name to sha256: the hash of its weights file; of several,
    the hash of their names and hashes."""
    weights = {name: files[name] for name in sorted(files) if name.endswith(".safetensors")}
    if len(weights) == 1:
        return next(iter(weights.values()))
    lines = "".join(f"{name} {digest}\n" for name, digest in weights.items())
    return hashlib.sha256(lines.encode()).hexdigest()


def count_numbers(path: Path) -> int:
    """How many numbers a safetensors file holds, by its header.

    Raises CheckpointError where the header is too long, isn't JSON, or describes tensors that the
    file has no bytes for: whoever loads it would set memory aside for what isn't there.
    """
    size = path.stat().st_size
    if size > MAX_WEIGHTS_BYTES:
        raise CheckpointError(str(path), f"has {size} bytes", f"{MAX_WEIGHTS_BYTES} at most")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise CheckpointError(str(path), f"has a header of {length} bytes", "safetensors")
        text = file.read(length)
    try:
        header = json.loads(text)
        tensors = [header[name] for name in header if name != "__metadata__"]
        total = sum(_numbers(tensor, size - 8 - length) for tensor in tensors)
        covered = sum(tensor["data_offsets"][1] - tensor["data_offsets"][0] for tensor in tensors)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise CheckpointError(
            str(path), f"has a header that can't be read: {type(error).__name__}: {error!s:.200}"
        ) from None
    if covered != size - 8 - length:
        raise CheckpointError(str(path), "holds other bytes than its header describes")
    return total


def _numbers(tensor: Any, data_bytes: int) -> int:
    shape, (begin, end) = tensor["shape"], tensor["data_offsets"]
    if not all(type(each) is int and each >= 0 for each in (*shape, begin, end)):
        raise ValueError("a shape or an offset is no whole number")
    numbers = int(math.prod(shape))
    if not begin <= end <= data_bytes or (numbers * _BITS[tensor["dtype"]] + 7) // 8 != end - begin:
        raise ValueError("a tensor's shape and its bytes do not agree")
    return numbers


def check_config_numbers(path: Path, config: dict[str, Any]) -> None:
    """No number of a config may be one that only serves to fill the memory."""
    pending: list[tuple[str, Any]] = list(config.items())
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.items())
        elif isinstance(value, list):
            pending.extend((key, each) for each in value)
        # A rotary base is an exponent's, and fills nothing.
        elif isinstance(value, (int, float)) and not key.endswith(("theta", "base_freq", "base")):
            limit = MAX_LAYERS if re.search(r"layers?$", key) else MAX_CONFIG_NUMBER
            if not abs(value) <= limit:
                raise CheckpointError(str(path), f"{key[:80]} is {value}", f"{limit} at most")


def check_model_size(folder: Path) -> None:
    """The model that config.json describes, defaults of its type included, holds as many numbers as
    the weights do: what is missing would be made up at random, however large.

    The model is built without memory for its numbers, and no further than the weights go: no size
    in a config makes this take long.
    """
    path = folder / "config.json"
    held = sum(
        count_numbers(folder / name)
        for name in sorted(os.listdir(folder))
        if name.endswith(".safetensors")
    )
    try:
        fewest, most = _described(folder, _SLACK * held)
    except _TooLargeError:
        described = f"more than {_SLACK * held:,}"
    # A hostile config may fail anywhere in transformers; all mean the same here.
    except Exception as error:  # noqa: BLE001
        raise CheckpointError(
            str(path), f"describes no language model: {type(error).__name__}: {error!s:.300}"
        ) from None
    else:
        if fewest <= held <= most:
            return
        described = f"{fewest:,}"
    raise CheckpointError(
        str(path),
        f"describes a model of {described} numbers; the weights hold {held:,}",
        next_step="do not use this folder, or publish it again",
    )


class _TooLargeError(Exception):
    """The model needs more numbers than it was allowed."""


def _described(folder: Path, limit: int) -> tuple[int, int]:
    """The numbers of the model's parameters, and those of all that a file of it may hold: buffers,
    and what is tied written out once more. Raises _TooLargeError past `limit`."""
    import torch
    from torch.nn.modules.module import register_module_parameter_registration_hook
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    here, counted = threading.get_ident(), 0

    def count(_: torch.nn.Module, __: str, parameter: torch.nn.Parameter | None) -> None:
        nonlocal counted
        # The hook is the whole process's: other threads' models are none of its business.
        if parameter is not None and threading.get_ident() == here:
            counted += max(parameter.numel(), 1)
            if counted > limit:
                raise _TooLargeError

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    finally:
        hook.remove()
    fewest = sum(parameter.numel() for parameter in model.parameters())
    return fewest, sum(tensor.numel() for tensor in model.state_dict().values())
