"""What each answer is made of, so that only answers from something else are stale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prerouter.answering.prompted import answer_key
from prerouter.core.records import DocumentFile, Reference, Route, RoutingCase
from prerouter.prompts.answer import render_lc, render_rag
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.recipe.shaping import shaping_retrieval
from prerouter.runs.made_of import digest_of, keep_made_of, keeps_made_of
from prerouter.runs.stage import StageRun


def retrieval_of(recipe: Recipe) -> dict[Route, RetrievalSection]:
    """How each route that retrieves does so."""
    assert recipe.retrieval is not None
    assert recipe.answer is not None
    found = {Route.RAG: recipe.retrieval}
    if Route.LONG_RAG in recipe.answer.routes:
        units = recipe.answer.long_rag.model_dump(exclude={"top_k"})
        found[Route.LONG_RAG] = recipe.retrieval.model_copy(update=units)
    return found


def retrieval_by(recipe: Recipe) -> dict[str, Any] | None:
    """What of `retrieval` decides what is found; None where nothing is searched."""
    if recipe.retrieval is None or recipe.answer is None or recipe.answer.reader == "evidence":
        return None
    return shaping_retrieval(recipe.retrieval.model_dump(mode="json"))


@dataclass(frozen=True)
class Asking:
    """All that is to be answered: references by question, files by document."""

    cases: list[RoutingCase]
    references: dict[str, Reference]
    files: dict[str, DocumentFile]

    @classmethod
    def of(cls, run: StageRun) -> Asking:
        return cls(
            list(run.read("cases/rows.jsonl", RoutingCase)),
            {r.question_id: r for r in run.read("cases/references.jsonl", Reference)},
            {f.document_id: f for f in run.read("cases/documents.jsonl", DocumentFile)},
        )

    def reference(self, case: RoutingCase) -> Reference:
        known = self.references.get(case.question_id)
        return known or Reference(question_id=case.question_id)


def made_of(
    asking: Asking,
    routes: Iterable[Route],
    found_by: Mapping[str, Any] | None,
    long_rag: Mapping[str, Any],
) -> dict[str, str]:
    """A digest for each answer, in the order of the cases, of what it depends on beside the section
    `answer`: question, document and answering model; on a route that retrieves, how. Who reads the
    whole document knows nothing of `rag`.

    `found_by` is `retrieval_by`, without which the evidence reader answers.
    """
    routes, found = tuple(routes), {}
    for case in asking.cases:
        reference, file = asking.reference(case), asking.files.get(case.document.document_id)
        model, rag = (it.model_dump(mode="json") for it in (case.answer_model, case.rag))
        for route in routes:
            parts: list[object] = [file and file.sha256, model]
            if found_by is None:
                parts += [case.model_dump(mode="json"), reference.model_dump(mode="json")]
            else:
                render = render_lc if route is Route.LC else render_rag
                messages = render(case, (), reference.choices)
                parts += [message.model_dump(mode="json") for message in messages]
            if found_by is not None and route is Route.RAG:
                parts += [rag, found_by]
            if found_by is not None and route is Route.LONG_RAG:
                # It has units and a top_k of its own.
                parts += [{**rag, **found_by, **long_rag}]
            found[answer_key(case.case_id, route)] = digest_of(*parts)
    return found


def made_now(asking: Asking, recipe: Recipe) -> dict[str, str]:
    """`made_of` as the recipe asks for it."""
    assert recipe.answer is not None
    long_rag = recipe.answer.long_rag.model_dump(mode="json")
    return made_of(asking, recipe.routes, retrieval_by(recipe), long_rag)


def adopt(run: StageRun, asking: Asking) -> None:
    """Write down what answers of an earlier version were made of, which told less of it: the cases
    are the same, or the stage had begun anew, but passages may have been found otherwise."""
    if run.before is None or keeps_made_of(run.folder):
        return
    told = run.before.sections
    found_by = shaping_retrieval(told["retrieval"]) if told.get("retrieval") else None
    long_rag = told.get("answer.long_rag") or {}
    keep_made_of(run.folder, made_of(asking, run.recipe.routes, found_by, long_rag))
