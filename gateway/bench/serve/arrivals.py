"""When requests come: at the times of a Poisson process, or each when a client has its last answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.errors import CommandError


@dataclass(frozen=True, slots=True)
class Arrivals:
    """``rate_per_s`` requests a second whatever comes back; where it is None, ``num_clients`` that wait."""

    num_clients: int = 8
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.num_clients < 1 or (self.rate_per_s is not None and not 0.0 < self.rate_per_s < np.inf):
            raise CommandError("--clients is at least 1, --rate more than 0")

    @property
    def described(self) -> str:
        if self.rate_per_s is None:
            return f"closed loop of {self.num_clients}"
        return f"Poisson, {self.rate_per_s:g} a second"


def poisson_times_s(rate_per_s: float, number: int, seed: tuple[int, ...]) -> list[float]:
    """Return when each of ``number`` requests comes, in seconds from the beginning; the first at once."""
    gaps = np.random.default_rng(seed).exponential(1.0 / rate_per_s, number)
    gaps[:1] = 0.0
    return [float(time) for time in np.cumsum(gaps)]
