"""Near-copies among the chunks: the earliest stays. Texts that differ in a number or a name are no copies."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

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
"""So many 3-grams are multiplied at once, which bounds the memory."""
_WORDS = 2**21
"""Different words of a request, so that three numbers fit one of 64 bits."""
_NONE = np.zeros(0, np.int64)


def find_duplicates(documents: Sequence[Document]) -> dict[int, int]:
    """Return, for each near-copy, the index of the earlier document that it repeats."""
    sizes, shared = count_shared([document.text for document in documents])
    written: dict[int, Written] = {}
    copies: dict[int, int] = {}
    for index, size in enumerate(sizes.tolist()):
        near = np.flatnonzero(shared[index, :index] >= CONTAINMENT * max(size, 1))
        alike = [int(each) for each in near if int(each) not in copies]
        if not size:  # no words at all, only signs
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


def count_shared(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return [n] how many word 3-grams each text has, and [n, n] how many two of them share."""
    import torch  # numpy's own product keeps a second thread spinning: 20 ms of processor time instead of 8

    grams = _numbered_grams(texts)
    sizes = np.array([len(held) for held in grams], np.int64)
    n = len(grams)
    _, numbers, holders = np.unique(np.concatenate([*grams, _NONE]), return_inverse=True, return_counts=True)
    is_common = holders[numbers] > 1
    rows, columns = np.repeat(np.arange(n), sizes)[is_common], numbers[is_common]
    columns = np.unique(columns, return_inverse=True)[1]
    width = int(columns.max(initial=-1)) + 1
    shared = torch.zeros((n, n))
    for start in range(0, width, _COLUMNS):
        here = (columns >= start) & (columns < start + _COLUMNS)
        holds = np.zeros((n, min(width - start, _COLUMNS)), np.float32)
        holds[rows[here], columns[here] - start] = 1.0
        shared += torch.from_numpy(holds) @ torch.from_numpy(holds).T
    return sizes, shared.numpy().astype(np.int64)


def _numbered_grams(texts: Sequence[str]) -> list[NDArray[np.int64]]:
    """Return per text its 3-grams, each once, as numbers that are equal for equal ones."""
    found = [words(text) for text in texts]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(found)), 1)}
    grams = []
    for each in found:
        numbers = list(map(vocabulary.__getitem__, each))
        if each:
            numbers += [0] * (_GRAM - len(each))
        ids = np.array(numbers, np.int64)
        grams.append(np.unique((ids[:-2] * _WORDS + ids[1:-1]) * _WORDS + ids[2:]))
    return grams


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
