"""Closed recipe models, safe YAML, `--set` overrides, and errors that a user can act on."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from prerouter.core.errors import CombinedError, InputError, PrerouterError, RecipeError


class Section(BaseModel):
    """A closed part of a recipe: an unknown key is an error, a value never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


SectionT = TypeVar("SectionT", bound=BaseModel)


class _RecipeLoader(yaml.SafeLoader):
    """Safe YAML that takes `2e-5` as a number and refuses a key that stands twice."""


_RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*)(?:\.[\d_]*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def _unique_mapping(loader: _RecipeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} is not text", problem_mark=key_node.start_mark
            )
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_RecipeLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def parse_yaml(text: str, place: str) -> Any:
    """Parse untrusted YAML: plain data only. Raises RecipeError with the line."""
    try:
        # A subclass of SafeLoader: no tag of Python objects is known to it.
        return yaml.load(text, Loader=_RecipeLoader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{place}:{mark.line + 1}" if mark else place
        raise RecipeError(where, str(error.problem), next_step="mend the YAML") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise RecipeError(place, f"not readable as YAML: {error}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(str(p) for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise InputError(
            str(path),
            "no such recipe",
            f"found beside it: {', '.join(near[:8])}" if near else "",
            "check the path",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"can't be read as UTF-8 text: {error}") from None
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise RecipeError(str(path), "is not a mapping of sections", "`section:` lines")
    return data


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A copy of `data` with each dotted `key=value` set; values are read as YAML, and `null` takes
    the key out."""
    result: dict[str, Any] = _copy(data)
    for override in overrides:
        dotted, equals, value = override.partition("=")
        keys = dotted.strip().split(".")
        if not equals or not all(keys):
            raise RecipeError(
                f"--set {override}", "is not a setting", "section.key=value", "name the whole key"
            )
        node = result
        for depth, key in enumerate(keys[:-1]):
            child = node.setdefault(key, {})
            if not isinstance(child, dict):
                where = ".".join(keys[: depth + 1])
                raise RecipeError(f"--set {override}", f"{where} is a value, not a section")
            node = child
        setting = parse_yaml(value, f"--set {override}")
        if setting is None and value.strip():
            node.pop(keys[-1], None)
        else:
            node[keys[-1]] = setting
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_copy(child) for child in value]
    return value


def validate(model: type[SectionT], data: Any, place: str) -> SectionT:
    """`data` as `model`. Raises a CombinedError with every mistake, one line each."""
    blank = list(_blank_sections([model], data, ())) if isinstance(data, dict) else []
    errors: list[PrerouterError] = [_blank_section(path, place) for path in blank]
    try:
        result = model.model_validate(data)
    except ValidationError as error:
        for details in error.errors():
            if _keys(details) not in blank:
                errors += _describe(model, details, place)
    if errors:
        raise CombinedError(errors)
    return result


def _blank_sections(
    models: Sequence[type[BaseModel]], data: dict[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[int | str, ...]]:
    """The sections with nothing behind their colon: YAML's null, which would drop them silently."""
    for key, value in data.items():
        fields = [model.model_fields[key] for model in models if key in model.model_fields]
        inner = [section for field in fields for section in _sections_in(field.annotation)]
        if inner and value is None:
            yield (*path, key)
        elif inner and isinstance(value, dict):
            yield from _blank_sections(inner, value, (*path, key))


def _blank_section(path: tuple[int | str, ...], place: str) -> RecipeError:
    return RecipeError(
        f"{place}: {'.'.join(map(str, path))}",
        "is blank",
        f"fill it in, or write `{path[-1]}: {{}}` for the defaults",
        "leave the key out where it is not wanted",
    )


def _keys(details: ErrorDetails) -> tuple[int | str, ...]:
    # Discriminated unions put the tag into the location, which is no key of the file.
    return tuple(part for part in details["loc"] if not _is_union_tag(part))


def _describe(model: type[BaseModel], details: ErrorDetails, place: str) -> list[PrerouterError]:
    path = _keys(details)
    where = f"{place}: {'.'.join(str(part) for part in path) or 'recipe'}"
    kind = details["type"]
    if kind == "extra_forbidden":
        known = _known_keys(model, details["loc"][:-1])
        near = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f"did you mean {near[0]}?" if near else "remove it"
        accepted = f"known here: {', '.join(sorted(known))}"
        return [RecipeError(where, "unknown key", accepted, hint)]
    if kind == "missing":
        return [RecipeError(where, "missing", next_step="add it")]
    message = details["msg"].removeprefix("Value error, ")
    if isinstance(details.get("input"), dict):
        # A section whose parts don't go together: each mistake names its key already.
        return [RecipeError(where, part) for part in message.split("; ")]
    # What was meant to be a name or an address may be a key that somebody pasted there.
    secret = {"api_key_variable", "base_url"} & set(map(str, path))
    shown = "a value that is not shown" if secret else repr(details.get("input"))
    if len(shown) > 80:
        shown = shown[:77] + "..."
    found = "is blank" if details.get("input") is None else f"got {shown}"
    return [RecipeError(where, found, message[:1].lower() + message[1:])]


def _is_union_tag(part: int | str) -> bool:
    return isinstance(part, str) and part.startswith("tag:")


def _known_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The keys that the section at `location` takes, following nested models."""
    candidates: list[type[BaseModel]] = [model]
    for part in location:
        following: list[type[BaseModel]] = []
        for candidate in candidates:
            if isinstance(part, str) and part in candidate.model_fields:
                following += _models_in(candidate.model_fields[part].annotation)
            elif isinstance(part, int) or _is_union_tag(part):
                tag = str(part).removeprefix("tag:")
                if isinstance(part, int) or _has_tag(candidate, tag):
                    following.append(candidate)
        # What is no field of any is a key of a mapping, whose values are followed already.
        candidates = following or candidates
    keys: dict[str, None] = {}
    for candidate in candidates:
        keys.update(dict.fromkeys(candidate.model_fields))
    return list(keys)


def _has_tag(model: type[BaseModel], tag: str) -> bool:
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a value itself may be; those of a list's items are no sections."""
    if get_origin(annotation) in (tuple, dict):
        return []
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _sections_in(argument)]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
