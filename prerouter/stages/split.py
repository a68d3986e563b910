"""Train, validation and test over questions, whole groups at a time (Pre-Route, section 1)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from prerouter.core.records import Reference, RoutingCase, Split, SplitAssignment
from prerouter.recipe.cases import SplitSection

Stratum = tuple[str, str, str]
_NOT_KNOWN = "unknown"


def strata(cases: Iterable[RoutingCase], references: Iterable[Reference]) -> dict[str, Stratum]:
    """Question id -> (document type, level, context length), the strata of the split."""
    gold = {reference.question_id: reference for reference in references}
    found: dict[str, Stratum] = {}
    for case in cases:
        reference = gold.get(case.question_id)
        found[case.question_id] = (
            case.document.type or _NOT_KNOWN,
            (reference.level if reference else None) or _NOT_KNOWN,
            (reference.context_length if reference else None) or _NOT_KNOWN,
        )
    return found


def split_questions(
    question_strata: Mapping[str, Stratum],
    groups: Mapping[str, str],
    section: SplitSection,
    seed: int,
) -> list[SplitAssignment]:
    """Assign each question to a split, all questions of a group to the same one.

    Groups come in a seeded order, large ones first; each goes where it brings the strata and the
    whole closest to the shares asked for. Squared distances are divided by their targets, so that
    a small stratum counts as much as a large one. The result is ordered by question id.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for question in sorted(question_strata):
        members[groups[question]].append(question)
    shares = {
        Split.TRAIN: section.train,
        Split.VALIDATION: section.validation,
        Split.TEST: section.test,
    }
    sides = [split for split, share in shares.items() if share > 0]
    names = sorted(set(question_strata.values()))
    column = {stratum: index for index, stratum in enumerate(names)}
    sizes = Counter(question_strata.values())
    # The last column is the whole, and counts as much as all strata together: else many small
    # strata would all round the same way.
    totals = np.array([*(sizes[name] for name in names), len(question_strata)], dtype=float)
    targets = np.array([[shares[side]] for side in sides]) * totals
    weights = 1 / np.maximum(targets, 1.0)
    weights[:, -1] *= len(names)
    filled = np.zeros_like(targets)

    order = sorted(members)
    np.random.default_rng(seed).shuffle(order)
    order.sort(key=lambda group: -len(members[group]))
    side_of: dict[str, Split] = {}
    for group in order:
        added = np.zeros(len(totals))
        for question in members[group]:
            added[column[question_strata[question]]] += 1
        added[-1] = len(members[group])
        before = (filled - targets) ** 2
        after = (filled + added - targets) ** 2
        chosen = int(np.argmin(((after - before) * weights).sum(axis=1)))
        filled[chosen] += added
        side_of[group] = sides[chosen]
    return [
        SplitAssignment(question_id=question, group_id=groups[question], split=side_of[group])
        for question, group in sorted((q, g) for g, qs in members.items() for q in qs)
    ]


def straddling(
    assignments: Iterable[SplitAssignment], membership: Mapping[str, str]
) -> dict[str, int]:
    """How many of the groups in `membership` (question id -> group) there are, and how many of
    them stand on two sides or more."""
    sides: dict[str, set[Split]] = defaultdict(set)
    for assignment in assignments:
        sides[membership[assignment.question_id]].add(assignment.split)
    return {"count": len(sides), "on_two_sides": sum(len(found) > 1 for found in sides.values())}


def split_counts(
    assignments: Sequence[SplitAssignment], question_strata: Mapping[str, Stratum]
) -> dict[str, dict[str, int]]:
    """Questions by split, whole and by stratum (`type/level/length`)."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(map(str, Split), 0))
    for assignment in assignments:
        counts["all"][assignment.split] += 1
        counts["/".join(question_strata[assignment.question_id])][assignment.split] += 1
    return {name: counts[name] for name in sorted(counts)}
