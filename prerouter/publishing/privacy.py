"""What must not go along with a push: paths of machines, keys, e-mail addresses, texts of cases.

Each file is read for what it says. Of weights that is their header; of a tokenizer all but its
vocabulary, of which keys alone; of a picture its notes; of Parquet its texts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prerouter.core.errors import CheckpointError, CombinedError, PrerouterError
from prerouter.publishing.private_files import Piece, texts_of
from prerouter.publishing.private_patterns import KEYS, MAIL, NO_MAIL, PATH, PATHS
from prerouter.recipe.cases import LaraSource
from prerouter.recipe.recipe import Recipe

CASE_TEXT = "a text of a case"
PATH_HERE = "a path of this machine"
# Shorter texts ("What is the revenue?") stand in many places by chance. In bytes, since eight
# Chinese characters say as much as four English words.
CASE_TEXT_BYTES = 24
_BEGINNING = 80
# A shorter value, such as `disabled`, is a word that stands anywhere.
_MIN_SECRET = 12
_SHOWN_ERRORS = 10
_SECRET_NAME = re.compile(
    r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASS|PAT|AUTH|CREDENTIALS?)S?(_?\d+)?$"
)
_MARKUP = frozenset({".svg", ".md", ".html"})
# Words, or signs of a script that writes without spaces.
_UNIT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
WINDOW = 8
"""So many words in a row are no chance; shorter gold answers stand anywhere."""


@dataclass(frozen=True)
class Private:
    """What this machine and this run know: folders, values of keys, and texts of cases."""

    places: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    case_texts: tuple[str, ...] = ()
    case_windows: frozenset[str] = frozenset()


def private_here(
    environment: Mapping[str, str],
    folders: Iterable[Path],
    recipe: Recipe,
    case_texts: Iterable[str] = (),
    long_texts: Iterable[str] = (),
) -> Private:
    """The keys of `environment`, those among them that `recipe` names, its paths, `folders` and
    this machine's own by their whole path, and the `case_texts` that are long enough to be known
    again. Of `case_texts` and of `long_texts` (answers, evidence), `WINDOW` words in a row are."""
    variables, given = _named(recipe)
    places = {str(path.resolve()) for path in (Path.home(), *folders, *given)}
    places |= {str(path) for path in given if path.is_absolute()}
    secrets = {
        value.strip()
        for name, value in environment.items()
        if (name in variables or _SECRET_NAME.search(name.upper()))
        and len(value.strip()) >= _MIN_SECRET
    }
    short = list(case_texts)
    # The beginning gives a text away as well as the whole of it.
    texts = {_words(text)[:_BEGINNING] for text in short}
    # One question and one head stand in the cases of many answer models.
    distinct = dict.fromkeys((*short, *long_texts))
    return Private(
        # One name such as /root stands for no folder of anybody's; PATHS finds what lies in it.
        places=tuple(sorted(place for place in places if len(Path(place).parts) > 2)),
        secrets=tuple(sorted(secrets)),
        case_texts=tuple(sorted(text for text in texts if len(text.encode()) >= CASE_TEXT_BYTES)),
        case_windows=frozenset(window for text in distinct for window in _windows(text)),
    )


def _named(recipe: Recipe) -> tuple[set[str], list[Path]]:
    """The variables that hold its keys, and its paths: of fields that are one, and of texts that
    begin like one. The name of an answer model is none: the card tells it."""
    variables: set[str] = set()
    cases = recipe.cases
    models = cases.own_models if isinstance(cases, LaraSource) else cases.answer_models
    shown = {model.name for model in models}
    paths: list[Path] = []
    pending: list[tuple[str, Any]] = [("", recipe.model_dump())]
    while pending:
        key, value = pending.pop()
        if isinstance(value, dict):
            pending.extend((str(name), each) for name, each in value.items())
        elif isinstance(value, (list, tuple)):
            pending.extend((key, each) for each in value)
        elif key == "api_key_variable" and isinstance(value, str):
            variables.add(value)
        elif isinstance(value, Path) or (
            isinstance(value, str) and value.startswith(("/", "~/")) and value not in shown
        ):
            paths.append(_at_home(Path(value)))
    return variables, paths


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # somebody's whom this machine doesn't know
        return path


def check_private(folder: Path, files: Sequence[str], private: Private) -> None:
    """Raises a CombinedError with a line for each private thing in `files` of `folder`: the file
    and what it is, a secret masked. Ten at most are told one by one.

    Documents that a data set quotes may hold anybody's addresses and paths: of Parquet files, keys
    and this machine's own folders are looked for, and no more.
    """
    errors: list[PrerouterError] = []
    for name in files:
        kinds: dict[str, str] = {}
        markup = Path(name).suffix in _MARKUP
        for piece in texts_of(folder / name):
            for kind, found in _findings(piece, markup, private):
                kinds.setdefault(kind, found)
        errors += [_error(f"{folder}/{name}", kind, shown) for kind, shown in kinds.items()]
    if len(errors) > _SHOWN_ERRORS:
        rest = len(errors) - _SHOWN_ERRORS
        more = CheckpointError(str(folder), f"holds {rest} more of the kind in other files")
        errors = [*errors[:_SHOWN_ERRORS], more]
    if errors:
        raise CombinedError(errors)


def _error(place: str, kind: str, shown: str) -> CheckpointError:
    way_on = "take it out of the recipe or of what the stage read, and run the stage again"
    if kind in (PATH_HERE, PATH):
        way_on += "; of an answer model: serve it under another name (--served-model-name)"
    if kind == CASE_TEXT:
        way_on = "take it out; if it is meant to be public, set publish.raw_text: true"
    return CheckpointError(place, f"holds {kind}: {shown}", "nothing private", way_on)


def _findings(piece: Piece, markup: bool, private: Private) -> Iterator[tuple[str, str]]:
    text = piece.text
    for place in private.places:
        if place in text:
            yield PATH_HERE, place
    for secret in private.secrets:
        if secret in text:
            yield "a key of this environment", _masked(secret)
    for pattern in KEYS if piece.quoted else (*KEYS, *PATHS, MAIL):
        if piece.escaped and pattern.backslashes:
            continue
        if not any(anchor in text for anchor in pattern.anchors):
            continue
        for match in pattern.expression.finditer(text):
            found = match.group()
            if pattern is MAIL and NO_MAIL.search(found):
                continue
            yield pattern.kind, _masked(found) if pattern.secret else found[:120]
            break
    if piece.quoted:
        return
    # A tag inside a sentence hides it from a reader of bytes, and from no other.
    shown = (text, re.sub("<[^<>]*>", " ", text)) if markup else (text,)
    for each in shown:
        known = _case_text(html.unescape(each), private)
        if known:
            yield CASE_TEXT, f"{known[:60]}…"
            return


def _case_text(text: str, private: Private) -> str | None:
    words = _words(text) if private.case_texts else ""
    found = next((known for known in private.case_texts if known in words), None)
    if found is None and private.case_windows:
        found = next((each for each in _windows(text) if each in private.case_windows), None)
    return found


def _masked(secret: str) -> str:
    """Enough to find it by, and too little to use it."""
    return f"{secret[:4]}… ({len(secret)} characters)"


def _words(text: str) -> str:
    """A text by its words alone: neither escapes nor line breaks hide it."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def _windows(text: str) -> Iterator[str]:
    """Every run of `WINDOW` words, but for those that are numbers in the main: such stand in every
    table."""
    units = _UNIT.findall(text.casefold())
    for start in range(len(units) - WINDOW + 1):
        window = units[start : start + WINDOW]
        if 2 * sum(unit.isalpha() for unit in window) > WINDOW:
            yield " ".join(window)
