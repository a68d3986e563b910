"""Write the reference pages of docs/ from the code: recipe.md, records.md and cli.md.

Run after a section, a record or an option has changed: python scripts/make_reference.py
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperGroup
from typer.main import get_command

from prerouter.cli.main import app
from prerouter.core import records
from prerouter.core.records import Record
from prerouter.measures.routing import RoutingRow
from prerouter.measures.tuning import Calibrated
from prerouter.recipe.prices import PriceTable
from prerouter.recipe.probe import ProbeStudy
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.study import PromptStudy
from prerouter.runs.manifest import Manifest
from prerouter.serving.wire import AskedCase, Routed

DOCS = Path(__file__).parents[1] / "docs"
MADE = "<!-- Made by scripts/make_reference.py: change the code, then run it. -->\n"
_WORDS = {
    bool: "true or false",
    str: "text",
    Path: "path",
    Any: "any value",
    object: "any value",
    type(None): "nothing",
}

Model = type[BaseModel]
Places = dict[Model, list[str]]


# What a type takes, in words.


def in_words(annotation: Any, metadata: Sequence[Any], anchors: dict[Model, str]) -> str:
    """What a value of this type may be. `anchors` are where models are described."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return in_words(arguments[0], (*_flat(arguments[1:]), *metadata), anchors)
    if origin is Literal:
        return _either([f"`{value}`" for value in arguments])
    if origin in (Union, types.UnionType):
        told = [in_words(each, metadata, anchors) for each in arguments if each is not type(None)]
        return _either(list(dict.fromkeys(told)))
    if origin is tuple:
        return _limited(f"list of {in_words(arguments[0], (), anchors)}", metadata)
    if origin is dict:
        key, value = (in_words(each, (), anchors) for each in arguments)
        return _limited(f"mapping of {key} to {value}", metadata)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{_name(annotation)}](#{anchors[annotation]})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _either([f"`{each.value}`" for each in annotation])
    if annotation in (int, float):
        return _number(annotation, metadata)
    known = _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return _limited(known, metadata)


def _flat(metadata: Sequence[Any]) -> Iterator[Any]:
    """What constrains a value; a nested Field holds its own in a list."""
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from each.metadata
        else:
            yield each


def _either(told: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(told[:-1]), told[-1])))


def _number(kind: type, metadata: Sequence[Any]) -> str:
    word = "whole number" if kind is int else "number"
    low = high = ""
    for limit in metadata:
        # Of whole numbers, the next one is the least, or the most, that is taken.
        match limit:
            case annotated_types.Ge(ge=bound):
                low = _figure(bound)
            case annotated_types.Gt(gt=bound):
                low = _figure(bound + 1) if kind is int else f"above {_figure(bound)}"  # type: ignore[operator]
            case annotated_types.Le(le=bound):
                high = _figure(bound)
            case annotated_types.Lt(lt=bound):
                high = _figure(bound - 1) if kind is int else f"below {_figure(bound)}"  # type: ignore[operator]
    if low and high:
        return f"{word}, {low} to {high}"
    if low:
        return f"{word}, {low}" if low.startswith("above") else f"{word}, {low} or more"
    return f"{word}, {high} at most" if high else word


def _figure(bound: Any) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _limited(told: str, metadata: Sequence[Any]) -> str:
    for limit in metadata:
        if isinstance(limit, annotated_types.MaxLen) and told == "text":
            told += f", {limit.max_length} characters at most"
        if getattr(limit, "pattern", None):
            told += f" like `{limit.pattern}`"
    return told


# Sections and their fields.


def models_in(annotation: Any) -> list[Model]:
    """The models that a value may hold, in the order in which the type names them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


def places(model: Model, path: str, found: Places) -> Places:
    """Every model below `model`, with the keys under which it stands."""
    for name, field in model.model_fields.items():
        key = f"{path}.{name}" if path else name
        for inner in models_in(field.annotation):
            known = inner in found
            found.setdefault(inner, []).append(key)
            if not known:
                places(inner, key, found)
    return found


def _tag(model: Model) -> str:
    """The key and the value that tell a model from the others at its place, if it needs that."""
    for name in ("source", "kind"):
        field = model.model_fields.get(name)
        if field and get_origin(field.annotation) is Literal:
            values = get_args(field.annotation)
            if len(values) == 1:
                return f"{name}: {values[0]}"
    return ""


def _name(model: Model) -> str:
    """What a model is called where it is referred to: `source: table`, or its class in words."""
    return _tag(model) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", model.__name__).lower()


def _anchor(model: Model) -> str:
    return model.__name__.lower()


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its own" if value == type(value).model_construct() else f"`{_yaml(value)}`"
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """A default as a recipe would write it."""
    if isinstance(value, BaseModel):
        inside = ", ".join(f"{k}: {_yaml(v)}" for k, v in value.model_dump().items())
        return f"{{{inside}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value) if value != "" else '""'


def field_table(model: Model, anchors: dict[Model, str]) -> list[str]:
    lines = ["| key | takes | default | |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        takes = in_words(field.annotation, field.metadata, anchors)
        about = field.description or ""
        lines.append(f"| `{name}` | {takes} | {default_of(field)} | {about} |")
    return [*lines, ""]


def _about(model: Model) -> str:
    return inspect.cleandoc(model.__doc__ or "")


def described(model: Model, heading: str, anchors: dict[Model, str]) -> list[str]:
    lines = [f"{heading} {{#{anchors[model]}}}", ""]
    return [*lines, _about(model), "", *field_table(model, anchors)]


def recipe_page() -> str:
    """Every key of a recipe, a study and a price table."""
    roots: dict[Model, str] = {
        Recipe: "A recipe",
        ProbeStudy: "A probe study",
        PromptStudy: "A prompt study",
        PriceTable: "A price table",
    }
    found: Places = {}
    for root in roots:
        places(root, "", found)
    anchors = {model: _anchor(model) for model in (*roots, *found)}
    # Several kinds at one place make a choice of one key; one kind at several places is shared.
    shared = {model for model, keys in found.items() if len(set(keys)) > 1}
    lines = [
        MADE,
        "# Recipe reference",
        "",
        "A recipe is one YAML file. A key that is not here is an error, and `prerouter check` "
        "tells all errors at once. `none` as a default means that the key is absent. `--set "
        "section.key=value` changes one key for a run. [What several sections share](#shared) "
        "stands at the end.",
        "",
    ]
    for root, title in roots.items():
        lines += described(root, f"## {title}", anchors)
        for model in places(root, "", {}):
            if model not in shared:
                tag = _tag(model)
                name = f"`{found[model][0]}`" + (f" with `{tag}`" if tag else "")
                lines += described(model, f"### {name}", anchors)
    lines += ["## Shared by several sections {#shared}", ""]
    for model in found:
        if model in shared:
            lines += described(model, f"### {_name(model)}", anchors)
            keys = ", ".join(f"`{key}`" for key in dict.fromkeys(found[model]))
            lines += [f"Stands at {keys}.", ""]
    return "\n".join(lines)


# Where each record lies below a run's folder. A test reads them out of a run.
FILES: dict[str, Model] = {
    "cases/rows.jsonl": records.RoutingCase,
    "cases/references.jsonl": records.Reference,
    "cases/documents.jsonl": records.DocumentFile,
    "cases/split.jsonl": records.SplitAssignment,
    "cases/answers.jsonl": records.Answer,
    "cases/scores.jsonl": records.PairedScore,
    "answer/rows.jsonl": records.Answer,
    "score/rows.jsonl": records.PairedScore,
    "label/rows.jsonl": records.Label,
    "teach/rows.jsonl": records.Trace,
    "filter/rows.jsonl": records.Trace,
    "train/examples.jsonl": records.Example,
    "train/rows.jsonl": records.ModelFile,
    "route/rows.jsonl": records.Decision,
    "calibrate/rows.jsonl": Calibrated,
    "evaluate/rows.jsonl": RoutingRow,
    "publish/rows.jsonl": records.ModelFile,
    "*/rejects.jsonl": records.Reject,
    "*/manifest.json": Manifest,
}


def record_page() -> str:
    """Every record that stands in a run's files."""
    defined: list[Model] = [
        model
        for _, model in inspect.getmembers(records, inspect.isclass)
        if issubclass(model, Record) and model is not Record
    ]
    models: list[Model] = []
    wire: list[Model] = [AskedCase, Routed]
    for outer in (*FILES.values(), *wire, *defined):
        models += [outer, *places(outer, "", {})]
    models = list(dict.fromkeys(models))
    anchors = {model: _anchor(model) for model in models}
    lines = [
        MADE,
        "# Records",
        "",
        "A run's files hold one record a line, as JSON. Unknown fields, NaN and infinities are "
        "refused; what is not known is absent or null, never 0 and never an empty text. A service "
        "is asked with an [AskedCase](#askedcase) and answers a [Routed](#routed). Own tables and "
        "the published data set have schemas of their own: `data/README.md` in the repository.",
        "",
        "| file in `runs/<name>/` | record |",
        "|---|---|",
    ]
    for file, model in FILES.items():
        lines.append(f"| `{file}` | [{model.__name__}](#{anchors[model]}) |")
    lines.append("")
    for model in models:
        lines += described(model, f"## {model.__name__}", anchors)
    return "\n".join(lines)


def cli_page() -> str:
    """What every verb's `--help` says."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    lines = [
        MADE,
        "# Command line",
        "",
        "What `prerouter VERB --help` prints. [Exit codes](troubleshooting.md#exit-codes): 0 done, "
        "1 an error that one line tells, 2 wrong usage, 130 stopped by Ctrl-C.",
        "",
        "## prerouter {#prerouter}",
        "",
        *_help(group, "prerouter", None),
    ]
    parent = group.context_class(group, info_name="prerouter")
    for name, command in group.commands.items():
        lines += [f"## {name} {{#{name}}}", "", *_help(command, name, parent)]
    return "\n".join(lines)


def _help(command: Any, name: str, parent: Any) -> list[str]:
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=88, max_content_width=88
    )
    return ["```text", command.get_help(context).rstrip(), "```", ""]


PAGES = {"recipe.md": recipe_page, "records.md": record_page, "cli.md": cli_page}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page().rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
