"""What a choice of chunks is worth for one labelled request: pure functions of what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.context.duplicates import find_duplicates
from gateway.context.given import text_of
from gateway.context.report import Document
from gateway.lab.labelled import LabelledRequest

Mask: TypeAlias = NDArray[np.bool_]

UNDEFINED = float("nan")
OFF_TOPIC = "off"


@dataclass(frozen=True, slots=True)
class Labels:
    """One request's n chunks as the measures see them."""

    is_relevant: Mask
    """[n]"""
    has_answer: Mask
    """[n] whether the text contains one of the request's answers, in any case of letters."""
    is_off_topic: Mask
    """[n] chunks that were taken from another question."""
    tokens: NDArray[np.int64]
    """[n] at least 1 each."""
    copies: Mapping[int, int]
    """Near-copy to the earlier chunk that it repeats."""
    can_answer: bool
    """Whether the request names answers at all."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Shares in [0, 1]; NaN where there is nothing to take a share of."""

    recall: float
    """Of the relevant chunks, those kept. A relevant copy that is dropped counts as lost."""
    full: float
    """1 where all relevant chunks are kept, else 0."""
    tokens: float
    """Of the chunks' tokens, those kept."""
    answer: float
    """1 where some kept chunk contains an answer, else 0; NaN for a request without answers."""
    recall_lenient: float
    """As recall, with a dropped chunk counted as kept where a near-copy of it is kept."""
    off_topic_dropped: float
    """Of the chunks taken from another question, those dropped."""


NAMES = tuple(field.name for field in fields(Measures))


def label(request: LabelledRequest, tokens: NDArray[np.int64]) -> Labels:
    """Read what the measures need from ``request``; ``tokens`` [n] are its chunks' lengths."""
    answers = [answer.casefold() for answer in request.answers if answer.strip()]
    texts = [text_of(document).casefold() for document in request.documents]
    return Labels(
        is_relevant=np.array([document.is_relevant for document in request.documents]),
        has_answer=np.array([any(answer in text for answer in answers) for text in texts]),
        is_off_topic=np.array([document.kind == OFF_TOPIC for document in request.documents]),
        tokens=np.maximum(tokens, 1),
        copies=find_duplicates([Document(each.id, each.text, each.title) for each in request.documents]),
        can_answer=bool(answers),
    )


def measure(labels: Labels, kept: Mask) -> Measures:
    """Measure the choice ``kept`` [n]."""
    return Measures(
        recall=_share(kept, labels.is_relevant),
        full=float(kept[labels.is_relevant].all()) if labels.is_relevant.any() else UNDEFINED,
        tokens=float(labels.tokens[kept].sum() / labels.tokens.sum()),
        answer=float((kept & labels.has_answer).any()) if labels.can_answer else UNDEFINED,
        recall_lenient=_share(_with_copies(kept, labels.copies), labels.is_relevant),
        off_topic_dropped=_share(~kept, labels.is_off_topic),
    )


def as_mask(indices: NDArray[np.int64] | list[int], num_chunks: int) -> Mask:
    """Return [num_chunks] which of the chunks ``indices`` names."""
    mask = np.zeros(num_chunks, bool)
    mask[indices] = True
    return mask


def _share(chosen: Mask, among: Mask) -> float:
    return float(chosen[among].mean()) if among.any() else UNDEFINED


def _with_copies(kept: Mask, copies: Mapping[int, int]) -> Mask:
    """Add every chunk of whose group, an original and its near-copies, one is kept."""
    group = np.array([copies.get(index, index) for index in range(len(kept))])
    with_copies: Mask = np.isin(group, group[kept])
    return with_copies
