"""The LaRA benchmark (Li et al., 2025, arXiv 2502.09977): routing cases with both routes' answers.

The released files hold failed calls, swapped file names, repeated questions and more. What they do
is mended where that is possible, counted in `Loaded.counts` where it is countable, and never
guessed: an arm that failed or is not there is missing, for its reason.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from pathlib import Path

from prerouter.core.errors import InputError
from prerouter.core.records import (
    ROUTES,
    Answer,
    AnswerModel,
    MissingReason,
    RagConfig,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.recipe.cases import LaraSource
from prerouter.sources.case_ids import case_id_of
from prerouter.sources.lara_clone import is_clone, read_clone
from prerouter.sources.lara_compact import is_compact, read_compact
from prerouter.sources.lara_records import Gathered, Prediction, Question
from prerouter.sources.loaded import Loaded
from prerouter.sources.problems import Problems

_WORD = re.compile(r"\w+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")
_PLAIN_FILE_NAME = re.compile(r"[A-Za-z0-9 _-]+\.\w+")
_READS_AS_MISSING = frozenset({"none", "nan", "null", "n/a", "false"})
_LONG_ANSWER = 10_000


def load_lara(section: LaraSource, rag: RagConfig, skip_bad: bool = False) -> Loaded:
    """Read a clone of the repository or its compact form, whichever lies at `section.path`.

    One case for each question and answer model of which a row is known by either route, even if
    both calls failed; one reference for each question of these; one answer for each case and route.
    `own_models` have a case for each question, and no answers.
    Question ids are the same in both forms. `document.tokens` is published with the compact form
    and estimated from the text's length for a clone. Documents whose text is there are listed and
    their bodies kept.

    Raises InputError where the folder is neither form, and CombinedError with the file and line of
    every unreadable row; with `skip_bad` those rows are rejects instead. Predictions that hold
    another ground truth than their question are always set aside as rejects.
    """
    root = section.path
    problems = Problems(skip_bad)
    if is_compact(root):
        gathered = read_compact(root, section.head_characters, problems)
    elif is_clone(root):
        gathered = read_clone(root, section.head_characters, problems)
    else:
        raise _neither_form(root)
    problems.stop(str(root))
    models = section.own_models or _choose_models(section, gathered)
    return _assemble(gathered, models, section, rag)


def _neither_form(root: Path) -> InputError:
    inner = sorted(path for path in root.glob("*") if path.is_dir() and is_clone(path))
    return InputError(
        str(root),
        "is no LaRA data" if root.is_dir() else "is no folder",
        "a clone of the repository (datasets/, evaluation/prediction/) or its compact form "
        "(queries.jsonl.gz, predictions/)",
        f"did you mean {inner[0]}?" if inner else "set cases.path",
    )


def _choose_models(section: LaraSource, gathered: Gathered) -> tuple[AnswerModel, ...]:
    known = sorted({model for model, _, _ in gathered.answers})
    if not known:
        raise InputError(
            str(section.path), "holds no predictions", next_step="check the folder's content"
        )
    for name in known:
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise InputError(
                str(section.path),
                f"has predictions of {name!r}, a name that can't be written as text",
                "names of folders and files in UTF-8",
                "rename it",
            )
    for key, names in (
        ("answer_models", section.answer_models or ()),
        ("context_windows", tuple(section.context_windows)),
    ):
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else ""
                raise InputError(
                    str(section.path),
                    f"cases.{key} names {name!r}, of which there are no predictions",
                    f"there are those of {', '.join(known)}",
                    hint,
                )
    return tuple(
        AnswerModel(name=name, context_window=section.context_windows.get(name))
        for name in known
        if section.answer_models is None or name in section.answer_models
    )


def _chosen(section: LaraSource, gathered: Gathered) -> list[Question]:
    """All questions, or the sample asked for: ids are hashes, so their order is by chance."""
    of_length = [
        id_
        for id_, question in gathered.questions.items()
        if section.context_lengths is None or question.stratum.length in section.context_lengths
    ]
    sample = set(sorted(of_length)[: section.questions])
    return [question for id_, question in gathered.questions.items() if id_ in sample]


def _assemble(
    gathered: Gathered, models: tuple[AnswerModel, ...], section: LaraSource, rag: RagConfig
) -> Loaded:
    loaded = Loaded(documents=gathered.files, bodies=gathered.bodies)
    loaded.rejects = gathered.problems.rejects
    answers: dict[tuple[str, str], dict[Route, Prediction]] = {}
    published = set() if section.own_models else {model.name for model in models}
    for (model, question_id, route), prediction in gathered.answers.items():
        if model in published:
            answers.setdefault((question_id, model), {})[route] = prediction
    questions: list[Question] = []
    chosen = _chosen(section, gathered)
    for question in chosen:
        profile = gathered.profiles[question.document_id]
        asked = False
        for answer_model in models:
            arms = answers.get((question.id, answer_model.name))
            if arms is None and not section.own_models:
                continue
            asked = True
            case = RoutingCase(
                case_id=case_id_of(question.id, answer_model),
                question_id=question.id,
                group_id=question.document_id,
                question=question.question,
                task_type=question.stratum.level if section.task_type == "level" else None,
                document=profile,
                answer_model=answer_model,
                rag=rag,
            )
            loaded.cases.append(case)
            if arms is not None:
                loaded.answers += [
                    _answer(case.case_id, route, arms.get(route, MissingReason.NOT_GIVEN))
                    for route in ROUTES
                ]
        if asked:
            questions.append(question)
            body = gathered.bodies.get(question.document_id)
            loaded.references.append(_reference(question, body))
    counts = Counter(gathered.counts)
    counts["questions_without_any_answer"] = len(chosen) - len(questions)
    counts["questions_not_in_the_sample"] = len(gathered.questions) - len(chosen)
    _count_questions(questions, loaded, counts)
    _count_answers(loaded, counts)
    titles = Counter(
        profile.title for profile in gathered.profiles.values() if profile.title is not None
    )
    counts["titles_on_several_files"] = sum(count > 1 for count in titles.values())
    counts["files_sharing_a_title"] = sum(count for count in titles.values() if count > 1)
    counts["rows_rejected"] = len(loaded.rejects)
    loaded.counts = {name: counts[name] for name in sorted(counts)}
    return loaded


def _answer(case_id: str, route: Route, prediction: Prediction) -> Answer:
    if isinstance(prediction, MissingReason):
        return Answer(case_id=case_id, route=route, missing=prediction)
    return Answer(case_id=case_id, route=route, text=prediction)


def _reference(question: Question, body: str | None) -> Reference:
    answerable = question.stratum.level != "hallucination"
    annotations = {"raw_type": question.raw_type, "order": question.order}
    if question.rights is not None:
        annotations["rights"] = question.rights
    if body is not None and _is_novel_comparison(question) and _names_a_stranger(question, body):
        annotations["names_not_in_text"] = "yes"
    return Reference(
        question_id=question.id,
        answer=question.ground_truth,
        answerable=answerable,
        level=question.stratum.level,
        context_length=question.stratum.length,
        annotations=annotations,
    )


def _is_novel_comparison(question: Question) -> bool:
    return question.stratum.type == "novel" and question.stratum.level == "comparison"


def _names_a_stranger(question: Question, body: str) -> bool:
    """Whether a capitalised word of the question, past its first, stands nowhere in the text.

    LaRA renamed the people in its novels and, for most comparisons, not in the questions.
    """
    words = _WORD.findall(_POSSESSIVE.sub("", question.question))[1:]
    known = set(_WORD.findall(body))
    return any(word[0].isupper() and len(word) > 1 and word not in known for word in words)


def _count_questions(questions: list[Question], loaded: Loaded, counts: Counter[str]) -> None:
    counts["questions"] = len(questions)
    counts["comparisons_placed_by_two_parts"] = sum("," in q.order for q in questions)
    counts["questions_placed_in_the_whole_document"] = sum(q.order == "full" for q in questions)
    counts["questions_with_another_type_name"] = sum(
        q.raw_type != q.stratum.type for q in questions
    )
    counts["novel_comparisons_not_renamed"] = sum(
        _is_novel_comparison(q) and not q.raw_type.endswith("_fake") for q in questions
    )
    counts["novel_comparisons_with_names_not_in_text"] = sum(
        "names_not_in_text" in reference.annotations for reference in loaded.references
    )
    texts = Counter(q.question for q in questions)
    counts["questions_sharing_their_text"] = sum(n for n in texts.values() if n > 1)
    in_files = Counter((q.document_id, q.question) for q in questions)
    counts["file_and_question_collisions"] = sum(n - 1 for n in in_files.values())
    files = {q.file for q in questions}
    counts["file_names_with_unusual_characters"] = sum(
        _PLAIN_FILE_NAME.fullmatch(name) is None for name in files
    )


def _count_answers(loaded: Loaded, counts: Counter[str]) -> None:
    counts["cases"] = len(loaded.cases)
    counts["documents"] = len({case.document.document_id for case in loaded.cases})
    counts["answer_models"] = len({case.answer_model.name for case in loaded.cases})
    case_of = {case.case_id: case for case in loaded.cases}
    outcomes: dict[tuple[str, str, Route], list[bool]] = {}
    for name in ("arms_call_failed", "arms_not_given", "arms_empty"):
        counts[name] = 0
    for answer in loaded.answers:
        case = case_of[answer.case_id]
        if answer.missing is not None:
            counts[f"arms_{answer.missing.value}"] += 1
        key = (case.answer_model.name, case.document.document_id, answer.route)
        outcomes.setdefault(key, []).append(answer.missing is MissingReason.CALL_FAILED)
        text = answer.text or ""
        counts["answers_with_outer_white_space"] += text != text.strip()
        counts["answers_that_read_as_missing"] += text.strip().casefold() in _READS_AS_MISSING
        counts["answers_over_10000_characters"] += len(text) > _LONG_ANSWER
        if answer.route is Route.RAG:
            counts["rag_answers_that_say_chunk"] += "chunk" in text.casefold()
    counts["documents_that_always_failed_for_a_model_and_route"] = sum(
        all(failed) for failed in outcomes.values() if len(failed) > 1
    )
