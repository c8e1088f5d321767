"""A pause after a failure, so that what is away is not asked by every request."""

from __future__ import annotations

from collections.abc import Callable


class Cooldown:
    """The time after a failure in which nothing is tried again."""

    def __init__(self, pause_s: float, clock: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._until = float("-inf")
        self._reason = ""

    def begin(self, reason: str) -> None:
        """Something failed now, for ``reason``."""
        self._until = self._clock() + self._pause_s
        self._reason = reason

    @property
    def reason(self) -> str:
        """Why nothing is tried at present; empty where it is."""
        return self._reason if self._clock() < self._until else ""
