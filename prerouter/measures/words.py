"""Words of a text in any script, folded so that spelling variants of one answer are equal."""

from __future__ import annotations

import re
import unicodedata


class _Folding(dict[int, str]):
    """What `str.translate` puts for each character, worked out once and remembered.

    Letters, marks (the vowels of Devanagari or Thai are marks) and numbers stay. Apostrophes and
    invisible format characters vanish; other punctuation, symbols, spaces and controls become a
    space. Full stop and hyphen stay for `fold` to judge beside digits.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if category[0] in "LMN" or character in ".-":
            folded = character
        elif category == "Cf" or character in "'\u2018\u2019\u02bc":
            folded = ""
        elif category == "Pd" or character == "\u2212":
            folded = "-"
        else:
            folded = " "
        self[code] = folded
        return folded


_FOLDING = _Folding()
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NOT_IN_A_NUMBER = re.compile(r"(?<!\d)\.|\.(?!\d)|(?<=\S)-|-(?!\d)")
_ARTICLES = frozenset({"a", "an", "the"})

# Scripts that put no space between words: each character is a word of its own. Thai to Tibetan,
# Myanmar, Khmer, kana, Han with its extensions.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


def fold(text: str) -> str:
    """`text` in Unicode NFKC, casefolded, without punctuation, white space folded to one space.

    A decimal point and a leading minus stay with their number, thousands separators go. Text that
    is nothing but punctuation is kept, so that only blank text folds to "".
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    bare = _THOUSANDS.sub("", folded).translate(_FOLDING)
    return " ".join(_NOT_IN_A_NUMBER.sub(" ", bare).split()) or " ".join(folded.split())


def normalise(text: str) -> str:
    """`fold`, and English articles off; an answer that is an article ("A") keeps it."""
    folded = fold(text)
    return " ".join(word for word in folded.split() if word not in _ARTICLES) or folded


def split_words(text: str) -> list[str]:
    """The words of folded text, in order; single characters in scripts without spaces."""
    return _WORD.findall(text)
