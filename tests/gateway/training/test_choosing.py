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
    choose_threshold,
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
    example = Measured(kind, name, 0, marked, np.full(n, 1 / n), NONE, NONE)
    return Judged(example, np.array(probability), np.array(probability))


A = judged([0.9, 0.5, 0.2, 0.05], [0, 2])
B = judged([0.8, 0.1, 0.3, 0.02], [0, 1])


def test_what_a_threshold_keeps_is_averaged_over_requests() -> None:
    # At .25: A keeps 0 and 1 (recall 1/2), B keeps 0 and 2 (recall 1/2). At .1: 3 of 4 each, all of it.
    assert by_set([A, B], 0.25) == {"mine": Kept(0.5, 0.0, 0.5, 2)}
    assert by_set([A, B], 0.1) == {"mine": Kept(1.0, 1.0, 0.75, 2)}


def test_one_chunk_is_kept_where_nothing_meets_the_threshold() -> None:
    assert by_set([A], 0.95) == {"mine": Kept(0.5, 0.0, 0.25, 1)}


def test_the_threshold_is_the_highest_that_keeps_enough() -> None:
    # .1 keeps everything; between .1 and .2 B loses one of two, so the mean is .75.
    assert choose_threshold([A, B], 0.76) == pytest.approx(0.1, rel=0.02)
    assert choose_threshold([A, B], 0.76) <= 0.1
    assert choose_threshold([A, B], 0.75) == pytest.approx(0.2, rel=0.02)
    assert choose_threshold([judged([0.9, 0.0], [1])], 0.99) == pytest.approx(0.001, rel=0.02)


def test_sets_count_alike_whatever_their_size() -> None:
    other = judged([0.9, 0.4], [0], name="other")
    # At .3 the one of "other" is whole and each of "mine" half: .75 over sets, though .67 over requests.
    assert choose_threshold([A, B, other], 0.74) > 0.3


def test_only_requests_as_sent_choose_the_threshold() -> None:
    assert choose_threshold([A, B, judged([0.002], [0], kind="untitled")], 0.75) > 0.1


def test_nearly_every_answerable_request_has_a_theme() -> None:
    answerable = [judged([best, 0.0], [0]) for best in np.linspace(0.5, 1.0, 101)]
    assert choose_about(answerable) == pytest.approx(0.51)
    foreign = [judged([best], [], kind="foreign") for best in (0.1, 0.2, 0.6, 0.3)]
    assert share_themeless([*answerable, *foreign], 0.51) == 0.75


def test_calibration_compares_tenths() -> None:
    rows = reliability([judged([0.91, 0.99, 1.0, 0.05, 0.33], [0, 1])])
    assert rows[:2] == [(0.05, 0.0, 1), (0.33, 0.0, 1)]
    assert rows[2] == pytest.approx(((0.91 + 0.99 + 1.0) / 3, 2 / 3, 3))
