"""What the classical routers' decisions rest on, by what is lost without each feature."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.measures.importances import Importance, Importances
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    number_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.tables import fixed


def importances(material: Material) -> Section:
    """A panel for each router, in each a bar for each of its features."""
    title = "What the classical routers rest on"
    found = material.importances
    if not found:
        return Section("importances", title, ["No router here was fitted on features."])
    shown = [each for each in found if each.features]
    words = [f"{each.router}: no importances, {each.note}." for each in found if not each.features]
    if not shown:
        return Section("importances", title, words)
    about = (
        "How far the AUC of p_lc against the ideal label falls when the values of one feature are "
        f"shuffled over the cases, on average over {shown[0].repeats} times, by labelled "
        "cases that the router was not fitted on. Near 0, the router doesn't need the feature, or "
        "finds the same in another one. The lines on the bars are one standard deviation."
    )
    return Section("importances", title, [about, *words], [_figure(shown), _table(shown)])


def _figure(found: Sequence[Importances]) -> Figure:
    features = list(dict.fromkeys(each.feature for router in found for each in router.features))
    panels = []
    for router in found:
        own = {each.feature: each for each in router.features}
        panels.append(charts.BarPanel(router.router, [_bar(own.get(name)) for name in features]))
    said = "; ".join(
        f"{router.router} {router.features[0].feature} {fixed(router.features[0].mean)}"
        for router in found
    )
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    return Figure(
        name="importances",
        title="Importance of each feature",
        alternative=f"Bars of {len(features)} features for each router. The largest: {said}.",
        size=(8.2, 0.7 + down * (0.5 + 0.24 * len(features))),
        paint=charts.bar_panels(features, panels, "Fall of the AUC", across),
    )


def _bar(found: Importance | None) -> charts.Bar:
    if found is None:
        return charts.Bar(None)
    return charts.Bar(found.mean, found.mean - found.sd, found.mean + found.sd)


def _table(found: Sequence[Importances]) -> Table:
    return Table(
        name="importances",
        caption="Importance of each feature, the largest first",
        columns=[
            Column("Router", numeric=False),
            Column("Feature", numeric=False),
            *map(Column, ("Fall of the AUC", "Standard deviation", "AUC with all", "Cases")),
        ],
        rows=[
            [
                text_cell(router.router),
                text_cell(each.feature),
                Cell(fixed(each.mean), each.mean),
                Cell(fixed(each.sd), each.sd),
                number_cell(router.auc, fixed),
                count_cell(router.cases),
            ]
            for router in found
            for each in router.features
        ],
        filters=("Router",) if len(found) > 1 else (),
        folded=True,
    )
