"""A token bucket: a minute's allowance that fills up steadily. The script in Redis does the same sums.

A bucket holds at most what a minute allows, and may be in debt: what an answer turned out to cost is taken
all the same, and is waited for by whoever comes next.
"""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """What was left at a moment."""

    per_minute: int
    level: float
    at_s: float

    @classmethod
    def full(cls, per_minute: int, now_s: float) -> Bucket:
        return cls(per_minute, float(per_minute), now_s)

    def at(self, now_s: float) -> Bucket:
        """Return it as it is at ``now_s``. A clock that goes back takes nothing away."""
        gained = max(0.0, now_s - self.at_s) * self.per_minute / MINUTE_S
        return Bucket(self.per_minute, min(float(self.per_minute), self.level + gained), now_s)

    def has(self, amount: float) -> bool:
        """Whether ``amount`` may be taken; more than a minute's allowance needs a full bucket."""
        return self.level >= min(amount, self.per_minute)

    def less(self, amount: float) -> Bucket:
        """Return it without ``amount``, which may be negative: then something is given back."""
        return Bucket(self.per_minute, min(float(self.per_minute), self.level - amount), self.at_s)

    def wait_s(self, amount: float) -> float:
        """Return how long until ``amount`` may be taken."""
        return max(0.0, min(amount, self.per_minute) - self.level) * MINUTE_S / self.per_minute

    @property
    def remaining(self) -> int:
        return max(0, int(self.level))

    @property
    def full_in_s(self) -> float:
        return (self.per_minute - self.level) * MINUTE_S / self.per_minute
