"""Near-copies among the chunks: the earliest stays. Texts that differ in a number or a name are no copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from gateway.context.report import Document
from gateway.context.words import STOP_WORDS, cased_words, is_number, words

CONTAINMENT = 0.6
"""Share of a text's 3-grams that another must have. A cosine of .95 misses a third of the copies that lost a
sentence, and takes a quarter of contradicting pairs for copies."""

_GRAM = 3


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    title: str
    text: str
    written: tuple[str, ...]
    """The words as they are written."""
    grams: frozenset[Hashable]


def find_duplicates(documents: Sequence[Document]) -> dict[int, int]:
    """Return, for each near-copy, the index of the earlier document that it repeats."""
    prints = [_fingerprint(document) for document in documents]
    copies: dict[int, int] = {}
    originals: list[int] = []
    for index, candidate in enumerate(prints):
        original = next((i for i in originals if _repeats(candidate, prints[i])), None)
        if original is None:
            originals.append(index)
        else:
            copies[index] = original
    return copies


def containment(copy: frozenset[Hashable], original: frozenset[Hashable]) -> float:
    """Return the share of ``copy`` that is in ``original``."""
    return len(copy & original) / len(copy) if copy else 0.0


def word_grams(text: str) -> frozenset[Hashable]:
    """Return the word 3-grams of ``text``; a shorter text is one gram as a whole."""
    found = tuple(words(text))
    if len(found) < _GRAM:
        return frozenset({found} if found else ())
    return frozenset(zip(*(found[shift:] for shift in range(_GRAM)), strict=False))


def contradicts(text: str, other: str) -> bool:
    """Tell whether, in the same place of both texts, different numbers or different names stand."""
    return _has_conflict(tuple(cased_words(text)), tuple(cased_words(other)))


def _fingerprint(document: Document) -> _Fingerprint:
    written = tuple(cased_words(document.text))
    return _Fingerprint(document.title, document.text, written, word_grams(document.text))


def _repeats(candidate: _Fingerprint, original: _Fingerprint) -> bool:
    if candidate.grams or original.grams:
        is_alike = containment(candidate.grams, original.grams) >= CONTAINMENT
    else:  # no words at all, only signs
        is_alike = candidate.text == original.text
    return (
        is_alike
        and not _has_conflict(candidate.written, original.written)
        and not contradicts(candidate.title, original.title)
    )


def _has_conflict(written: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Compare what each side has alone: the same two words before or after it mean the same place."""
    lowered, lowered_there = [word.lower() for word in written], [word.lower() for word in others]
    alone, alone_there = set(lowered) - set(lowered_there), set(lowered_there) - set(lowered)
    if not alone or not alone_there:
        return False
    there = _places(others, lowered_there, alone_there)
    here = _places(written, lowered, alone)
    return any(kind in there[place] for place, kinds in here.items() for kind in kinds)


def _places(
    written: tuple[str, ...], lowered: list[str], wanted: set[str]
) -> dict[tuple[str, ...], set[str]]:
    """Map the two neighbours on either side of each wanted word to "number" or "name", which it is."""
    around = ["", "", *lowered, "", ""]
    places: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for index, word in enumerate(written):
        kind = _kind(word) if lowered[index] in wanted else None
        if kind is not None:
            places["before", around[index], around[index + 1]].add(kind)
            places["after", around[index + 3], around[index + 4]].add(kind)
    return places


def _kind(word: str) -> str | None:
    if is_number(word):
        return "number"
    if word[0].isupper() and word.lower() not in STOP_WORDS:
        return "name"
    return None
