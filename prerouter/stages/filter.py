"""filter: rejection sampling. Kept are the traces whose decision is the ideal label."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np

from prerouter.core.errors import StageError
from prerouter.core.records import (
    ROUTES,
    Label,
    Reference,
    Reject,
    Route,
    RoutingCase,
    Split,
    SplitAssignment,
    Step,
    Trace,
)
from prerouter.measures.traces import NO_PART, SAME_KEY, trace_digest, trace_key
from prerouter.prompts.trace import trace_steps
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.teach import FilterSection
from prerouter.runs.rows import file_sha256, read_lines
from prerouter.runs.stage import Stage, StageRun
from prerouter.sources.problems import Problems
from prerouter.sources.traces import missing_traces, read_traces


class FilterReason(StrEnum):
    """Why a trace is not learnt from."""

    DISAGREES = "disagrees"
    NO_LABEL = "no_label"
    UNKNOWN_CASE = "unknown_case"
    TEST_CASE = "test_case"
    SAME_TRACE = "same_trace"
    ENOUGH_FOR_CASE = "enough_for_case"
    SAME_KEY = SAME_KEY
    WRONG_FORM = "wrong_form"
    BALANCED_OUT = "balanced_out"


# Which steps a trace has, and whether it has a reflection.
TraceForm = tuple[frozenset[Step], bool]


def _form(trace: Trace) -> TraceForm:
    return frozenset(trace.rationale.steps), trace.rationale.reflection is not None


def student_form(recipe: Recipe) -> TraceForm | None:
    """The form of the traces that the recipe's student is trained on; None where it trains none."""
    if recipe.train is None:
        return None
    without = recipe.teach.prompt.without if recipe.teach else ()
    return frozenset(trace_steps(without)), "reflection" not in without


def _parts(form: TraceForm | None) -> list[str] | None:
    """The parts of a trace of that form, in their order."""
    if form is None:
        return None
    steps, reflection = form
    return [step.value for step in Step if step in steps] + ["reflection"] * reflection


class Sieve:
    """Tells of each trace why it is refused (Chen et al., 2026, arXiv 2605.10235, rejection
    sampling).

    `labels` and `sides` go by case id; a case whose side is test is refused here too, whatever the
    teacher was given. Of a case at most `per_case` traces with different texts are kept, the
    first ones. `form`, where given, is the only one that the student can learn.
    """

    def __init__(
        self,
        labels: Mapping[str, Route],
        sides: Mapping[str, Split],
        per_case: int,
        form: TraceForm | None = None,
    ) -> None:
        self._form = form
        self._seen: set[str] = set()
        self._labels = labels
        self._sides = sides
        self._per_case = per_case
        self._kept: dict[str, tuple[bytes, ...]] = {}

    def reason(self, trace: Trace) -> FilterReason | None:
        """Why `trace`, which comes after those asked about before, is refused; None to keep it."""
        case_id = trace.case_id
        key = trace_key(trace)
        if key in self._seen:
            return FilterReason.SAME_KEY
        self._seen.add(key)
        if self._form is not None and _form(trace) != self._form:
            return FilterReason.WRONG_FORM
        side = self._sides.get(case_id)
        if side is None:
            return FilterReason.UNKNOWN_CASE
        if side is Split.TEST:
            return FilterReason.TEST_CASE
        label = self._labels.get(case_id)
        if label is None:
            return FilterReason.NO_LABEL
        if label is not trace.decision:
            return FilterReason.DISAGREES
        kept = self._kept.get(case_id, ())
        if len(kept) >= self._per_case:
            return FilterReason.ENOUGH_FOR_CASE
        # Texts matter only where a case may keep several: one digest less for each record.
        digest = trace_digest(trace) if self._per_case > 1 else b""
        if digest and digest in kept:
            return FilterReason.SAME_TRACE
        self._kept[case_id] = (*kept, digest)
        return None


def balance(kept: Mapping[str, Route], seed: int) -> set[str]:
    """Keys to leave out so that both routes have as many traces: a seeded choice among the
    larger one. `kept` maps a trace's key to its decision, for the training split."""
    by_route: dict[Route, list[str]] = {route: [] for route in ROUTES}
    for key in sorted(kept):
        by_route[kept[key]].append(key)
    fewest = min(len(keys) for keys in by_route.values())
    generator = np.random.default_rng(seed)
    left_out: set[str] = set()
    for keys in by_route.values():
        if len(keys) > fewest:
            left_out.update(generator.choice(keys, len(keys) - fewest, replace=False).tolist())
    return left_out


class Yield:
    """Counts of agreeing and all traces by label, level and answer model."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0])
        )

    def count(self, groups: Mapping[str, str], agrees: bool) -> None:
        for name, value in groups.items():
            entry = self._counts[name][value]
            entry[0] += agrees
            entry[1] += 1

    def report(self) -> dict[str, dict[str, dict[str, float]]]:
        return {
            name: {
                value: {"agree": agree, "of": total, "yield": round(agree / total, 4)}
                for value, (agree, total) in sorted(entries.items())
            }
            for name, entries in self._counts.items()
        }


def _run(run: StageRun) -> None:
    section = run.recipe.filter
    assert section is not None
    side_of = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    levels = {
        r.question_id: r.level or "unknown" for r in run.read("cases/references.jsonl", Reference)
    }
    sides: dict[str, Split] = {}
    groups: dict[str, tuple[str, str]] = {}
    for case in run.read("cases/rows.jsonl", RoutingCase):
        sides[case.case_id] = run.recipe.learning_side(case, side_of[case.question_id])
        groups[case.case_id] = (
            levels.get(case.question_id, "unknown"),
            case.answer_model.name,
        )
    labels = {label.case_id: label.route for label in run.read("label/rows.jsonl", Label)}
    left_out = _balanced_out(run, section, labels, sides)
    yields, sieve = Yield(), Sieve(labels, sides, section.per_case, student_form(run.recipe))
    by_split: dict[str, Counter[str]] = {split: Counter() for split in (*Split,)}
    run.progress.start("filter", None)
    problems = Problems(run.skip_bad, "filter")
    rejects = run.reject_log(flush_every=1000)
    with run.log(Trace, trace_key, flush_every=1000) as log:
        lines = _read(run, section, problems)
        for number, (trace, line) in enumerate(lines, start=1):
            run.progress.advance()
            key, reason = trace_key(trace), sieve.reason(trace)
            if reason is None and key in left_out:
                reason = FilterReason.BALANCED_OUT
            if reason is None or reason.value not in NO_PART:
                level, model = groups[trace.case_id]
                yields.count(
                    {
                        "all": "all",
                        "label": labels[trace.case_id].value,
                        "level": level,
                        "answer_model": model,
                    },
                    trace.decision is labels[trace.case_id],
                )
            if reason is None:
                # The line as it stands: a kept trace isn't changed.
                log.append_encoded(key, line)
                by_split[sides[trace.case_id]][trace.decision.value] += 1
            else:
                # A line stands for itself where its key stands twice.
                name = f"{key}#{number}" if reason is FilterReason.SAME_KEY else key
                rejects.append(
                    Reject(stage="filter", key=name, reason=reason.value, detail=_detail(trace))
                )
    problems.stop(str(section.traces))
    for reject in problems.rejects:
        rejects.append(reject)
    run.report["yield"] = yields.report()
    run.report["kept"] = {
        split.value: dict(sorted(by_split[split].items()))
        for split in (Split.TRAIN, Split.VALIDATION)
    }
    _check_classes(run, section, by_split[Split.TRAIN], run.report["yield"])


def _detail(trace: Trace) -> str:
    return f"decided {trace.decision.value}"


def _read(
    run: StageRun, section: FilterSection, problems: Problems
) -> Iterator[tuple[Trace, bytes]]:
    """The traces and their lines. What this program wrote itself has no bad line to skip."""
    if section.traces is not None:
        return read_traces(section.traces, problems)
    return read_lines(run.recipe.run_dir / "teach" / "rows.jsonl", Trace)


def _balanced_out(
    run: StageRun,
    section: FilterSection,
    labels: Mapping[str, Route],
    sides: Mapping[str, Split],
) -> set[str]:
    if section.balance == "none":
        return set()
    sieve = Sieve(labels, sides, section.per_case, student_form(run.recipe))
    kept = {
        trace_key(trace): trace.decision
        for trace, _ in _read(run, section, Problems(skip_bad=True))
        if sieve.reason(trace) is None and sides[trace.case_id] is Split.TRAIN
    }
    return balance(kept, run.recipe.seed)


def _check_classes(
    run: StageRun, section: FilterSection, kept: Counter[str], yields: Mapping[str, object]
) -> None:
    """A student that sees one route only learns to say its name."""
    present = [route for route in ROUTES if kept[route.value]]
    if len(present) == len(ROUTES):
        return
    found = present[0].value if present else "no route"
    if section.one_class == "warn" and present:
        run.report["warning"] = f"all kept training traces decide {found}"
        run.progress.note(f"filter: warning: all kept training traces decide {found}")
        return
    raise StageError(
        "filter",
        f"the kept training traces decide {found} only ({kept.total()} traces)",
        "both routes, or filter.one_class: warn where one is meant",
        f"yield by label: {yields.get('label', {})}; look at the labels, at the teacher, and at "
        "rejects.jsonl in the stage's folder",
    )


def _inputs(recipe: Recipe) -> dict[str, str]:
    for error in missing_traces(recipe.filter):
        raise error
    path = recipe.filter.traces if recipe.filter else None
    return {str(path): file_sha256(path)} if path else {}


STAGE = Stage(
    name="filter",
    sections=lambda recipe: {
        "filter": recipe.filter,
        "train.form": _parts(student_form(recipe)),
        **recipe.unseen,
    },
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/references.jsonl",
        "cases/split.jsonl",
        "label/rows.jsonl",
        *(("teach/rows.jsonl",) if recipe.teach else ()),
    ),
    run=_run,
    inputs=_inputs,
    skips_bad=lambda recipe: bool(recipe.filter and recipe.filter.traces),
)
