"""What the filter kept of the teacher's traces, and how the whole was made."""

from __future__ import annotations

import json
import platform
import shlex

import yaml

from prerouter.core.records import Route
from prerouter.measures.comparisons import RESAMPLES
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Listing,
    Section,
    Table,
    count_cell,
    number_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.routing import share
from prerouter.runs.manifest import Manifest, installed_versions

PACKAGES = ("numpy", "scipy", "pydantic", "jinja2", "matplotlib")
_GROUPS = {
    "all": "all traces",
    "label": "label",
    "level": "level",
    "answer_model": "answer model",
}


def filter_yield(material: Material) -> Section:
    """Of the teacher's traces, how many decide as the label does, by what they are about."""
    title = "Yield of the filter"
    manifest = material.manifests.get("filter")
    counted = manifest.report.get("yield") if manifest else None
    if manifest is None or not counted:
        return Section("yield", title, ["No trace was filtered in this run."])
    rows = [
        (_GROUPS.get(group, group), "" if group == "all" else value, found["agree"], found["of"])
        for group, entries in counted.items()
        for value, found in entries.items()
    ]
    names = [f"{group}: {value}" if value else group for group, value, _, _ in rows]
    said = "; ".join(
        f"{name} {agree} of {of}" for name, (_, _, agree, of) in zip(names, rows, strict=True)
    )
    figure = Figure(
        name="yield",
        title="Share of traces whose decision is the label",
        alternative=f"A bar for each group of traces: {said}.",
        size=(8.2, 0.9 + 0.25 * len(rows)),
        paint=charts.stacked_bars(
            names,
            [("decide as the label does", [agree / max(of, 1) for _, _, agree, of in rows])],
            "Yield",
        ),
    )
    table = Table(
        name="yield",
        caption="Traces that decide as the label does",
        columns=[
            Column("Group", numeric=False),
            Column("Value", numeric=False),
            *map(Column, ("Agree", "Of", "Yield")),
        ],
        rows=[
            [
                text_cell(group),
                text_cell(value),
                count_cell(agree),
                count_cell(of),
                number_cell(agree / of if of else None, share, "no trace"),
            ]
            for group, value, agree, of in rows
        ],
        folded=True,
    )
    kept = manifest.report.get("kept", {})
    learnt = "; ".join(
        f"{split}: {', '.join(f'{n:,} {Route(route).value}' for route, n in counts.items())}"
        for split, counts in kept.items()
        if counts
    )
    refused = ", ".join(
        f"{reason.replace('_', ' ')} {count:,}" for reason, count in manifest.rejects.items()
    )
    words = [
        f"Kept to learn from, by split and decision: {learnt or 'none'}. "
        f"Refused: {refused or 'none'}."
    ]
    return Section("yield", title, words, [figure, table])


def _hash(manifest: Manifest) -> Cell:
    rows = manifest.files.get("rows.jsonl")
    return Cell(f"{rows.sha256[:12]}…", rows.sha256) if rows else Cell("n/a", None)


def making(material: Material) -> Section:
    """The stages with their models, versions and hashes, the recipe, and the commands."""
    recipe = material.recipe
    versions = installed_versions(*PACKAGES) | {"Python": platform.python_version()}
    words = [
        f"Seed {recipe.seed}; intervals are from {material.section.resamples:,} resamples of "
        f"documents, those of the difference tests from {RESAMPLES:,}. This page was made with "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    ]
    stages = Table(
        name="stages",
        caption="The stages that this page was made from",
        columns=[
            Column("Stage", numeric=False),
            Column("Rows"),
            Column("Refused"),
            Column("Seconds"),
            Column("Model", numeric=False),
            Column("Versions", numeric=False),
            Column("SHA-256 of its rows", numeric=False),
        ],
        rows=[
            [
                text_cell(name),
                count_cell(manifest.files["rows.jsonl"].rows)
                if "rows.jsonl" in manifest.files
                else Cell("n/a", None),
                Cell(
                    f"{sum(manifest.rejects.values()):,}",
                    sum(manifest.rejects.values()),
                    note=", ".join(f"{why} {n}" for why, n in manifest.rejects.items()) or None,
                ),
                Cell(f"{manifest.seconds:,.1f}", manifest.seconds),
                text_cell(" ".join(filter(None, (manifest.model, manifest.revision)))),
                text_cell(", ".join(f"{name} {v}" for name, v in manifest.versions.items())),
                _hash(manifest),
            ]
            for name, manifest in material.manifests.items()
        ],
    )
    plain = json.loads(recipe.model_dump_json(exclude_none=True))
    file = shlex.quote(f"{recipe.name}.yaml")
    commands = f"prerouter check {file}\nprerouter run {file}\nprerouter evaluate {file} --force"
    return Section(
        "making",
        "How it was made",
        words,
        [
            stages,
            Listing("Commands that make it again, with the recipe below in a file", commands),
            Listing(
                "The recipe, with every default in its place",
                yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100),
            ),
        ],
    )
