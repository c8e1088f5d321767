"""Thresholds, tables and calibration against figures worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gateway.training.choosing import (
    Kept,
    by_set,
    choose_about,
    choose_price,
    reliability,
    share_themeless,
)
from gateway.training.fitting import Judged
from gateway.training.measuring import Measured

NONE: Any = None  # no signals are looked at here


def judged(
    probability: Sequence[float], relevant: Sequence[int], *, name: str = "mine", kind: Any = "as_sent"
) -> Judged:
    n = len(probability)
    marked = np.isin(np.arange(n), relevant)
    example = Measured(kind, name, 0, marked, np.full(n, 1 / n), np.full(n, 10.0), NONE, NONE)
    return Judged(example, np.array(probability), np.array(probability))


# Four chunks of one size: each needs half the price times the expected relevant, 1.65 of A and 1.22 of B.
A = judged([0.9, 0.5, 0.2, 0.05], [0, 2])
B = judged([0.8, 0.1, 0.3, 0.02], [0, 1])
A_WHOLE = 0.2 / (1.65 / 2)
B_WHOLE = 0.1 / (1.22 / 2)
"""The highest price at which all that is relevant stays."""


def test_what_a_price_keeps_is_averaged_over_requests() -> None:
    # At .3 A needs .25 and B .18: two of four each, and one of the two relevant. At .12 it is .099 and .073.
    assert by_set([A, B], 0.3) == {"mine": Kept(0.5, 0.0, 0.5, 2)}
    assert by_set([A, B], 0.12) == {"mine": Kept(1.0, 1.0, 0.75, 2)}


def test_one_chunk_is_kept_where_none_is_worth_its_price() -> None:
    assert by_set([judged([0.3, 0.1], [1])], 2.0) == {"mine": Kept(0.0, 0.0, 0.5, 1)}


def test_the_price_is_the_highest_that_keeps_enough() -> None:
    assert choose_price([A, B], 0.76) == pytest.approx(B_WHOLE, rel=0.02)
    assert choose_price([A, B], 0.76) <= B_WHOLE
    assert choose_price([A, B], 0.75) == pytest.approx(A_WHOLE, rel=0.02)
    assert choose_price([judged([0.9, 0.0], [1])], 0.99) == pytest.approx(0.004)


def test_sets_count_alike_whatever_their_size() -> None:
    other = judged([0.9, 0.4], [0], name="other")
    # At any price the one of "other" is whole and those of "mine" half: .75 over sets, .67 over requests.
    assert choose_price([A, B, other], 0.74) == pytest.approx(2.0)


def test_only_requests_as_sent_choose_the_price() -> None:
    hopeless = judged([0.9, 0.0], [1], kind="untitled")
    assert choose_price([A, B, hopeless], 0.75) == choose_price([A, B], 0.75)


def test_nearly_every_answerable_request_has_a_theme() -> None:
    answerable = [judged([best, 0.0], [0]) for best in np.linspace(0.5, 1.0, 101)]
    assert choose_about(answerable) == pytest.approx(0.51)
    foreign = [judged([best], [], kind="foreign") for best in (0.1, 0.2, 0.6, 0.3)]
    assert share_themeless([*answerable, *foreign], 0.51) == 0.75


def test_calibration_compares_tenths() -> None:
    rows = reliability([judged([0.91, 0.99, 1.0, 0.05, 0.33], [0, 1])])
    assert rows[:2] == [(0.05, 0.0, 1), (0.33, 0.0, 1)]
    assert rows[2] == pytest.approx(((0.91 + 0.99 + 1.0) / 3, 2 / 3, 3))
