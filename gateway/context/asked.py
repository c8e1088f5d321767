"""What the documents are judged against: the question, in the encoder's space and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gateway.context.encoding import Encoding
from gateway.context.words import content_words


@dataclass(frozen=True, slots=True)
class Asked:
    """A question. Every signal reads it from here alone."""

    text: str
    encoding: Encoding
    """``vector`` [d] is what dense similarities are taken with, ``tokens`` [n, d] what MaxSim is."""
    token_weights: NDArray[np.float64]
    """[n] how much each token counts in MaxSim, before its idf."""
    terms: Mapping[str, float]
    """Content words in lower case, and how much each counts in BM25."""


def ask(question: str, encoding: Encoding) -> Asked:
    """Return ``question`` as it stands, every token and term with weight 1."""
    return Asked(
        text=question,
        encoding=encoding,
        token_weights=np.ones(len(encoding.token_ids)),
        terms=MappingProxyType(dict.fromkeys(content_words(question), 1.0)),
    )
