"""From labelled texts to the numbers that the selector learns from: the product's own signals."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from gateway.context.asked import ask
from gateway.context.encoding import EncoderModel, Encoding
from gateway.context.given import text_of
from gateway.context.links import build_graph
from gateway.context.report import Document
from gateway.context.signals import Signals, measure
from gateway.lab.labelled import LabelledDocument
from gateway.training.variations import Kind, Variation

_TEXTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A variation of n chunks in numbers."""

    kind: Kind
    set: str
    source: int
    relevant: NDArray[np.bool_]
    """[n]"""
    tokens: NDArray[np.float64]
    """[n] the encoder's tokens of each chunk, as a share of the request's."""
    sizes: NDArray[np.float64]
    """[n] characters of each chunk."""
    full: Signals
    vectors: Signals
    """As they are where only a vector a chunk is known."""


def encode_texts(model: EncoderModel, drawn: Sequence[Variation]) -> dict[str, Encoding]:
    """Encode every text of ``drawn`` once, about 90 kB each. Shows its progress."""
    texts = {text for variation in drawn for text in _texts(variation)}
    ordered = sorted(texts, key=len)
    encodings: dict[str, Encoding] = {}
    with tqdm(total=len(ordered), desc="encode", unit="text") as progress:
        for start in range(0, len(ordered), _TEXTS_AT_ONCE):
            batch = ordered[start : start + _TEXTS_AT_ONCE]
            encodings.update(zip(batch, model.encode(batch, threading.Event()), strict=True))
            progress.update(len(batch))
    return encodings


def measure_all(drawn: Iterable[Variation], encodings: Mapping[str, Encoding]) -> list[Measured]:
    """Measure every variation. Shows its progress."""
    return [
        _measured(variation, encodings) for variation in tqdm(list(drawn), desc="measure", unit="request")
    ]


def _measured(variation: Variation, encodings: Mapping[str, Encoding]) -> Measured:
    documents = [_document(document) for document in variation.documents]
    chunks = [encodings[text_of(document)] for document in documents]
    asked = ask(variation.question, encodings[variation.question])
    graph = build_graph(documents)
    sizes = np.array([max(1, len(chunk.token_ids)) for chunk in chunks], float)
    return Measured(
        kind=variation.kind,
        set=variation.set,
        source=variation.source,
        relevant=np.array([document.is_relevant for document in variation.documents]),
        tokens=sizes / sizes.sum(),
        sizes=np.array([len(text_of(document)) for document in documents], float),
        full=measure(asked, documents, chunks, graph),
        vectors=measure(asked, documents, [chunk.without_tokens() for chunk in chunks], graph),
    )


def _texts(variation: Variation) -> list[str]:
    return [variation.question, *map(text_of, variation.documents)]


def _document(labelled: LabelledDocument) -> Document:
    return Document(labelled.id, labelled.text, labelled.title)
