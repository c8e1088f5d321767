"""What is measured of every chunk of a request against the question, before anything is decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.context.encoding import Encoding
from gateway.context.links import LinkGraph, bare_title, closeness, reach
from gateway.context.report import Document
from gateway.context.words import content_words

_K1, _B = 1.2, 0.75
_MIN_TITLE_LETTERS = 4
_ALIKE = 0.6
_UNSURE, _SURE = 0.2, 0.6


@dataclass(frozen=True, slots=True)
class Signals:
    """One number a chunk and signal, [n] each."""

    dense: NDArray[np.float64]
    """Cosine of question and chunk; of a long chunk, of its best part."""
    sentence: NDArray[np.float64]
    """Cosine of the question and the chunk's best sentence."""
    late: NDArray[np.float64]
    """MaxSim over tokens, weighted by idf; 0 where the tokens are not known."""
    bm25: NDArray[np.float64]
    """BM25 inside the request, 1 for its highest."""
    title_named: NDArray[np.float64]
    """1 where the question contains the chunk's title."""
    evidence: NDArray[np.float64]
    """What the question itself says for the chunk, in standard deviations; it seeds the link graph."""
    lead: NDArray[np.float64]
    """Closeness to the request's best chunk: 1 for that one, falling with the gap."""
    bridge: NDArray[np.float64]
    """Pull of linked strong chunks, at one and two steps, on a chunk that is unlike the question itself."""


def measure(
    question: str,
    asked: Encoding,
    documents: Sequence[Document],
    encodings: Sequence[Encoding],
    graph: LinkGraph,
) -> Signals:
    """Return the signals of ``documents``, which are at least one; ``graph`` holds the links between them."""
    dense = np.array([float((encoding.parts @ asked.vector).max()) for encoding in encodings])
    sentence = np.array([float((encoding.sentences @ asked.vector).max()) for encoding in encodings])
    late = max_similarity(asked, encodings)
    bm25 = bm25_scores(question, [f"{document.title} {document.text}" for document in documents])
    title_named = np.array([float(is_title_named(document.title, question)) for document in documents])
    evidence = z(dense) + 0.5 * z(sentence) + z(late) + 0.7 * z(bm25) + title_named
    evidence /= evidence.std() or 1.0
    lead = closeness(evidence)
    return Signals(
        dense=dense,
        sentence=sentence,
        late=late,
        bm25=bm25 / (bm25.max() or 1.0),
        title_named=title_named,
        evidence=evidence,
        lead=lead,
        bridge=_bridge(reach(graph, evidence), lead, late if late.any() else dense, float(dense.max())),
    )


def _bridge(
    pull: NDArray[np.float64], lead: NDArray[np.float64], likeness: NDArray[np.float64], best: float
) -> NDArray[np.float64]:
    """Weigh the links' pull by how little the question explains the chunk, and how well the best one.

    A question that no chunk is about has no strong chunk to hang others on, however they are linked.
    """
    unlike = np.maximum(0.0, 1.0 - likeness / _ALIKE)
    surely_about = min(max((best - _UNSURE) / (_SURE - _UNSURE), 0.0), 1.0)
    bridge: NDArray[np.float64] = pull * (1.0 - lead) * unlike * surely_about
    return bridge


def max_similarity(asked: Encoding, encodings: Sequence[Encoding]) -> NDArray[np.float64]:
    """Return MaxSim: the mean over question tokens, weighted by idf, of the best cosine with a chunk's token.

    The idf is the request's own, ln(1 + n / (1 + chunks with the token)): a token that every chunk has weighs
    least.
    """
    import torch

    n = len(encodings)
    holders = Counter(token for encoding in encodings for token in set(encoding.token_ids.tolist()))
    weights = np.array([math.log(1.0 + n / (1.0 + holders[token])) for token in asked.token_ids.tolist()])
    scores = np.zeros(n)
    filled = [index for index, encoding in enumerate(encodings) if len(encoding.tokens)]
    if not filled or not len(weights):
        return scores
    tokens = torch.from_numpy(np.concatenate([encodings[index].tokens for index in filled])).float()
    cosines = (tokens @ torch.from_numpy(asked.tokens).float().T).numpy()
    lengths = [len(encodings[index].tokens) for index in filled]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    best = np.maximum.reduceat(cosines, starts, axis=0)
    scores[filled] = best @ (weights / weights.sum())
    return scores


def bm25_scores(question: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return Okapi BM25 (k1 1.2, b 0.75) of each text, with document frequencies inside the request."""
    counts = [Counter(content_words(text)) for text in texts]
    lengths = np.array([sum(count.values()) for count in counts], dtype=float)
    relative = 1.0 - _B + _B * lengths / max(float(lengths.mean()), 1.0)
    scores = np.zeros(len(texts))
    for term in sorted(set(content_words(question))):
        frequency = np.array([count[term] for count in counts], dtype=float)
        num_holders = np.count_nonzero(frequency)
        idf = math.log(1.0 + (len(texts) - num_holders + 0.5) / (num_holders + 0.5))
        scores += idf * frequency * (_K1 + 1.0) / (frequency + _K1 * relative)
    return scores


def is_title_named(title: str, question: str) -> bool:
    """Tell whether the question contains the whole title, which is to have four letters at least."""
    bare = bare_title(title)
    return len(bare) >= _MIN_TITLE_LETTERS and bare in question.lower()


def z(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``values`` in standard deviations from their mean; zeros where they do not differ."""
    deviation = float(values.std())
    scaled: NDArray[np.float64] = (values - values.mean()) / (deviation if deviation > 1e-6 else 1.0)
    return scaled
