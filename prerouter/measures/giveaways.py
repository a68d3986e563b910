"""Words by which an answer tells the route that wrote it, and an answer without them. English only.

Answers from retrieved text speak of chunks, passages and provided context, which answers from a
whole document hardly do (LaRA's real answers, both kinds). A judge that sees it is not blind.
"""

from __future__ import annotations

import re

_NOUN = r"(?:chunk|passage|excerpt|snippet)s?\b"
_HANDED = r"(?:provided|given|supplied|retrieved|presented|shared|shown|available|above)"
_BARE_CONTEXT = r"(?:(?<=based\son\s)|(?<=according\sto\s))the\s+context\b(?!\s+of\b|-)"
_WORD = re.compile(
    rf"\b(?:{_NOUN}|retrieved\b|{_HANDED}\s+contexts?\b|contexts?\s+{_HANDED}\b|{_BARE_CONTEXT})",
    re.IGNORECASE,
)

_THE = (
    r"(?:(?:any|all|each|both|either|neither|none|some|one|most)\s+of\s+)?(?:the|these|this|those)"
)
_WHICH = (
    rf"(?:(?:{_HANDED}|relevant|specific|particular|following|additional|limited|first|second|third|"
    r"fourth|fifth|last|other|same|two|three|four|five|\d+|text|textual|paper|book|novel|story|"
    r"document|report|context|source|financial(?:\s+statement)?)\s+)"
)
_WHOLE = (
    r"(?:(?:the|this|your)\s+)?(?:text|documents?|papers?(?:\s+\d+)?|book|novel|report|story|"
    r"financial\s+statements?)"
)
_AFTER = (
    rf"(?:\s+(?:of|from)\s+{_WHOLE}\b)?"
    r"(?:\s+(?:(?:that|which)\s+(?:was|were|are|is)\s+|you(?:\s+have|['\u2019]ve)?\s+)?"
    rf"{_HANDED}\b)?"
)
# "The passage of time", "the chunk size": words of the matter, not of the source.
_NO_SOURCE = (
    r"(?!-|\s+(?:(?:of|through|between|to|into|under|over|across)\b|"
    r"sizes?\b|lengths?\b|bound|level|retriev|embedd|partition|select|rank))"
)
_NUMBERS = rf"{_NOUN}\s+\#?\d+(?:\s*(?:,\s*and|,|and|or|to|&)\s*(?:{_NOUN}\s+)?\#?\d+)*\b"
_TEXTS = (
    r"(?:documents?|texts?|information|contexts?|content|sections?|pages?|materials?|data|"
    r"results?)\b"
)

_CITATION = re.compile(rf"\s?(?:\({_NUMBERS}\)|\[{_NUMBERS}\])", re.IGNORECASE)
_SOURCE = re.compile(
    r"\b(?:"
    rf"(?:{_THE}\s+){_WHICH}{{0,4}}(?:{_NUMBERS}|{_NOUN}{_AFTER}){_NO_SOURCE}"
    rf"|{_HANDED}\s+{_WHICH}{{0,3}}{_NOUN}{_NO_SOURCE}"
    rf"|(?<!\ba\s){_NUMBERS}"
    rf"|{_THE}\s+{_WHICH}{{0,2}}retrieved\s+{_TEXTS}"
    rf"|(?:{_THE}\s+)?{_HANDED}\s+contexts?\b"
    rf"|{_THE}\s+contexts?\s+(?:(?:that|which)\s+(?:was|is)\s+)?{_HANDED}\b(?!\s+by\b)"
    rf"|{_BARE_CONTEXT}"
    r")(?P<verb>(?:\s+(?:also|only|alone|mainly|primarily|simply|specifically|explicitly))?\s+"
    r"(?:do|are|were|have|don['\u2019]t|aren['\u2019]t|weren['\u2019]t|haven['\u2019]t|mention|"
    r"provide|contain|describe|state|indicate|show|include|give|say|suggest|note|cover|offer|"
    r"present|reveal|specify|list|report|explain|focus|detail|highlight|support|refer|depict|"
    r"address|discuss|emphasi[sz]e)\b)?",
    re.IGNORECASE,
)
_PLURAL = re.compile(
    r"(?:chunk|passage|excerpt|snippet|context|document|text|section|page|material|result)s\b|"
    r"\d\D+\d",
    re.IGNORECASE,
)
_SINGULAR = {
    "do": "does",
    "are": "is",
    "were": "was",
    "have": "has",
    "don't": "doesn't",
    "aren't": "isn't",
    "weren't": "wasn't",
    "haven't": "hasn't",
    "specify": "specifies",
    "focus": "focuses",
    "address": "addresses",
    "discuss": "discusses",
}


def gives_away(text: str) -> bool:
    """Whether a text holds a word of retrieval at all, be it about its source or its matter."""
    return bool(_WORD.search(text))


def neutralise(text: str) -> str:
    """`text` with what it calls its retrieved source called "the document" instead.

    Rewritten are chunks, passages, excerpts and snippets that an article, a number or a word such
    as "provided" points at ("the first two chunks", "Chunk 3", "retrieved passages"), retrieved
    texts, and a context that was provided; a citation in brackets ("(chunk 3)") goes. A verb behind
    a plural is made singular. The words stay where they are of the matter ("the passage of time",
    "chunk size", "a secret passage"), so `gives_away` may still find some: count these. Which of
    several chunks is meant is lost. Nothing else of the text changes.
    """
    return _SOURCE.sub(_as_document, _CITATION.sub("", text))


def _as_document(match: re.Match[str]) -> str:
    source, tail = match.group(), match["verb"] or ""
    # None of several is nothing in the one: the sentence must not turn into its opposite.
    none = source.lower().startswith(("none", "neither"))
    named = "nothing in the document" if none else "the document"
    if source[0].isupper():
        named = named[0].upper() + named[1:]
    if tail and _PLURAL.search(source.removesuffix(tail)):
        verb = tail.split()[-1]
        plain = verb.lower().replace("\u2019", "'")
        tail = tail.removesuffix(verb) + _SINGULAR.get(plain, f"{plain}s")
    return named + tail
