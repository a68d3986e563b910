"""The guideline as explicit rules over the metadata: a router, and the stand-in teacher.

Pre-Route's four dimensions (Chen et al., 2026, arXiv 2605.10235, section 1) turned into rules that
need no model. The cue words and thresholds are ours: ordinary English cues, some of them adjusted
while the shipped sample was made, so that its agreement with the sample's labels is no held-out
figure. Every output names it `guideline`, so that nobody takes its traces for a model's.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import jinja2

from prerouter.core.records import Decision, Rationale, Route, RoutingCase, Step

NAME = "guideline"

Spread = Literal["local", "fragmented", "dispersed"]

# A superlative asks over everything; these words only end like one.
_NO_SUPERLATIVE = (
    "arr|bequ|cont|conqu|dig|earn|for|harv|hon|inter|inv|lat|manif|mod|near|pri|prot|requ|sugg|temp"
)
_DISPERSED = re.compile(
    rf"\b(?:(?!(?:{_NO_SUPERLATIVE})est\b)\w{{3,}}est"
    r"|most|least|best|worst|compar\w+|contrast\w*|differences? between|similarit\w+|versus|vs"
    r"|total|altogether|overall|together|average|in all|how many (?:of|different)|all|every|each"
    r"|both|across|throughout|over (?:the years|time|the course)|trends?|develop\w*|evol\w+|history"
    r"|summar\w+|list|outline|themes?|main (?:points?|ideas?)|rank\w*)\b"
)
_FRAGMENTED = re.compile(
    r"\b(?:why|expla\w+|reasons?|causes?|because|lead|led|leads|effects?|impact|consequences?"
    r"|impl(?:y|ies|ied)|infer\w*|relat\w+|motiv\w+|origin|past|before|after|chang\w+|differ\w*"
    r"|by how (?:many|much)|how (?:many|much) (?:more|less|fewer)|than|between"
    r"|gains?|gained|lose|loses|lost|increas\w+|decreas\w+|grow\w*|grew)\b"
)
# What a task type says, where one is given: LaRA's four levels and usual names of benchmarks.
_TASKS: dict[str, Spread] = {
    "location": "local",
    "hallucination": "local",
    "extraction": "local",
    "single-document qa": "local",
    "reasoning": "fragmented",
    "multi-hop": "fragmented",
    "multi-document qa": "fragmented",
    "comparison": "dispersed",
    "comp": "dispersed",
    "summary": "dispersed",
    "summarisation": "dispersed",
    "summarization": "dispersed",
    "aggregation": "dispersed",
}
# A question longer than this asks for more than one thing.
_LONG_QUESTION_WORDS = 25
# The share of the document that the chunks must hold for them to be trusted with such evidence.
_ENOUGH_SHARE: dict[Spread, float] = {"local": 0.0, "fragmented": 0.5, "dispersed": 0.95}
_MARGIN = 0.15
# Up to here a document that passes the window is cut so little that most evidence stays.
_OVERFLOW: dict[Spread, float] = {"local": 1.0, "fragmented": 1.0, "dispersed": 1.25}
_SMALL_BILLIONS = 8.0
# Beyond this share of its window, a small model is taken to lose what lies in the middle.
_SMALL_FILL = 0.75
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*b(?![a-z])")


@dataclass(frozen=True)
class Judgement:
    """What the rules find, before it is put into words. Shares are of 1; None is unknown."""

    spread: Spread
    fill: float | None
    share: float | None
    model: Literal["thinking", "small", "plain"]
    route: Route
    borderline: bool

    @property
    def fits(self) -> bool:
        return self.fill is None or self.fill <= 1

    @property
    def nearly_fits(self) -> bool:
        """Fits, or is cut so little that the rules read it all the same."""
        return self.fill is None or self.fill <= _OVERFLOW[self.spread]

    @property
    def enough(self) -> bool:
        return self.share is None or self.share >= _ENOUGH_SHARE[self.spread]


def wanted(case: RoutingCase) -> Spread:
    """How the wanted information lies in the document, by task type if known, else by cue words."""
    if case.task_type is not None:
        known = _TASKS.get(case.task_type.strip().casefold())
        if known:
            return known
    question = case.question.casefold()
    if _DISPERSED.search(question):
        return "dispersed"
    if _FRAGMENTED.search(question) or len(question.split()) > _LONG_QUESTION_WORDS:
        return "fragmented"
    return "local"


def assess(case: RoutingCase) -> Judgement:
    """Apply the decision rules, in their order; RAG where both routes would do.

    1. Chunks that can hold enough of the document for such evidence: RAG.
    2. Unknown fit of document and window: LC for dispersed evidence, else RAG.
    3. A document that the window cuts by more than a little: RAG.
    4. Fragmented evidence in a window that a small model would fill: RAG.
    5. Else LC.
    """
    spread = wanted(case)
    tokens, window = case.document.tokens, case.answer_model.context_window
    fill = tokens / window if tokens is not None and window is not None else None
    held = case.rag.top_k * case.rag.chunk_tokens
    share = min(1.0, held / max(tokens, 1)) if tokens is not None else None
    model = _capability(case)
    needed = _ENOUGH_SHARE[spread]
    crowded = fill is not None and fill > _SMALL_FILL and model == "small"
    if share is not None and share >= needed:
        route = Route.RAG
    elif fill is None:
        route = Route.LC if spread == "dispersed" else Route.RAG
    elif fill > _OVERFLOW[spread] or (spread == "fragmented" and crowded):
        route = Route.RAG
    else:
        route = Route.LC
    near = fill is not None and abs(fill - 1) < _MARGIN
    near = near or (spread != "local" and share is not None and abs(share - needed) < _MARGIN)
    return Judgement(spread, fill, share, model, route, near or spread == "fragmented")


def _capability(case: RoutingCase) -> Literal["thinking", "small", "plain"]:
    if case.answer_model.thinking:
        return "thinking"
    sizes = _SIZE.findall(case.answer_model.name.casefold().replace("-", " ").replace("_", " "))
    return "small" if sizes and float(sizes[0]) <= _SMALL_BILLIONS else "plain"


def judge(case: RoutingCase) -> tuple[Rationale, Route]:
    """The decision, and its six steps and reflection in one clause each (`guideline.jinja`)."""
    found = assess(case)
    template = _template()
    context = template.new_context(
        {
            "spread": found.spread,
            "tokens": case.document.tokens,
            "window": case.answer_model.context_window,
            "fill": None if found.fill is None else round(100 * found.fill),
            "fits": found.fits,
            "nearly_fits": found.nearly_fits,
            "top_k": case.rag.top_k,
            "share": None if found.share is None else round(100 * found.share),
            "enough": found.enough,
            "model": found.model,
            "route": found.route.value,
            "fallback": (Route.RAG if found.route is Route.LC else Route.LC).value,
            "borderline": found.borderline,
        }
    )
    clauses = {name: "".join(block(context)) for name, block in template.blocks.items()}
    rationale = Rationale(
        steps={step: clauses[step.value] for step in Step}, reflection=clauses["reflection"]
    )
    return rationale, found.route


@cache
def guideline_hash() -> str:
    """SHA-256 (hex) over the rules and their wording: what a trace of the guideline depends on."""
    rules = resources.files("prerouter.routers").joinpath("guideline.py").read_bytes()
    return hashlib.sha256(rules + _wording().encode()).hexdigest()


def _wording() -> str:
    return resources.files("prerouter.prompts").joinpath("guideline.jinja").read_text("utf-8")


@cache
def _template() -> jinja2.Template:
    # Plain text for a model, never HTML; only figures and closed words are put in.
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701
    return environment.from_string(_wording())


class GuidelineRouter:
    """Decides by the guideline's rules, with the rationale."""

    name = NAME

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        for case in cases:
            began = time.perf_counter()
            rationale, route = judge(case)
            yield Decision(
                case_id=case.case_id,
                router=NAME,
                route=route,
                rationale=rationale,
                seconds=time.perf_counter() - began,
            )
