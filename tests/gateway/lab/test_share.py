"""Wilson's interval against scipy's."""

from __future__ import annotations

import pytest
from scipy import stats  # type: ignore[import-untyped]

from gateway.lab.share import Share, wilson


@pytest.mark.parametrize(
    ("hits", "trials"), [(0, 1), (1, 1), (0, 50), (50, 50), (3, 6), (17, 123), (1, 10_000)]
)
def test_the_interval_is_scipys(hits: int, trials: int) -> None:
    share = wilson(hits, trials)
    expected = stats.binomtest(hits, trials).proportion_ci(method="wilson")
    assert (share.low, share.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert share.value == hits / trials


def test_without_a_trial_nothing_is_known() -> None:
    assert wilson(0, 0) == Share(0, 0, 0.0, 1.0)
    assert wilson(0, 0).value == 0.0
