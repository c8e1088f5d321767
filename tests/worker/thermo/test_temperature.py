"""The temperature loop on a plant that is the entropy of real logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.thermo.adaptive import smooth
from worker.thermo.entropy import observe
from worker.thermo.temperature import TemperatureRange, feedback, mapped

BOUNDS = TemperatureRange(t_min=0.3, t_max=1.5, max_step=0.1)
TARGET_NATS = 2.0


def settle(rows: NDArray[np.float32], sign: float, steps: int = 200) -> tuple[list[float], list[float]]:
    """Close the loop: the entropy at T is smoothed and fed back with the given sign of the gain."""
    temperature, smoothed = 1.0, None
    temperatures, entropies = [], []
    for step in range(steps):
        entropy = observe(rows[step % len(rows)], temperature).entropy_nats
        smoothed = smooth(smoothed, entropy, 0.7)
        temperatures.append(temperature)
        entropies.append(entropy)
        temperature = feedback(temperature, smoothed - TARGET_NATS, sign * 0.05, BOUNDS)
    return temperatures, entropies


@pytest.fixture(scope="module")
def open_rows(recorded_logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows whose entropy passes the target inside the bounds of T."""
    reaches = [
        observe(row, BOUNDS.t_min).entropy_nats < TARGET_NATS - 0.5
        and observe(row, BOUNDS.t_max).entropy_nats > TARGET_NATS + 0.5
        for row in recorded_logits
    ]
    rows: NDArray[np.float32] = recorded_logits[np.array(reaches)]
    assert len(rows) >= 10
    return rows


def test_feedback_holds_the_entropy_at_its_target(open_rows: NDArray[np.float32]) -> None:
    for row in open_rows[:10]:
        temperatures, entropies = settle(row[None], sign=+1.0)
        assert entropies[-1] == pytest.approx(TARGET_NATS, abs=0.05)
        assert BOUNDS.t_min < temperatures[-1] < BOUNDS.t_max


def test_feedback_with_the_other_sign_runs_into_a_bound(open_rows: NDArray[np.float32]) -> None:
    for row in open_rows[:10]:
        temperatures, entropies = settle(row[None], sign=-1.0)
        assert temperatures[-1] in (BOUNDS.t_min, BOUNDS.t_max)
        assert abs(entropies[-1] - TARGET_NATS) > 0.5


def test_feedback_keeps_the_mean_near_the_target_over_changing_rows(open_rows: NDArray[np.float32]) -> None:
    _, entropies = settle(open_rows, sign=+1.0, steps=600)
    assert np.mean(entropies[200:]) == pytest.approx(TARGET_NATS, abs=0.3)


def test_one_step_is_bounded_and_by_hand() -> None:
    assert feedback(1.0, 1.0, 0.05, BOUNDS) == pytest.approx(math.exp(-0.05))
    assert feedback(1.0, 40.0, 0.05, BOUNDS) == pytest.approx(math.exp(-0.1))
    assert feedback(1.0, -40.0, 0.05, BOUNDS) == pytest.approx(math.exp(0.1))
    assert feedback(0.3, 2.0, 0.05, BOUNDS) == 0.3
    assert feedback(1.5, -2.0, 0.05, BOUNDS) == 1.5


def test_the_map_has_no_memory_and_keeps_its_bounds() -> None:
    assert mapped(0.8, 0.25, 0.4, 1.0, BOUNDS) == pytest.approx(0.9)
    assert mapped(0.8, 0.25, -0.4, 0.5, BOUNDS) == pytest.approx(0.6)
    assert mapped(0.8, 1.0, 2.0, 1.0, BOUNDS) == 1.5
    assert mapped(0.8, 1.0, -2.0, 1.0, BOUNDS) == 0.3
