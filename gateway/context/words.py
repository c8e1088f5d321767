"""How a text falls into words, sentences and names; which scripts the encoder can read."""

from __future__ import annotations

import re
from itertools import pairwise

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|\d+(?:[.,:]\d+)*|[^\W\d_{_CJK}]+(?:['’][^\W\d_{_CJK}]+)*")
_NAME = re.compile(r"\b[^\W\d_a-z][\w'’-]{2,}")  # a first letter that is no small a-z; isupper() decides
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_LETTER = re.compile(r"[^\W\d_]")
_FOREIGN_LETTER = re.compile(r"[^\W\d_\x00-\u024f\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uff21-\uff5a]")

# Words that say nothing of what a text is about: function words, question words, and the verbs around them.
_STOP_WORDS = """
    a about above after again against all also although am among an and another any are as at back be
    became because become been before being below between both but by came can cannot come could did do
    does doing done down due during each either else etc ever every few for from further get gets give
    given go goes going had has have having he hence her here hers him his how however i if in into is it
    its itself just let like made make makes many may me might more most much must my near neither no nor
    not now of off often on once one only onto or other others our out over own per rather said same say
    says see seen several shall she should since so some still such take taken than that the their them
    themselves then there therefore these they this those though through thus to together too toward
    towards two under until up upon us use used uses using very via was we well went were what when where
    whether which while who whom whose why will with within without would yet you your tell explain
    describe name please
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
_NUMBER_WORDS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
    million billion first second third fourth fifth sixth seventh eighth ninth tenth
"""
NUMBER_WORDS = frozenset(_NUMBER_WORDS.split())


def words(text: str) -> list[str]:
    """Return the lower-cased words and numbers; in scripts without spaces every character is a word."""
    return _WORD.findall(text.lower())


def cased_words(text: str) -> list[str]:
    """Return the words and numbers as they are written."""
    return _WORD.findall(text)


def located_words(text: str, begin: int = 0) -> list[tuple[int, int]]:
    """Return where each word or number stands, [start, end) in characters, from ``begin`` on."""
    return [match.span() for match in _WORD.finditer(text, begin)]


def content_words(text: str) -> list[str]:
    """Return ``words`` without those that say nothing of the subject."""
    return [word for word in words(text) if word not in STOP_WORDS]


def names(text: str) -> set[str]:
    """Return the capitalised terms of three letters and more, sentence openers such as "However" left out."""
    return {name for name in _NAME.findall(text) if name[0].isupper() and name.lower() not in STOP_WORDS}


def sentence_starts(text: str) -> list[int]:
    """Return the offset at which each sentence of ``text`` begins, the first always 0."""
    edges = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    return [start for start, end in pairwise(edges) if text[start:end].strip()] or [0]


def is_latin(text: str) -> bool:
    """Tell whether at least half of the letters are Latin; a text without letters counts as Latin."""
    if text.isascii():
        return True
    num_letters = len(_LETTER.findall(text))
    return 2 * len(_FOREIGN_LETTER.findall(text)) <= num_letters


def is_number(word: str) -> bool:
    """Tell whether ``word`` is a number, written in digits or spelled out."""
    return word[0].isdigit() or word.lower() in NUMBER_WORDS
