"""Near-copies among the chunks: the earliest stays. Texts that differ in a number or a name are no copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from gateway.context.report import Document
from gateway.context.words import STOP_WORDS, cased_words, is_number

CONTAINMENT = 0.6
"""Share of a text's 3-grams that another must have. A cosine of .95 misses a third of the copies that lost a
sentence, and takes a quarter of contradicting pairs for copies."""

_GRAM = 3


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    words: tuple[str, ...]
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
    lowered = tuple(word.lower() for word in cased_words(text))
    if len(lowered) < _GRAM:
        return frozenset({lowered} if lowered else ())
    return frozenset(zip(*(lowered[shift:] for shift in range(_GRAM)), strict=False))


def contradicts(text: str, other: str) -> bool:
    """Tell whether, in the same place of both texts, different numbers or different names stand."""
    return _has_conflict(tuple(cased_words(text)), tuple(cased_words(other)))


def _fingerprint(document: Document) -> _Fingerprint:
    return _Fingerprint(tuple(cased_words(document.text)), word_grams(document.text))


def _repeats(candidate: _Fingerprint, original: _Fingerprint) -> bool:
    if not candidate.grams or not original.grams:
        return candidate.words == original.words
    if containment(candidate.grams, original.grams) < CONTAINMENT:
        return False
    return not _has_conflict(candidate.words, original.words)


def _has_conflict(words: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Compare what each side has alone: the same two words before or after it mean the same place."""
    alone = set(words) - set(others)
    alone_there = set(others) - set(words)
    if not alone or not alone_there:
        return False
    there = _places(others, alone_there)
    return any(kind in there[place] for place, kinds in _places(words, alone).items() for kind in kinds)


def _places(words: tuple[str, ...], wanted: set[str]) -> dict[tuple[str, ...], set[str]]:
    """Map the two neighbours on either side of each wanted number or name to what stands there."""
    lowered = ["", "", *(word.lower() for word in words), "", ""]
    places: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for index, word in enumerate(words):
        kind = _kind(word) if word in wanted else None
        if kind is not None:
            places["before", lowered[index], lowered[index + 1]].add(kind)
            places["after", lowered[index + 3], lowered[index + 4]].add(kind)
    return places


def _kind(word: str) -> str | None:
    if is_number(word):
        return "number"
    if word[0].isupper() and word.lower() not in STOP_WORDS:
        return "name"
    return None
