"""The signals against plain numpy, from the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.context.encoding import Encoding, unit
from gateway.context.links import build_graph
from gateway.context.report import Document
from gateway.context.signals import bm25_scores, is_title_named, max_similarity, measure, z


def encoding(rng: np.random.Generator, ids: list[int], dimension: int = 8) -> Encoding:
    tokens = unit(rng.normal(size=(len(ids), dimension)).astype(np.float32))
    whole = unit(tokens.sum(axis=0))
    return Encoding(whole, whole[None], whole[None], tokens.astype(np.float16), np.array(ids, np.int32))


def test_bm25_is_the_formula_of_okapi() -> None:
    # Content words: 3, 2 and 4; "silver" is in two texts, "mirror" in one.
    texts = ["silver mirror silver", "copper pan", "silver spoon fork knife"]
    average = (3 + 2 + 4) / 3

    def part(frequency: int, length: int, holders: int) -> float:
        idf = math.log(1 + (3 - holders + 0.5) / (holders + 0.5))
        return idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length / average))

    expected = [part(2, 3, 2) + part(1, 3, 1), 0.0, part(1, 4, 2)]
    assert bm25_scores("Which silver mirror?", texts) == pytest.approx(expected)


def test_max_similarity_is_the_idf_weighted_mean_of_the_best_cosines() -> None:
    rng = np.random.default_rng(5)
    asked = encoding(rng, [7, 8, 9])
    chunks = [encoding(rng, [7, 1, 2]), encoding(rng, [8, 7]), encoding(rng, [3, 4, 5, 6])]
    holders = {7: 2, 8: 1, 9: 0}
    idf = np.array([math.log(1 + 3 / (1 + holders[token])) for token in (7, 8, 9)])
    expected: list[float] = []
    for chunk in chunks:
        cosines = chunk.tokens.astype(float) @ asked.tokens.astype(float).T
        expected.append(float((cosines.max(axis=0) * idf).sum() / idf.sum()))
    assert max_similarity(asked, chunks) == pytest.approx(expected, abs=1e-5)


def test_max_similarity_of_a_chunk_without_tokens_is_zero() -> None:
    rng = np.random.default_rng(6)
    bare = Encoding.of_vector([1.0] * 8)
    scores = max_similarity(encoding(rng, [1, 2]), [bare, encoding(rng, [1])])
    assert scores[0] == 0.0
    assert scores[1] != 0.0
    assert max_similarity(bare, [bare]).tolist() == [0.0]


def test_standard_scores_of_equal_values_are_zero() -> None:
    values: NDArray[np.float64] = np.array([1.0, 2.0, 6.0])
    assert z(values) == pytest.approx((values - 3.0) / math.sqrt(14 / 3))
    assert z(np.array([0.3, 0.3])).tolist() == [0.0, 0.0]


def test_a_title_counts_as_named_where_the_question_has_it_whole() -> None:
    assert is_title_named("Mercury (planet)", "How hot is Mercury by day?") is True
    assert is_title_named("Mercury and Venus", "How hot is Mercury by day?") is False
    assert is_title_named("It", "How hot is it?") is False


def test_the_strongest_chunk_leads_and_pulls_what_hangs_on_it() -> None:
    rng = np.random.default_rng(7)
    asked = encoding(rng, [1, 2, 3])
    unlike = Encoding.of_vector((-asked.vector).tolist())
    documents = [
        Document("about", "Vessel Point has the Amberley Reflector.", "Vessel Point"),
        Document("hop", "It is coated with silver.", "Amberley Reflector"),
        Document("off", "It is coated with chocolate.", "Praline"),
    ]
    signals = measure("Vessel Point", asked, documents, [asked, unlike, unlike], build_graph(documents))
    assert signals.lead.argmax() == 0
    assert signals.lead[0] == 1.0
    assert signals.bridge[0] == 0.0
    assert signals.bridge[1] > 0.5
    assert signals.bridge[2] == 0.0
    assert signals.title_named.tolist() == [1.0, 0.0, 0.0]
