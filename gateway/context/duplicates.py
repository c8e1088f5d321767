"""Near-copies among the chunks: the earliest stays. Texts that differ in a number or a name are no copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from gateway.context.alignment import Written, differing_facts, write_down
from gateway.context.report import Document
from gateway.context.words import words

CONTAINMENT = 0.6
"""Share of a text's 3-grams that another must have. A cosine of .95 misses a third of the copies that lost a
sentence, and takes a quarter of contradicting pairs for copies."""

_GRAM = 3
_MAX_ORIGINALS = 8
"""A chunk is laid beside no more than these, so that a hundred forms filled in otherwise take no seconds."""
_COLUMNS = 4_096


def find_duplicates(documents: Sequence[Document]) -> dict[int, int]:
    """Return, for each near-copy, the index of the earlier document that it repeats."""
    grams = [word_grams(document.text) for document in documents]
    shared = count_shared(grams)
    written: dict[int, Written] = {}
    copies: dict[int, int] = {}
    for index, candidate in enumerate(grams):
        near = np.flatnonzero(shared[index, :index] >= CONTAINMENT * max(len(candidate), 1))
        alike = [int(each) for each in near if int(each) not in copies]
        if not candidate:  # no words at all, only signs
            alike = [each for each in range(index) if documents[each].text == documents[index].text]
        alike = sorted(alike, key=lambda each: -shared[index, each])[:_MAX_ORIGINALS]
        original = next((each for each in sorted(alike) if _agree(documents, each, index, written)), None)
        if original is not None:
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


def count_shared(grams: Sequence[frozenset[Hashable]]) -> NDArray[np.int64]:
    """Return [n, n] how many 3-grams two texts share. Only what two texts have at all is counted."""
    n = len(grams)
    holders: dict[Hashable, list[int]] = defaultdict(list)
    for index, held in enumerate(grams):
        for gram in held:
            holders[gram].append(index)
    common = [indices for indices in holders.values() if len(indices) > 1]
    shared = np.zeros((n, n), np.float32)
    for start in range(0, len(common), _COLUMNS):
        block = common[start : start + _COLUMNS]
        holds = np.zeros((n, len(block)), np.float32)
        for column, indices in enumerate(block):
            holds[indices, column] = 1.0
        shared += holds @ holds.T
    counts: NDArray[np.int64] = shared.astype(np.int64)
    return counts


def contradicts(text: str, other: str) -> bool:
    """Tell whether, in the same place of both texts, different numbers or different names stand."""
    return bool(differing_facts(write_down(text), write_down(other)))


def _agree(documents: Sequence[Document], first: int, second: int, written: dict[int, Written]) -> bool:
    """Tell whether two near-copies state the same; ``written`` keeps what has been split into words."""
    if documents[first].text != documents[second].text:
        for index in (first, second):
            if index not in written:
                written[index] = write_down(documents[index].text)
        if differing_facts(written[first], written[second]):
            return False
    return not contradicts(documents[first].title, documents[second].title)
