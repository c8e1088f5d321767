"""Compares recorded steps with replayed ones, within a tolerance that depends on the number format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from worker.protocol import StepRecord


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest differences that count as rounding, which changes with the shape of a batch."""

    entropy_nats: float
    gravity: float
    logprob: float
    k_share: float
    """Of the recorded k; one more is always allowed, where s lies at the border between two k."""

    def k(self, recorded: int) -> float:
        return 1 + self.k_share * recorded


TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(entropy_nats=0.002, gravity=0.0002, logprob=0.005, k_share=0.01),
    "bf16": Tolerance(entropy_nats=0.15, gravity=0.015, logprob=0.3, k_share=0.25),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of one step that lies outside the tolerance."""

    step: int
    quantity: str
    recorded: float
    replayed: float
    allowed: float

    @property
    def size(self) -> float:
        return abs(self.recorded - self.replayed)

    @property
    def is_allowed(self) -> bool:
        """False for NaN too."""
        return self.size <= self.allowed


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of the comparison. ``largest`` maps a quantity to its largest difference over all steps."""

    num_steps: int
    num_replayed: int
    largest: Mapping[str, float]
    first_difference: Difference | None

    @property
    def is_equal(self) -> bool:
        return self.first_difference is None


def compare(
    recorded: Sequence[StepRecord],
    replayed: Mapping[str, Sequence[float]],
    tolerance: Tolerance,
    *,
    with_tokens: bool,
) -> Comparison:
    """Compare H, G, k and logprob of the steps that both sides have, and the tokens if they were drawn again.

    ``replayed`` maps StepRecord's fields to columns of one length. Past a token that differs nothing is
    compared: the texts have parted.
    """
    num_replayed = len(replayed["token_id"])
    largest: dict[str, float] = {}
    first: Difference | None = None
    for step, record in enumerate(recorded[:num_replayed]):
        for found in _differences(step, record, replayed, tolerance):
            if found.quantity == "token_id" and not with_tokens:
                continue
            largest[found.quantity] = max(largest.get(found.quantity, 0.0), found.size)
            if first is None and not found.is_allowed:
                first = found
        if first is not None and first.quantity == "token_id":
            break
    if first is None and len(recorded) != num_replayed:
        first = Difference(
            min(len(recorded), num_replayed), "number of steps", len(recorded), num_replayed, 0.0
        )
    largest.pop("token_id", None)
    return Comparison(len(recorded), num_replayed, largest, first)


def _differences(
    step: int, record: StepRecord, replayed: Mapping[str, Sequence[float]], tolerance: Tolerance
) -> Iterator[Difference]:
    allowed = {
        "token_id": 0.0,
        "entropy_nats": tolerance.entropy_nats,
        "gravity": tolerance.gravity,
        "k": tolerance.k(record.k),
        "logprob": tolerance.logprob,
    }
    for quantity, limit in allowed.items():
        yield Difference(step, quantity, getattr(record, quantity), replayed[quantity][step], limit)
