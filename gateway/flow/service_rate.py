"""How fast places become free, from the last ones that did."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

MAX_SAMPLES = 64
MIN_SAMPLES = 8
LONGEST_S = 60.0
SHORTEST_S = 1.0


class ServiceRate:
    """Counts turns that ended. Where nothing ends any more the rate falls."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ended_s: deque[float] = deque(maxlen=MAX_SAMPLES)

    def observe(self) -> None:
        """A turn ended."""
        self._ended_s.append(self._clock())

    def wait_s(self, position: int) -> float | None:
        """Return how long until the place of the one at ``position``, from 1; None: too little is known."""
        if len(self._ended_s) < MIN_SAMPLES:
            return None
        return position * (self._clock() - self._ended_s[0]) / len(self._ended_s)

    def retry_after_s(self, position: int) -> float:
        """Return what a client is told, between a second and a minute."""
        expected_s = self.wait_s(position)
        return SHORTEST_S if expected_s is None else min(max(expected_s, SHORTEST_S), LONGEST_S)
