"""Bootstrap intervals against scipy's, by simulation, and at their edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from gateway.lab.intervals import mean_interval, paired_difference, ratio_interval

SAMPLE = np.random.default_rng(7).exponential(2.0, 40).tolist()
OTHER = np.random.default_rng(8).exponential(1.0, 40).tolist()


def test_the_interval_of_a_mean_is_scipys() -> None:
    ours = mean_interval(SAMPLE)
    theirs = stats.bootstrap(
        (SAMPLE,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours.mean == pytest.approx(np.mean(SAMPLE))
    assert ours.low == pytest.approx(theirs.low, abs=0.03)
    assert ours.high == pytest.approx(theirs.high, abs=0.03)


def test_the_interval_of_a_ratio_is_scipys() -> None:
    ours = ratio_interval(SAMPLE, OTHER)
    theirs = stats.bootstrap(
        (SAMPLE, OTHER),
        lambda top, bottom, axis=-1: top.sum(axis) / bottom.sum(axis),
        n_resamples=10_000,
        method="percentile",
        paired=True,
        rng=np.random.default_rng(1),
    ).confidence_interval
    assert ours.mean == pytest.approx(sum(SAMPLE) / sum(OTHER))
    assert ours.low == pytest.approx(theirs.low, abs=0.06)
    assert ours.high == pytest.approx(theirs.high, abs=0.06)


def test_the_true_mean_lies_inside_about_nineteen_times_in_twenty() -> None:
    random = np.random.default_rng(3)
    samples = random.normal(1.0, 2.0, (120, 30))
    intervals = [mean_interval(sample.tolist(), seed) for seed, sample in enumerate(samples)]
    share = np.mean([interval.low <= 1.0 <= interval.high for interval in intervals])
    assert 0.88 <= share <= 0.99  # 30 draws a sample: the percentile interval is a little narrow


def test_pairing_removes_what_requests_have_in_common() -> None:
    base = np.random.default_rng(5).normal(0.0, 10.0, 50)
    gain = np.random.default_rng(6).normal(0.5, 0.2, 50)
    difference = paired_difference((base + gain).tolist(), base.tolist())
    assert difference.mean == pytest.approx(gain.mean())
    assert difference.excludes_zero
    assert not paired_difference(base.tolist(), base[::-1].tolist()).excludes_zero


def test_equal_values_have_no_spread() -> None:
    interval = mean_interval([0.25] * 9)
    assert (interval.low, interval.mean, interval.high) == (0.25, 0.25, 0.25)
    assert mean_interval([0.0]).excludes_zero is False


def test_a_seed_gives_one_interval() -> None:
    assert mean_interval(SAMPLE, seed=4) == mean_interval(SAMPLE, seed=4)
    assert mean_interval(SAMPLE, seed=4) != mean_interval(SAMPLE, seed=5)


def test_samples_of_different_length_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="one length"):
        paired_difference([1.0, 2.0], [1.0])
