"""A circuit breaker: takes a failing worker out, and lets one request try it again after a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["success", "neutral", "failure"]
State: TypeAlias = Literal["closed", "open", "half_open"]

MAX_COOLDOWN_S = 60.0


class Breaker:
    """Closed, open, half-open.

    ``num_failures`` failures in a row open it for ``cooldown_s``; then one trial may pass. A trial that
    fails opens it for twice as long, up to a minute; one that succeeds closes it. A neutral end (the
    client's own mistake, a full queue, a cancelled request) says nothing about the worker: nothing changes.
    """

    def __init__(self, num_failures: int, cooldown_s: float, clock: Callable[[], float]) -> None:
        self._limit = num_failures
        self._base_cooldown_s = cooldown_s
        self._cooldown_s = cooldown_s
        self._clock = clock
        self._num_failures = 0
        self._opened_at: float | None = None
        self._has_trial = False

    @property
    def state(self) -> State:
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._clock() - self._opened_at >= self._cooldown_s else "open"

    @property
    def allows(self) -> bool:
        """Whether a request may be sent now. Half-open lets one through at a time."""
        state = self.state
        return state == "closed" or (state == "half_open" and not self._has_trial)

    def begin(self) -> bool:
        """A request is about to be sent; returns whether it is the trial of a half-open breaker."""
        is_trial = self.state == "half_open"
        self._has_trial = self._has_trial or is_trial
        return is_trial

    def end(self, verdict: Verdict, *, is_trial: bool) -> None:
        """A request that began has ended. One sent before the breaker opened cannot open it further."""
        if is_trial:
            self._has_trial = False
        if verdict == "success":
            self._close()
        elif verdict == "failure" and is_trial:
            self._cooldown_s = min(2 * self._cooldown_s, MAX_COOLDOWN_S)
            self._opened_at = self._clock()
        elif verdict == "failure" and self._opened_at is None:
            self._num_failures += 1
            if self._num_failures >= self._limit:
                self._opened_at = self._clock()

    def trip(self) -> None:
        """It was found silent while another answered: out at once, and half-open after the pause.

        One such finding is enough, as every turn that is sent there waits in vain (production-stack#749).
        """
        if self.state == "half_open":
            self._cooldown_s = min(2 * self._cooldown_s, MAX_COOLDOWN_S)
        elif self._opened_at is not None:
            return
        self._opened_at = self._clock()

    def _close(self) -> None:
        self._num_failures = 0
        self._cooldown_s = self._base_cooldown_s
        self._opened_at = None
