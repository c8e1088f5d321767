"""What the documents are judged against: the question, in the encoder's space and in words.

In a conversation the theme carries over. How much of it does depends on how much the question says on its
own: "and the second one?" is nearly all history, a complete question on another subject none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.context.ellipsis import missing_share
from gateway.context.encoding import Encoding, Vectors, unit
from gateway.context.words import content_words

DECAY = 0.3
"""What the summary keeps of the texts before when another comes that says something of its own."""
PULL = 3.0
"""Weight of the summary beside a question that says nothing on its own."""
MAX_TEXTS = 8
MAX_CHARS = 1_000
"""Of each earlier text; more of a conversation is not read."""
MAX_TOKENS = 64
"""Of each earlier text: an answer may be long, its beginning says what it is about."""

Earlier: TypeAlias = Sequence[tuple[str, Encoding]]
"""The conversation's texts with their encodings, oldest first."""


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


def recent(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the last ``MAX_TEXTS`` of a conversation, each by its first ``MAX_CHARS``."""
    return tuple(text[:MAX_CHARS] for text in texts if text.strip())[-MAX_TEXTS:]


def needed_history(question: str, history: Sequence[str]) -> tuple[str, ...]:
    """Return what of ``history`` has to be encoded for ``question``: nothing, where it says all itself."""
    return recent(history) if missing_share(question) > 0.0 else ()


def ask(question: str, encoding: Encoding, earlier: Earlier = ()) -> Asked:
    """Return ``question`` with as much of the conversation as it leaves out.

    The running summary of the earlier texts is s_t = d s_{t-1} + (1 - d) v_t, where d is ``DECAY`` for a text
    that says something of its own and 1 for one that says nothing ("why?", "I do not know."). Documents are
    compared with unit(v + λ s), λ = ``PULL`` · e², where e is the share of its meaning that the question
    leaves to the conversation (``missing_share``); squared, because a question that leaves out little may as
    well be a new one. Tokens and terms of the earlier texts join with λ times the text's share of s, scaled
    so that the last one that says something counts λ. For e = 0 nothing changes.

    The constants come from chats made of labelled requests: a question, a refusal to answer, and "why?" or
    the like, all after a turn on another subject. Recall is .09 without history; with it .97 at a decay of
    .3, .96 at .5, .89 at .7, and .93 at a pull of 1; .97 for the question itself.
    """
    alone = Asked(
        text=question,
        encoding=encoding,
        token_weights=np.ones(len(encoding.token_ids)),
        terms=MappingProxyType(dict.fromkeys(content_words(question), 1.0)),
    )
    pull = PULL * missing_share(question) ** 2
    shares = _shares([text for text, _ in earlier])
    if pull == 0.0 or not any(shares):
        return alone
    return _joined(alone, earlier, shares, pull)


def _shares(texts: Sequence[str]) -> list[float]:
    """Return how much of the summary each text is, by unrolling its recursion; they sum to 1 or are all 0."""
    shares: list[float] = []
    for text in texts:
        moves = 1.0 - missing_share(text)
        step = moves * (1.0 - DECAY) if any(shares) else float(moves > 0.0)
        shares = [share * (1.0 - step) for share in shares] + [step]
    return shares


def _joined(alone: Asked, earlier: Earlier, shares: Sequence[float], pull: float) -> Asked:
    """Add the earlier texts, the summary with the weight ``pull``, λ above."""
    summary = np.zeros_like(alone.encoding.vector)
    last = [share for share in shares if share > 0.0][-1]
    terms = dict(alone.terms)
    tokens, ids, weights = [alone.encoding.tokens], [alone.encoding.token_ids], [alone.token_weights]
    for (text, encoding), share in zip(earlier, shares, strict=True):
        if share == 0.0:
            continue
        summary += share * encoding.vector
        weight = pull * min(share / last, 1.0)
        tokens.append(encoding.tokens[:MAX_TOKENS])
        ids.append(encoding.token_ids[:MAX_TOKENS])
        weights.append(np.full(len(ids[-1]), weight))
        for term in content_words(text):
            terms[term] = max(terms.get(term, 0.0), weight)
    vector: Vectors = unit(alone.encoding.vector + np.float32(pull) * unit(summary))
    encoding = replace(
        alone.encoding,
        vector=vector,
        parts=vector[None],
        tokens=np.concatenate(tokens),
        token_ids=np.concatenate(ids),
    )
    said = [text for (text, _), share in zip(earlier, shares, strict=True) if share > 0.0]
    text = " ".join([*said, alone.text])
    return Asked(text, encoding, np.concatenate(weights), MappingProxyType(terms))
