"""What could be the answer: words of the kind that the question asks for and does not itself have."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gateway.context.words import STOP_WORDS, cased_words, is_number, sentence_starts, words

_TIME = re.compile(
    r"\b(when|(?:what|which) (?:year|date|day|month)|what time|(?:release|birth) ?date)\b",
)
_AMOUNT = re.compile(r"\bhow (many|much|long|old|far|tall|high|big|large|often|fast|deep|heavy)\b")
_PERSON_OR_PLACE = re.compile(r"\b(who|whom|whose|where)\b")
_CALENDAR_WORDS = """
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec
    monday tuesday wednesday thursday friday saturday sunday
"""
_CALENDAR = frozenset(_CALENDAR_WORDS.split())


@dataclass(frozen=True, slots=True)
class Candidates:
    """Of n chunks."""

    terms: tuple[frozenset[str], ...]
    """Per chunk, the candidates in lower case."""
    in_sentence: tuple[NDArray[np.bool_], ...]
    """Per chunk and sentence, whether it has any."""

    def agreement(self, lead: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [n] the summed rarity of a chunk's candidates, times the share of strong others.

        Redundancy tells answers: what several good passages say is likelier than what one says (Dumais et al.
        2002). Rarity is ln(n / holders), so what every chunk says counts nothing.
        """
        n = len(self.terms)
        holders: dict[str, list[int]] = {}
        for index, terms in enumerate(self.terms):
            for term in terms:
                holders.setdefault(term, []).append(index)
        total = float(lead.sum())
        scores = np.zeros(n)
        for where in holders.values():
            if len(where) > 1:
                others = (lead[where].sum() - lead[where]) / np.maximum(total - lead[where], 1e-9)
                scores[where] += others * np.log(n / len(where))
        return scores


def find_candidates(question: str, texts: Sequence[str]) -> Candidates:
    """Find in every text the words that may answer ``question``: dates, amounts, names, or either."""
    asked = set(words(question))
    is_kind = _kind(question.lower())
    found = []
    marks = []
    for text in texts:
        starts = [*sentence_starts(text), len(text)]
        here: set[str] = set()
        flags = []
        for start, end in pairwise(starts):
            inside = {word.lower() for word in cased_words(text[start:end]) if is_kind(word)} - asked
            flags.append(bool(inside))
            here |= inside
        found.append(frozenset(here))
        marks.append(np.array(flags, bool))
    return Candidates(tuple(found), tuple(marks))


def _kind(question: str) -> Callable[[str], bool]:
    if _TIME.search(question):
        return _is_time
    if _AMOUNT.search(question):
        return is_number
    if _PERSON_OR_PLACE.search(question):
        return _is_name
    return _is_either


def _is_time(word: str) -> bool:
    return word[0].isdigit() or word.lower() in _CALENDAR


def _is_name(word: str) -> bool:
    return word[0].isupper() and len(word) > 1 and word.lower() not in STOP_WORDS


def _is_either(word: str) -> bool:
    return _is_name(word) or is_number(word)
