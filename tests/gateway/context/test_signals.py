"""The signals against plain numpy, from the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.context.asked import ask
from gateway.context.encoding import Encoding, unit
from gateway.context.links import build_graph
from gateway.context.report import Document
from gateway.context.signals import measure, named_titles, z


def encoding(rng: np.random.Generator, ids: list[int], dimension: int = 8) -> Encoding:
    tokens = unit(rng.normal(size=(len(ids), dimension)).astype(np.float32))
    whole = unit(tokens.sum(axis=0))
    return Encoding(whole, whole[None], whole[None], tokens.astype(np.float16), np.array(ids, np.int32))


def test_standard_scores_of_equal_values_are_zero() -> None:
    values: NDArray[np.float64] = np.array([1.0, 2.0, 6.0])
    assert z(values) == pytest.approx((values - 3.0) / math.sqrt(14 / 3))
    assert z(np.array([0.3, 0.3])).tolist() == [0.0, 0.0]


def test_a_title_counts_as_named_where_the_question_has_it_whole() -> None:
    titles = ["Mercury (planet)", "Mercury and Venus", "It"]
    assert named_titles(titles, "How hot is Mercury by day, and is it like that at night?").tolist() == [
        1,
        0,
        0,
    ]


def test_a_title_inside_a_longer_one_is_not_meant() -> None:
    titles = ["On Fire", "Comets on Fire", "Fire"]
    assert named_titles(titles, "Where are Comets on Fire from?").tolist() == [0, 1, 0]
    assert named_titles(titles, "Is On Fire by Comets on Fire?").tolist() == [1, 1, 0]


def test_of_namesakes_the_one_is_meant_whose_brackets_are_given() -> None:
    titles = ["Alder (poet)", "Alder (tree)", "Alder"]
    assert named_titles(titles, "When was Alder (poet) born?").tolist() == [1, 0.5, 0.5]
    assert named_titles(titles, "When was Alder born?").tolist() == [1, 1, 1]


def test_the_strongest_chunk_leads_and_pulls_what_hangs_on_it() -> None:
    rng = np.random.default_rng(7)
    asked = encoding(rng, [1, 2, 3])
    unlike = Encoding.of_vector((-asked.vector).tolist())
    documents = [
        Document("about", "Vessel Point has the Amberley Reflector.", "Vessel Point"),
        Document("hop", "It is coated with silver.", "Amberley Reflector"),
        Document("off", "It is coated with chocolate.", "Praline"),
    ]
    signals = measure(ask("Vessel Point", asked), documents, [asked, unlike, unlike], build_graph(documents))
    assert signals.lead.argmax() == 0
    assert signals.lead[0] == 1.0
    assert signals.bridge[0] == 0.0
    assert signals.bridge[1] > 0.5
    assert signals.bridge[2] == 0.0
    assert signals.title_named.tolist() == [1.0, 0.0, 0.0]
