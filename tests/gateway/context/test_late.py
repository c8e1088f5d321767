"""MaxSim against plain numpy, from its definition."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gateway.context.asked import ask
from gateway.context.encoding import Encoding, unit
from gateway.context.late import match_tokens


def encoding(rng: np.random.Generator, ids: list[int], dimension: int = 8) -> Encoding:
    tokens = unit(rng.normal(size=(len(ids), dimension)).astype(np.float32))
    whole = unit(tokens.sum(axis=0))
    return Encoding(whole, whole[None], whole[None], tokens.astype(np.float16), np.array(ids, np.int32))


def best_cosines(chunk: Encoding, asked: Encoding) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    cosines = chunk.tokens.astype(float) @ asked.tokens.astype(float).T
    return np.asarray(cosines.max(axis=0))


def test_similarity_is_the_idf_weighted_mean_of_the_best_cosines() -> None:
    rng = np.random.default_rng(5)
    asked = encoding(rng, [7, 8, 9])
    chunks = [encoding(rng, [7, 1, 2]), encoding(rng, [8, 7]), encoding(rng, [3, 4, 5, 6])]
    holders = {7: 2, 8: 1, 9: 0}
    idf = np.array([math.log(1 + 3 / (1 + holders[token])) for token in (7, 8, 9)])
    expected = [float((best_cosines(chunk, asked) * idf).sum() / idf.sum()) for chunk in chunks]
    assert match_tokens(ask("?", asked), chunks).similarity() == pytest.approx(expected, abs=1e-5)


def test_a_token_counts_by_its_weight() -> None:
    rng = np.random.default_rng(5)
    asked = encoding(rng, [7, 8])
    chunk = encoding(rng, [1, 2, 3])
    first_alone = replace(ask("?", asked), token_weights=np.array([1.0, 0.0]))
    expected = [best_cosines(chunk, asked)[0]]
    assert match_tokens(first_alone, [chunk]).similarity() == pytest.approx(expected, abs=1e-5)


def test_beyond_is_what_a_chunk_adds_to_the_best_one() -> None:
    rng = np.random.default_rng(8)
    asked = encoding(rng, [7, 8, 9])
    chunks = [encoding(rng, [1, 2]), encoding(rng, [3, 4])]
    both = np.maximum(best_cosines(chunks[0], asked), best_cosines(chunks[1], asked))
    matches = match_tokens(ask("?", asked), chunks)
    together = float((both * matches.weights).sum())
    gain = together - float(matches.similarity()[0])
    assert matches.beyond(0) == pytest.approx([0.0, gain], abs=1e-5)


def test_the_similarity_of_a_chunk_without_tokens_is_zero() -> None:
    rng = np.random.default_rng(6)
    bare = Encoding.of_vector([1.0] * 8)
    scores = match_tokens(ask("?", encoding(rng, [1, 2])), [bare, encoding(rng, [1])]).similarity()
    assert scores[0] == 0.0
    assert scores[1] != 0.0
    assert match_tokens(ask("?", bare), [bare]).similarity().tolist() == [0.0]
