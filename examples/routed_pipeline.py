"""A RAG pipeline and a long-context call, joined by a router, over the documents that ship.

    python examples/routed_pipeline.py                 # the router of `make quickstart`
    python examples/routed_pipeline.py --questions 12

Where no router has been published yet, the guideline's rules decide, and the first line says so.
Both ways to answer are real but for the reader: it finds the reference's passages in what it is
shown and declines otherwise. Put your own model in its place, in `Pipeline.read`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prerouter import Router
from prerouter.answering.passages import DocumentBody, holds
from prerouter.core.errors import PrerouterError
from prerouter.core.records import AnswerModel, RagConfig, Reference, Route, RoutingCase, Span
from prerouter.measures.retrieval import merge
from prerouter.prompts.answer import DECLINE
from prerouter.recipe.cases import SampleSource
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.retrieval.chunking import word_starts
from prerouter.retrieval.retriever import Retriever
from prerouter.routers.guideline import GuidelineRouter
from prerouter.serving.served import ServedRouter, as_served
from prerouter.sources.sample import load_sample

READER = AnswerModel(name="reader-16k", context_window=16_384)
QUICKSTART = Path("runs/quickstart/publish/router")


@dataclass(frozen=True)
class Reply:
    """An answer, and how many tokens of the document were read for it."""

    text: str
    tokens: int


class Pipeline:
    """Answers a case over its document by either route."""

    def __init__(self, bodies: Mapping[str, str], references: Mapping[str, Reference]) -> None:
        self._bodies = bodies
        self._references = references
        self._retriever = Retriever(RetrievalSection(vector_ratio=0.0, reranker=None))

    def rag(self, case: RoutingCase) -> Reply:
        """The passages that BM25 finds, and nothing else, are read."""
        document = self._bodies[case.document.document_id]
        passages = self._retriever.retrieve(case.question, document, case.rag)
        return self.read(case, document, [passage.span for passage in passages])

    def long_context(self, case: RoutingCase) -> Reply:
        """The whole document is read, or as much of its two ends as the window holds."""
        document = self._bodies[case.document.document_id]
        spans, _ = DocumentBody(document, word_starts).long_context(
            case.answer_model.context_window
        )
        return self.read(case, document, spans)

    def read(self, case: RoutingCase, document: str, spans: Sequence[Span]) -> Reply:
        """Here your model answers `case.question` from these spans of the document."""
        shown = merge(spans)
        evidence = self._references[case.question_id].evidence
        found = [piece.text for piece in evidence if holds(document, shown, piece)]
        return Reply(" ".join(found) or DECLINE, DocumentBody(document, word_starts).count(spans))

    def found_all(self, case: RoutingCase, reply: Reply) -> bool:
        """Whether the answer holds all that the reference rests on."""
        evidence = self._references[case.question_id].evidence
        return all(piece.text in reply.text for piece in evidence)


def choose_router(folder: Path) -> ServedRouter:
    """The router of `folder`; where nothing lies there, the guideline's rules."""
    if folder.exists():
        return as_served(Router.from_pretrained(folder))
    return as_served(GuidelineRouter())


def load_cases(
    sample: Path, served: ServedRouter, count: int
) -> tuple[list[RoutingCase], Pipeline]:
    """`count` answerable questions, spread over the sample, and the pipeline over its documents."""
    source = SampleSource(
        source="sample",
        path=sample,
        task_type="level",
        answer_models=(READER,),
        head_characters=served.head_characters,
    )
    # The sample's documents are small, and so are its chunks.
    loaded = load_sample(source, RagConfig(chunk_tokens=150, overlap_tokens=30, top_k=5))
    references = {reference.question_id: reference for reference in loaded.references}
    cases = [case for case in loaded.cases if references[case.question_id].evidence]
    chosen = cases[:: max(1, len(cases) // count)][:count]
    return chosen, Pipeline(loaded.bodies, references)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--router", type=Path, default=QUICKSTART, help="a published folder")
    parser.add_argument("--sample", type=Path, default=Path("data/sample"))
    parser.add_argument("--questions", type=int, default=8)
    options = parser.parse_args(arguments)
    try:
        served = choose_router(options.router)
        cases, pipeline = load_cases(options.sample, served, max(1, options.questions))
    except PrerouterError as error:
        raise SystemExit("\n".join(f"error: {line}" for line in error.lines)) from None

    print(f"router: {served.identity.name}\n")
    routed_tokens = all_tokens = right = 0
    for case, decision in zip(cases, served.router.route(cases), strict=True):
        route = decision.route or served.fallback
        reply = pipeline.long_context(case) if route is Route.LC else pipeline.rag(case)
        undecided = f" (fallback: {decision.failure})" if decision.failure else ""
        print(f"{case.question}\n  {route.value}{undecided}, {reply.tokens} tokens read")
        print(f"  {reply.text[:160]}\n")
        right += pipeline.found_all(case, reply)
        routed_tokens += reply.tokens
        all_tokens += pipeline.long_context(case).tokens
    print(f"{right} of {len(cases)} answers hold all their evidence.")
    print(f"{routed_tokens} tokens read; always reading it all takes {all_tokens}.")


if __name__ == "__main__":
    main()
