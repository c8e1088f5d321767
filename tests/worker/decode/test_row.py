"""Searching and editing one row of logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from worker.decode.row import Row
from worker.thermo.entropy import InvalidRowError, observe

Logits = NDArray[np.float32]

# Few distinct values, so that ties are everywhere; sizes on both sides of a block's.
tied_rows = hnp.arrays(
    np.float32, st.integers(1, 300), elements=st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.0, 2.5])
).filter(lambda row: bool(np.isfinite(row).any()))


def loaded(logits: Logits) -> Row:
    row = Row(len(logits))
    row.load(logits)
    return row


def in_order(logits: Logits) -> list[int]:
    possible = [id_ for id_, value in enumerate(logits) if value > -math.inf]
    return sorted(possible, key=lambda id_: (-logits[id_], id_))


@given(tied_rows, st.integers(0, 400))
def test_exactly_the_k_largest_come_out_with_ties_by_id(logits: Logits, count: int) -> None:
    assert loaded(logits).largest(count).tolist() == in_order(logits)[:count]


@given(tied_rows, st.sampled_from([-2.0, -1.5, 0.0, 1.0, 2.5, 9.0]))
def test_all_ids_that_reach_a_threshold_come_out_in_their_order(logits: Logits, threshold: float) -> None:
    expected = [id_ for id_, value in enumerate(logits) if value >= threshold]
    assert loaded(logits).at_least(threshold).tolist() == expected


@given(tied_rows, st.data())
def test_an_edited_row_is_searched_as_if_it_had_come_so(logits: Logits, data: st.DataObject) -> None:
    row, edited = loaded(logits), logits.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        ids = np.array(sorted(data.draw(st.sets(st.integers(0, len(logits) - 1), max_size=60))), np.intp)
        values = data.draw(
            hnp.arrays(np.float32, len(ids), elements=st.sampled_from([-math.inf, -3.0, 2.0, 7.0]))
        )
        row.edit(ids, values)
        edited[ids] = values
    assert row.largest(40).tolist() == in_order(edited)[:40]
    assert row.num_possible == np.isfinite(edited).sum()
    assert row.peak == edited.max()
    assert row.argmax() == int(edited.argmax())
    if np.isfinite(edited).any():
        assert row.moments(1.0).entropy_nats == pytest.approx(observe(edited).entropy_nats, abs=1e-4)


def test_the_largest_of_real_rows_are_the_same_for_every_count(recorded_logits: Logits) -> None:
    row = Row(recorded_logits.shape[1])
    for logits in recorded_logits[::15]:
        row.load(logits)
        everything = row.largest(len(logits)).tolist()
        assert everything == np.lexsort((np.arange(len(logits)), -logits)).tolist()
        for count in (1, 40, 128, 700, 800, 4096):
            assert row.largest(count).tolist() == everything[:count]


def test_bfloat16_bits_load_as_their_value(recorded_logits: Logits) -> None:
    row = Row(recorded_logits.shape[1])
    rounded = torch.tensor(recorded_logits[3]).bfloat16()
    row.load(rounded.view(torch.uint16).numpy())
    assert row.logits.tolist() == rounded.float().tolist()
    own = torch.log_softmax(rounded.float(), -1)
    assert row.own_logprob(11) == pytest.approx(float(own[11]), abs=1e-4)


def test_observing_at_several_temperatures_does_not_disturb_the_row(recorded_logits: Logits) -> None:
    row = loaded(recorded_logits[0])
    for temperature in (0.5, 1.0, 2.0, 0.5):
        expected = observe(recorded_logits[0], temperature)
        assert row.observe(temperature).entropy_nats == pytest.approx(expected.entropy_nats, abs=1e-5)
    assert row.logits.tolist() == recorded_logits[0].tolist()


def test_a_logprob_is_the_models_own_whatever_was_edited(recorded_logits: Logits) -> None:
    row = loaded(recorded_logits[0])
    best = row.argmax()
    row.edit(np.array([best]), np.array([-np.inf], np.float32))
    assert row.own_logprob(best) == pytest.approx(
        float(torch.log_softmax(torch.tensor(recorded_logits[0]).double(), -1)[best]), abs=1e-4
    )


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_poisoned_row_is_refused_and_the_next_one_is_not(poison: float) -> None:
    row, good = Row(130), np.arange(130, dtype=np.float32)
    bad = good.copy()
    bad[129] = poison
    with pytest.raises(InvalidRowError):
        row.load(bad)
    row.load(good)
    assert row.argmax() == 129


def test_a_mask_by_the_smallest_float_is_never_drawn_and_never_counted() -> None:
    logits = np.full(500, np.finfo(np.float32).min, np.float32)
    logits[[3, 40]] = [1.0, 0.0]
    row = loaded(logits)
    assert row.largest(10).tolist() == [3, 40]
    assert row.num_possible == 2
    assert row.observe(1e-3).entropy_nats == pytest.approx(0.0, abs=1e-6)
