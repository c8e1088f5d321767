from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.context.render import arrange, render_document
from gateway.context.report import Document
from gateway.context.select import meet, needed_probability, within_budget


def test_what_meets_the_threshold_stays_and_never_fewer_than_one() -> None:
    probability = np.array([0.2, 0.7, 0.5])
    assert meet(probability, 0.5).tolist() == [False, True, True]
    assert meet(probability, 0.9).tolist() == [False, True, False]


def test_a_chunk_has_to_be_worth_its_size() -> None:
    probability, sizes = np.array([0.9, 0.6, 0.5, 0.1]), np.array([100.0, 100.0, 200.0, 0.0])
    # Expected relevant 2.1, sqrt(4) = 2: at a price of .1 a whole request of text needs .42.
    needed = needed_probability(probability, sizes, 0.1)
    assert needed == pytest.approx([0.105, 0.105, 0.21, 0.0])
    assert needed_probability(probability, sizes, 0.2) == pytest.approx(2 * needed)


def test_what_is_likelier_relevant_than_not_stays_however_long_it_is() -> None:
    needed = needed_probability(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1.0, 1.0, 1.0, 1000.0]), 1.0)
    assert needed[3] == 0.5


def test_beside_a_huge_chunk_the_others_are_not_for_nothing() -> None:
    # Counted as ten of the others: 1/13 of the size each, sqrt(4) = 2.
    probability = np.array([0.2, 0.2, 0.2, 0.2])
    needed = needed_probability(probability, np.array([80.0, 80.0, 80.0, 50_000.0]), 0.1)
    assert needed == pytest.approx([0.2 / 13] * 3 + [0.2 * 10 / 13])


def test_where_hardly_anything_is_expected_one_relevant_chunk_is_assumed() -> None:
    needed = needed_probability(np.array([0.01, 0.02]), np.array([50.0, 50.0]), 0.1)
    assert needed == pytest.approx([0.1 * math.sqrt(2) / 2] * 2)


def test_the_budget_is_filled_past_what_does_not_fit() -> None:
    scores, tokens = [0.9, 0.8, 0.7, 0.6], [50, 80, 30, 20]
    alone: dict[int, list[int]] = {index: [] for index in range(4)}
    assert within_budget(alone, scores, tokens, 100) == {0, 2, 3}
    assert within_budget(alone, scores, tokens, 15) == set()
    assert within_budget({1: [], 3: []}, scores, tokens, 1000) == {1, 3}


def test_a_copy_that_fits_takes_the_place_of_its_original() -> None:
    scores, tokens = [0.9, 0.9, 0.4], [50, 20, 10]
    assert within_budget({0: [1], 2: []}, scores, tokens, 40) == {1, 2}
    assert within_budget({0: [1], 2: []}, scores, tokens, 60) == {0, 2}


def test_documents_stand_as_sent_by_relevance_or_with_the_best_at_both_ends() -> None:
    scores = [0.1, 0.9, 0.5, 0.7]
    assert arrange(scores, "as_sent") == [0, 1, 2, 3]
    assert arrange(scores, "relevance") == [1, 3, 2, 0]
    assert arrange(scores, "ends") == [1, 2, 0, 3]
    assert arrange([], "ends") == []


def test_a_template_is_filled_once_and_an_empty_title_leaves_no_gap() -> None:
    document = Document("d7", " The {id} stays. ", "On braces")
    assert render_document(document, "[{id}] {title}\n{text}") == "[d7] On braces\nThe {id} stays."
    untitled = Document("d8", "Text.")
    assert render_document(untitled, "[{id}] {title}\n{text}") == "[d8]\nText."
    assert render_document(untitled, "{title}\n{text}") == "Text."
    assert render_document(untitled, "{id} {title} says: {text}") == "d8 says: Text."
