"""All documents of a request in the order of their keep-probability; none is left out."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.context.decide import Weighed
from gateway.context.verdicts import UNKNOWN_SCORE


@dataclass(frozen=True, slots=True)
class Ranked:
    """One document's place."""

    index: int
    """Its position as sent."""
    score: float
    """Keep-probability in [0, 1]; of a near-copy its original's, of what cannot be judged .5."""
    is_judged: bool


def ranking(num_documents: int, weighed: Weighed) -> tuple[Ranked, ...]:
    """Return every document, best first, empty ones last; equals as sent, so a copy follows its original."""
    sorting, judgement = weighed.sorting, weighed.judgement
    scores = [UNKNOWN_SCORE] * num_documents
    if judgement is not None:
        for index, probability in zip(sorting.judged, judgement.probability, strict=True):
            scores[index] = float(probability)
    for copy, original in sorting.copies.items():
        scores[copy] = scores[original]
    for index in sorting.empty:
        scores[index] = 0.0
    order = sorted(range(num_documents), key=lambda index: (index in sorting.empty, -scores[index], index))
    unjudged = sorting.unjudged | {
        copy for copy, original in sorting.copies.items() if original in sorting.unjudged
    }
    return tuple(Ranked(index, scores[index], index not in unjudged) for index in order)
