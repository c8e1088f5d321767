"""Measures of a choice, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.context.given import text_of
from gateway.evaluation.measures import Labels, as_mask, label, measure
from gateway.lab.labelled import LabelledDocument, LabelledRequest

SLIP = (
    "The Gannet left the slip in Polruan in the spring of that year and was towed to Fowey for her engines."
)
DOCUMENTS = (
    LabelledDocument("a", SLIP, "Gannet", True, "gold"),
    LabelledDocument("b", f"News: {SLIP}", "Gannet", True, "gold"),
    LabelledDocument("c", "TREWIN and daughters built tugs.", "", True, "gold"),
    LabelledDocument("d", "Fowey has a ferry.", "Fowey", False, "hard"),
    LabelledDocument("e", "Bread rises twice.", "Bread", False, "off"),
    LabelledDocument("f", "Moss grows in the shade.", "Trewin's moss", False, "off"),
)
REQUEST = LabelledRequest("r", "harbour", "Who built her?", DOCUMENTS, ("Trewin",))
TOKENS = np.array([30, 32, 8, 6, 4, 0])


@pytest.fixture
def labels() -> Labels:
    return label(REQUEST, TOKENS)


def test_labels_say_what_each_chunk_is(labels: Labels) -> None:
    assert labels.is_relevant.tolist() == [True, True, True, False, False, False]
    assert labels.is_off_topic.tolist() == [False, False, False, False, True, True]
    assert labels.has_answer.tolist() == [False, False, True, False, False, True]  # any case, title too
    assert labels.tokens.tolist() == [30, 32, 8, 6, 4, 1]
    assert dict(labels.copies) == {1: 0}


def test_a_choice_is_measured(labels: Labels) -> None:
    found = measure(labels, as_mask([0, 2, 4], 6))
    assert found.recall == pytest.approx(2 / 3)  # the copy b is lost
    assert found.full == 0.0
    assert found.tokens == pytest.approx((30 + 8 + 4) / 81)
    assert found.answer == 1.0
    assert found.recall_lenient == 1.0  # its original stayed
    assert found.off_topic_dropped == 0.5


def test_an_original_that_is_dropped_for_its_copy_is_leniently_there(labels: Labels) -> None:
    found = measure(labels, as_mask([1], 6))
    assert found.recall == pytest.approx(1 / 3)
    assert found.recall_lenient == pytest.approx(2 / 3)
    assert found.answer == 0.0
    assert found.off_topic_dropped == 1.0


def test_keeping_everything_or_nothing(labels: Labels) -> None:
    everything, nothing = measure(labels, as_mask(list(range(6)), 6)), measure(labels, as_mask([], 6))
    assert (everything.recall, everything.full, everything.tokens, everything.answer) == (1, 1, 1, 1)
    assert (nothing.recall, nothing.full, nothing.tokens, nothing.answer) == (0, 0, 0, 0)


def test_there_is_no_share_of_nothing() -> None:
    request = LabelledRequest("r", "harbour", "Who?", DOCUMENTS[3:4])
    found = measure(label(request, np.array([5])), np.array([True]))
    assert math.isnan(found.recall)
    assert math.isnan(found.full)
    assert math.isnan(found.answer)
    assert math.isnan(found.off_topic_dropped)
    assert found.tokens == 1.0


def test_a_title_is_read_before_its_text() -> None:
    assert text_of(DOCUMENTS[3]) == "Fowey. Fowey has a ferry."
    assert text_of(DOCUMENTS[2]) == "TREWIN and daughters built tugs."
