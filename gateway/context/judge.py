"""One request's documents weighed against its question: pure computation, once the encodings are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.context.asked import Asked
from gateway.context.duplicates import find_duplicates
from gateway.context.encoding import Encoding, Vectors
from gateway.context.given import text_of
from gateway.context.links import LinkGraph, build_graph
from gateway.context.report import Document
from gateway.context.selector import Keep, Scorer
from gateway.context.signals import Signals, measure
from gateway.context.themes import find_clusters
from gateway.context.words import is_latin


@dataclass(frozen=True, slots=True)
class Sorting:
    """What can be said of the documents before anything is encoded, by their indices as sent."""

    empty: frozenset[int]
    copies: dict[int, int]
    """Near-copy to the earlier document that it repeats."""
    unjudged: frozenset[int]
    """In a script that the encoder cannot read, they or the question."""
    judged: tuple[int, ...]


NOTHING_SORTED = Sorting(frozenset(), {}, frozenset(), ())


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judged documents, n of them, in the order of ``sorting.judged``."""

    sorting: Sorting
    scorer: Scorer
    documents: tuple[Document, ...]
    probability: NDArray[np.float64]
    """[n] keep-probability."""
    unlinked: NDArray[np.float64]
    """[n] the same without what the link graph adds."""
    signals: Signals
    graph: LinkGraph
    clusters: tuple[int, ...]
    asked: Asked
    vectors: Vectors
    """[n, d], the documents' own, of unit length."""

    def needed(self, keep: Keep) -> NDArray[np.float64]:
        """Return [n] the keep-probability from which on each document stays."""
        sizes = np.array([len(text_of(document)) for document in self.documents], float)
        return self.scorer.needed(keep, self.probability, sizes)

    @property
    def has_theme(self) -> bool:
        """Whether any chunk is about the question, by what it says itself."""
        return bool(self.unlinked.max() >= self.scorer.about)


def sort_out(
    question: str, documents: Sequence[Document], can_read: Callable[[str], bool] = is_latin
) -> Sorting:
    """Tell apart what is empty, a copy, in a script that ``can_read`` denies, and left to be judged."""
    empty = frozenset(index for index, document in enumerate(documents) if not document.text.strip())
    filled = [index for index in range(len(documents)) if index not in empty]
    found = find_duplicates([documents[index] for index in filled])
    copies = {filled[copy]: filled[original] for copy, original in found.items()}
    originals = [index for index in filled if index not in copies]
    is_readable = can_read(question)
    judged = tuple(index for index in originals if is_readable and can_read(documents[index].text))
    return Sorting(empty, copies, frozenset(originals) - frozenset(judged), judged)


def judge(
    asked: Asked,
    sorting: Sorting,
    documents: Sequence[Document],
    encodings: Sequence[Encoding],
    scorer: Scorer,
) -> Judgement:
    """Weigh the ``sorting.judged`` among ``documents``, at least one; ``encodings`` are theirs."""
    judged = tuple(documents[index] for index in sorting.judged)
    graph = build_graph(judged)
    signals = measure(asked, judged, encodings, graph)
    probability = scorer.probability(signals)
    vectors = np.stack([encoding.vector for encoding in encodings])
    return Judgement(
        sorting=sorting,
        scorer=scorer,
        documents=judged,
        probability=probability,
        unlinked=scorer.probability_without_links(signals),
        signals=signals,
        graph=graph,
        clusters=tuple(find_clusters(vectors, probability)),
        asked=asked,
        vectors=vectors,
    )
