"""What the passages of answers were found by, so that only answers from others are stale."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from prerouter.answering.prompted import answer_key
from prerouter.core.records import Route, RoutingCase
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.shaping import shaping_retrieval
from prerouter.runs.manifest import write_json
from prerouter.runs.stage import StageRun

LONG_RAG_JSON = "long_rag.json"
RETRIEVAL_JSON = "retrieval.json"


def retrieval_by(recipe: Recipe) -> dict[str, Any] | None:
    """What of `retrieval` decides what is found; None where nothing is searched."""
    if recipe.retrieval is None or recipe.answer is None or recipe.answer.reader == "evidence":
        return None
    return shaping_retrieval(recipe.retrieval.model_dump(mode="json"))


def found_otherwise(run: StageRun, cases: Iterable[RoutingCase]) -> set[str]:
    """The keys of answers whose passages were found otherwise than is asked for now. A change of
    that costs the other routes no answer."""
    assert run.recipe.answer is not None
    routes: set[Route] = set()
    if _kept(run, LONG_RAG_JSON) != run.recipe.answer.long_rag.model_dump(mode="json"):
        routes |= {Route.LONG_RAG}
    if _kept(run, RETRIEVAL_JSON) != retrieval_by(run.recipe):
        routes |= {Route.RAG, Route.LONG_RAG}
    return {answer_key(case.case_id, route) for case in cases for route in routes}


def adopt(run: StageRun) -> None:
    """Write down what answers of an earlier version, which left no such file, were found by: first
    of all, since a stop and another start would not know it any more."""
    path = run.folder / RETRIEVAL_JSON
    if not path.exists() and run.before is not None:
        before = run.before.sections.get("retrieval")
        write_json(path, before and shaping_retrieval(before))


def keep_finding(run: StageRun) -> None:
    """Tell what the answers that stand were found by, once those found otherwise are gone."""
    assert run.recipe.answer is not None
    write_json(run.folder / LONG_RAG_JSON, run.recipe.answer.long_rag.model_dump(mode="json"))
    write_json(run.folder / RETRIEVAL_JSON, retrieval_by(run.recipe))


def _kept(run: StageRun, file: str) -> Any:
    path = run.folder / file
    return json.loads(path.read_bytes()) if path.exists() else None
