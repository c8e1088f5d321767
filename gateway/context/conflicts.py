"""Chunks that say the same but for one fact: another number, another name. Nobody decides which is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.context.alignment import Difference, Written, differing_facts, write_down
from gateway.context.duplicates import count_shared
from gateway.context.report import Conflict, Document
from gateway.context.words import content_words

NEAR = 0.5
"""Share of the shorter text's 3-grams that the other has, so that the two are laid side by side."""
_MAX_PAIRS = 64
"""The most alike are compared; a hundred forms filled in differently have thousands of pairs."""


@dataclass(frozen=True, slots=True)
class FoundConflict:
    """Two documents by their index, and what each says in the same place."""

    first: int
    second: int
    spans: tuple[str, str]
    detail: str

    def between(self, documents: Sequence[Document]) -> Conflict:
        """Return it with the documents' ids."""
        return Conflict((documents[self.first].id, documents[self.second].id), self.spans, self.detail)


def find_conflicts(documents: Sequence[Document]) -> list[FoundConflict]:
    """Return the pairs of near-identical ``documents`` that contradict each other, one place for each."""
    written: dict[int, Written] = {}
    found = []
    for first, second in _near_pairs(documents):
        for index in (first, second):
            if index not in written:
                written[index] = write_down(documents[index].text)
        differences = differing_facts(written[first], written[second])
        if differences and _have_one_subject(documents[first], documents[second], differences):
            found.append(_conflict(documents, first, second, differences[0]))
    return found


def _near_pairs(documents: Sequence[Document]) -> list[tuple[int, int]]:
    sizes, shared = count_shared([document.text for document in documents])
    shorter = np.maximum(np.minimum(sizes[:, None], sizes[None, :]), 1)
    share = np.triu(shared / shorter, 1)
    rows, columns = np.nonzero(share >= NEAR)
    best = np.argsort(-share[rows, columns], kind="stable")[:_MAX_PAIRS]
    return sorted((int(rows[each]), int(columns[each])) for each in best)


def _have_one_subject(document: Document, other: Document, differences: Sequence[Difference]) -> bool:
    """Tell apart what contradicts from what was written by one pattern about two things.

    "Arrud is a village of 50 people" and "Barin is a village of 70 people" are both true: their titles name
    two things, or another name stands at the beginning and other facts after it.
    """
    if _name_two_things(document, other):
        return False
    opens_otherwise = any(min(difference.starts) <= 1 for difference in differences)
    num_facts = len({difference.keys for difference in differences})
    return not (opens_otherwise and num_facts > 1)


def _name_two_things(document: Document, other: Document) -> bool:
    """Tell whether two titles are those of two things, and not of one thing on two web sites.

    So they are where they have no word in common, another number, or other names that are in their texts too.
    """
    here, there = set(content_words(document.title)), set(content_words(other.title))
    if not here or not there or here == there:
        return False
    found = differing_facts(write_down(document.title), write_down(other.title))
    keys = [difference.keys for difference in found]
    if not here & there or any(key[0].isdigit() for pair in keys for side in pair for key in side):
        return True
    texts = set(content_words(document.text)), set(content_words(other.text))
    return bool((here - there) & texts[0]) and bool((there - here) & texts[1])


def _conflict(
    documents: Sequence[Document], first: int, second: int, difference: Difference
) -> FoundConflict:
    here, there = difference.spans
    where = f" after {difference.context!r}" if difference.context else ""
    names = documents[first].id, documents[second].id
    detail = f"{names[0]} says {here!r}, {names[1]} says {there!r}{where}."
    return FoundConflict(first, second, difference.spans, detail)
