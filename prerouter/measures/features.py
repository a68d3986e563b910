"""What the classical routers see of a case: numbers and categories from its metadata.

Pre-Route's classical baselines (Chen et al., 2026, arXiv 2605.10235, section 1) take document
length, question length, task type, document type and difficulty; difficulty is an annotation, which
no router may see, so the retrieval settings and the answer model stand in its place.
"""

from __future__ import annotations

from typing import Literal

from prerouter.core.records import MetadataSetting, RoutingCase
from prerouter.measures.words import fold, split_words

FEATURE_VERSION = 1
FEATURES: dict[str, Literal["number", "category"]] = {
    "document_tokens": "number",
    "question_words": "number",
    "window_share": "number",
    "retrieved_share": "number",
    "context_window": "number",
    "thinking": "number",
    "task_type": "category",
    "document_type": "category",
    "answer_model": "category",
}
"""Name and kind of each feature, in order. A change of any meaning raises FEATURE_VERSION."""


def case_features(
    case: RoutingCase, metadata: MetadataSetting = MetadataSetting.FULL
) -> dict[str, float | str | None]:
    """The features of a case, in the order of FEATURES; None where the metadata lack it, or the
    setting hides it: `head_only` hides document type and task type, as a prompt does.

    `window_share` is document tokens over the answer model's window; `retrieved_share` is the share
    of the document that `top_k` chunks in a row would hold, at most 1. No identifier is among them.
    Raises TypeError for anything but a RoutingCase: labels and gold answers can't come this way.
    """
    if type(case) is not RoutingCase:
        raise TypeError(f"features are made of a RoutingCase only, got {type(case).__name__}")
    tokens, window, rag = case.document.tokens, case.answer_model.context_window, case.rag
    described = metadata is not MetadataSetting.HEAD_ONLY
    retrieved = rag.top_k * (rag.chunk_tokens - rag.overlap_tokens) + rag.overlap_tokens
    return {
        "document_tokens": None if tokens is None else float(tokens),
        "question_words": float(len(split_words(fold(case.question)))),
        "window_share": None if tokens is None or window is None else tokens / window,
        "retrieved_share": min(1.0, retrieved / tokens) if tokens else None,
        "context_window": None if window is None else float(window),
        "thinking": float(case.answer_model.thinking),
        "task_type": case.task_type if described else None,
        "document_type": case.document.type if described else None,
        "answer_model": case.answer_model.name,
    }
