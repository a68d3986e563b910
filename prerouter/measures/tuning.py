"""A router's p_lc set right and cut: fitted on one split, measured on every split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prerouter.core.errors import StageError
from prerouter.core.records import (
    ROUTES,
    Decision,
    Label,
    PairedScore,
    Record,
    Route,
    RoutingCase,
    Split,
)
from prerouter.measures.calibration import (
    Calibration,
    Temperature,
    apply_temperature,
    calibration,
    fit_temperature,
    log_odds,
)
from prerouter.measures.outcomes import Outcomes, join_outcomes, lc_probabilities
from prerouter.measures.thresholds import (
    ChosenThreshold,
    Sweep,
    by_budget,
    by_expected_loss,
    by_lc_rate,
    sweep_thresholds,
)
from prerouter.recipe.calibrate import CalibrateSection, ThresholdRule


class CalibrationPoint(Record):
    """How far p_lc can be taken at its word on one split, before and after the temperature. Cases
    that the router did not decide have no p_lc: they are left out and counted."""

    split: Split
    undecided: int
    before: Calibration
    after: Calibration


class Calibrated(Record):
    """What a calibrated router decides by: p_lc with its log-odds divided by the temperature, and
    LC where that is above the threshold."""

    router: str
    split: Split
    temperature: Temperature
    threshold: ChosenThreshold
    measured: tuple[CalibrationPoint, ...]


def calibrate(
    section: CalibrateSection,
    router: str,
    decisions: Sequence[Decision],
    labels: Sequence[Label],
    scores: Sequence[PairedScore],
    cases: Mapping[Split, Sequence[RoutingCase]],
) -> Calibrated:
    """Fit on `section.split`, measure on every split of `cases`. `decisions` are those of `router`.

    StageError where a case has no p_lc, for a split without a case that has a label and a decision,
    and for too few labelled cases or labels of one route to fit on."""
    labelled = {label.case_id for label in labels}
    by_case = {decision.case_id: decision for decision in decisions}
    undecided = {decision.case_id for decision in decisions if decision.route is None}
    joined: dict[Split, Outcomes] = {}
    left_out: dict[Split, int] = {}
    for split, inside in cases.items():
        decided = [case for case in inside if case.case_id not in undecided]
        if not any(case.case_id in labelled for case in decided):
            raise StageError(
                "calibrate",
                f"no case of the {split.value} split ({len(inside)} cases) has both a label and a "
                f"decision by {router}",
                "at least one, in the split that is fitted on and in the one that is evaluated",
                "give it labels, or choose other splits by calibrate.split and evaluate.split",
            )
        given = [by_case[case.case_id] for case in decided if case.case_id in by_case]
        joined[split] = join_outcomes({router: given}, labels, scores, decided)
        left_out[split] = len(inside) - len(decided)
    p_lc = {
        split: lc_probabilities(router, decisions, outcomes.case_ids)
        for split, outcomes in joined.items()
    }
    lc = ROUTES.index(Route.LC)
    is_lc = {split: outcomes.ideal == lc for split, outcomes in joined.items()}
    fitted = fit_temperature(
        log_odds(p_lc[section.split]), is_lc[section.split], min_cases=section.min_cases
    )
    right = {split: apply_temperature(p, fitted.temperature) for split, p in p_lc.items()}
    costs = section.costs
    usd = {Route.RAG: costs.rag, Route.LC: costs.lc} if costs else {}
    sweep = sweep_thresholds(
        right[section.split],
        joined[section.split].qa,
        [usd[route] for route in ROUTES] if usd else None,
        costs.route if costs else 0.0,
    )
    return Calibrated(
        router=router,
        split=section.split,
        temperature=fitted,
        threshold=_choose(section, sweep),
        measured=tuple(
            CalibrationPoint(
                split=split,
                undecided=left_out[split],
                before=calibration(p_lc[split], is_lc[split]),
                after=calibration(right[split], is_lc[split]),
            )
            for split in joined
        ),
    )


def _choose(section: CalibrateSection, sweep: Sweep) -> ChosenThreshold:
    if section.rule is ThresholdRule.LOSS:
        return by_expected_loss(sweep)
    assert section.target is not None
    choose = by_lc_rate if section.rule is ThresholdRule.LC_RATE else by_budget
    return choose(sweep, section.target)


def tune(
    decisions: Sequence[Decision], name: str, temperature: float, threshold: float
) -> list[Decision]:
    """The same decisions by the calibrated p_lc, as router `name`. A failure stays one.

    StageError where none has a p_lc.
    """
    given = {d.case_id: d.p_lc for d in decisions if d.p_lc is not None}
    right = apply_temperature(list(given.values()), temperature).tolist()
    tuned = {
        case_id: {"p_lc": p, "route": Route.LC if p > threshold else Route.RAG}
        for case_id, p in zip(given, right, strict=True)
    }
    return [
        decision.model_copy(update={"router": name, **tuned.get(decision.case_id, {})})
        for decision in decisions
    ]
