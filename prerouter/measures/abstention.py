"""Does an answer say that the document does not tell? English wordings only."""

from __future__ import annotations

import re

_DOCUMENT = (
    r"(?:texts?|documents?|documentation|passages?|chunks?|excerpts?|contexts?|snippets?|sections?|"
    r"sources?|papers?|stor(?:y|ies)|books?|novels?|novellas?|chapters?|articles?|reports?|filings?|"
    r"(?:form\s)?10-[kq]|statements?|disclosures?|authors?|narrators?|narratives?|information|"
    r"materials?|content|portions?|financials|prospectus|paragraphs?|pages?|manuscript|transcript)"
)
# The rest of one sentence; the full stop of "Inc. does" does not end it.
_GAP = r"(?:[^.!?\n]|\.(?!\s+(?-i:[A-Z])|\s*\n)){0,120}?"
_HEDGE = r"(?:(?:\w+ly|also|even|ever|yet|seem\s+to|appear\s+to|go\s+on\s+to)\s+){0,3}"
_NOT = r"(?:(?:do|does|did)\s+not|never|fails?\s+to|failed\s+to|neither)"
_TOPIC = (
    r"(?:mention|information|details?|references?|discussion|indication|description|data|evidence|"
    r"explanation|specifics|statements?|context|answer|record|account|instance|example|text|chunk)"
)
_TELL = (
    r"(?:mentions?|specif(?:y|ies)|state|provide|contain|discuss|address|indicate|describe|say|tell|"
    r"include|give|disclose|reveal|detail|list|report|explain|cover|offer|present|name|elaborate|"
    r"identify|answer|refer|touch|delve|explore|note|clarify|outline|propose|suggest|show|define|"
    r"depict|quantify|analy[sz]e|evaluate|examine|compare|recommend|have|talk|comment|speak|"
    r"investigate|go\s+into)"
)
_TOLD = (
    r"(?:mentioned|specified|stated|discussed|addressed|disclosed|elaborated|referenced|"
    r"(?:made\s+)?(?:explicit|clear)(?=\s+(?:in|from)\b))"
)
_FOUND = (
    r"(?:provided|given|found|available|included|described|reported|covered|listed|known|present|"
    r"contained|explained|revealed|identified|shown|outlined|explored|named|detailed|indicated)"
)
_CANNOT = r"(?:can\s?not|could\s+not|unable\s+to|not\s+able\s+to|(?:did|do)\s+not)"
_HAVE = (
    rf"have(?=\s+(?:[\w-]+,?\s+){{0,5}}?(?:{_TOPIC}|{_TOLD}|{_DOCUMENT}|"
    r"access|any|enough|that|this|it)\b)"
)
# Information that something befell, and a thing that lay elsewhere.
_BEFELL = (
    r"\s+(?:is|are|was|were|has\s+been|had\s+been)\s+"
    r"(?:lost|leaked|stolen|destroyed|exchanged|compromised|misused|shared\s+with)\b"
)
_BUT_THERE = (
    r"[^.!?\n]{0,80}\bbut\s+(?:in|under|on|at|by|behind|inside|near|within)\s+"
    r"(?!general|common|my|principle|context)"
)
_SETTLE = r"(?:determine|answer|say|tell|know|ascertain|infer|identify|conclude|confirm|find)"

_ABSTAINS = re.compile(
    "|".join(
        (
            # The document does not tell.
            rf"\b{_DOCUMENT}\b{_GAP}\b{_NOT}\s+{_HEDGE}{_TELL}\b",
            rf"\b(?:it|they)\s+{_NOT}\s+{_HEDGE}(?:mention|discuss|specify|address)\b",
            rf"\b{_NOT}\s+(?:specifically|explicitly|directly)\s+{_TELL}\b",
            # It is not mentioned; it is not given in the document; it is not known.
            rf"\b(?:not|never|nowhere)\s+(?:been\s+)?{_HEDGE}{_TOLD}\b",
            rf"\b(?:not|never)\s+(?:been\s+)?{_HEDGE}{_FOUND}\b(?!{_BUT_THERE}){_GAP}"
            rf"\b(?:in|by|within|from)\b{_GAP}\b{_DOCUMENT}\b",
            rf"\bnot\s+{_HEDGE}(?:provided|given|known|available)[\s.!]*$",
            rf"\b(?:this|that|it)\s+(?:\w+\s+){{0,3}}?(?:is|was)\s+not\s+{_HEDGE}covered[\s.!]*$",
            # The answer is not in it; there is nothing about this in it.
            r"\b(?:answer|information|details?)\b[^.!?\n]{0,60}?"
            rf"\b(?:is|are|was|were)\s+not\s+{_HEDGE}(?:anywhere\s+)?(?:in|within|part\s+of)\s+"
            rf"(?:[\w-]+\s+){{0,4}}?{_DOCUMENT}\b(?!{_BUT_THERE})",
            rf"\b(?:this|that|it)\s+(?:is|was)\s+not\s+{_HEDGE}(?:anywhere\s+)?(?:in|within)\s+"
            rf"(?:the|this|any)\s+(?:[\w-]+\s+){{0,2}}?{_DOCUMENT}(?!['\w])(?!{_BUT_THERE})",
            rf"\bnothing\s+(?:about|on|regarding|concerning)\b{_GAP}\b(?:in|within)\s+"
            rf"(?:[\w-]+\s+){{0,4}}?{_DOCUMENT}\b",
            # There is no mention of it; the document holds no details.
            rf"\bno\s+(?:[\w-]+,?\s+){{0,4}}?(?:mentions?|information|discussion)\b(?!{_BEFELL})",
            rf"\bno\s+(?:[\w-]+,?\s+){{0,4}}?{_TOPIC}\b{_GAP}\b{_DOCUMENT}\b",
            r"\bno\s+(?:[\w-]+,?\s+){1,6}?(?:is\s+|are\s+)?mentioned\b",
            rf"\bno\b{_GAP}\b(?:{_TOLD}|{_FOUND})\b{_GAP}\b(?:in|by|within|from)\b{_GAP}"
            rf"\b{_DOCUMENT}\b",
            rf"\b{_DOCUMENT}\b{_GAP}\bthere\s+(?:is|are|was|were)\s+no\b",
            rf"\b{_DOCUMENT}\b{_GAP}\b(?:provides?|contains?|offers?|gives?|makes?|includes?|has|"
            rf"have)\s+no\b",
            r"\b(?:insufficient|lacks?|lacking|not\s+(?:enough|sufficient))\s+"
            rf"(?:[\w-]+\s+){{0,3}}?{_TOPIC}\b",
            # I cannot find it; it cannot be determined.
            rf"\b(?:I|we)\b[^.!?\n]{{0,40}}?\b{_CANNOT}\s+{_HEDGE}"
            rf"(?:{_SETTLE}|locate|see|provide|{_HAVE}|any)\b",
            r"\b(?:can\s?not|could\s+not)\s+be\s+(?:\w+ly\s+)?"
            r"(?:determined|answered|inferred|ascertained)\b",
            rf"\b(?:impossible|not\s+possible|unable|no\s+way)\s+to\s+{_HEDGE}{_SETTLE}\b",
            r"\bunanswerable\b",
        )
    ),
    re.IGNORECASE,
)
_CONTRACTED = re.compile(r"(?<!ca)n't|(?<=can)'t", re.IGNORECASE)
# Not behind a title or an initial.
_SENTENCE_END = re.compile(
    r"(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bSt\.)(?<!\bMrs\.)(?<!\b[A-Z]\.)(?<=[.!?])\s+(?=[A-Z])|\n+"
)
# What stands before an answer and says nothing yet.
_LEAD_IN = re.compile(
    r"\W*(?:sure|certainly|of\s+course|unfortunately|sorry|answer|i\s+apologi[sz]e\b.*|"
    r"i\s+am\s+sorry|i'm\s+sorry|the\s+question\s+(?:asks|is)\b.*|[^.!?]*:)\W*",
    re.IGNORECASE,
)
# Of each end: a model's output of any length is looked at in a moment.
_LONGEST = 4_000
_ABSTAINS_ALONE = re.compile(
    r"\W*(?:unknown|unspecified|undisclosed|n/a|no\s+answer|"
    r"not\s+(?:available|found|applicable|answerable|clear|disclosed)|"
    r"(?:it|that|this)\s+does\s+not\s+(?:say|tell))\W*",
    re.IGNORECASE,
)


def abstention(prediction: str) -> bool:
    """Whether the text says, anywhere in it, that the document does not tell.

    A caveat after a partial answer counts: LaRA's rubric for hallucination questions asks whether
    it is said (Li et al., 2025, arXiv 2502.09977). A correction of a false premise ("she had no
    horse") isn't seen as one. "None" and "not" alone are no abstention. Meant for unanswerable
    questions; the wordings are those of six models' real answers, and English.
    """
    if len(prediction) > 2 * _LONGEST:
        prediction = f"{prediction[:_LONGEST]}\n{prediction[-_LONGEST:]}"
    text = _CONTRACTED.sub(" not", prediction.replace("\u2019", "'"))
    return bool(_ABSTAINS.search(text) or _ABSTAINS_ALONE.fullmatch(text))


def declines(answer: str) -> bool:
    """Whether an answer begins with an abstention, lead-ins such as "Sure!" or "Answer:" apart. A
    caveat behind an answer is no decline."""
    pieces = _SENTENCE_END.split(answer[:_LONGEST].strip())
    said = next((piece for piece in pieces if not _LEAD_IN.fullmatch(piece)), "")
    return abstention(said)
