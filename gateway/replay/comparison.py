"""Compares recorded steps with replayed ones, within a tolerance that depends on the number format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from worker.protocol import StepRecord


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest differences that count as rounding, which changes with the shape of a batch."""

    entropy_nats: float
    gravity: float
    logprob: float
    k_share: float
    """Of the recorded k; one more is always allowed, where s lies at the border between two k."""
    k_jump_share: float
    """Of the steps, and at least one step: how many may have k_max on one side alone. The spike guard is a
    threshold, and rounding decides where s lies just at it. 0 allows none."""

    def k(self, recorded: int) -> float:
        return 1 + self.k_share * recorded

    def num_k_jumps(self, num_steps: int) -> int:
        return max(1, round(self.k_jump_share * num_steps)) if self.k_jump_share else 0


# Turns decoded ten at a time against the same turns alone, 1,600 steps: largest differences in H 0.24 nats
# (bf16) and 0.00002 (fp32), in logprob 0.30 and 0.00002; k jumped in 0.6 % of the steps, and in none.
# int8 weights by oneDNN, 320 steps eight at a time against alone: 0.32 nats and 0.43, so they have bf16's.
TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(entropy_nats=0.001, gravity=0.0001, logprob=0.001, k_share=0.0, k_jump_share=0.0),
    "bf16": Tolerance(entropy_nats=0.5, gravity=0.05, logprob=0.5, k_share=0.25, k_jump_share=0.05),
}


def number_format(environment: Mapping[str, Any], default: str = "") -> str:
    """Return what such a worker rounds to: ``int8`` where its weights are, else the dtype."""
    if environment.get("weight_format") == "int8":
        return "int8"
    return str(environment.get("dtype", default))


def is_batch_independent(environment: Mapping[str, Any]) -> bool:
    """Say whether company changes nothing of a text there: no bit by native kernels, no token in fp32."""
    return environment.get("kernels") == "native" or number_format(environment) == "fp32"


def wider_tolerance(recorded: str, replayed: str) -> Tolerance:
    """Return the tolerance of the coarser of two number formats; of one that is not known, the widest."""
    return TOLERANCES["fp32" if recorded == replayed == "fp32" else "bf16"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One value of one step, and by how much it may differ."""

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
    num_k_jumps: int
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
    outside: list[Difference] = []
    for step, record in enumerate(recorded[:num_replayed]):
        if with_tokens and record.token_id != replayed["token_id"][step]:
            outside.append(Difference(step, "token_id", record.token_id, replayed["token_id"][step], 0.0))
            break
        for found in _differences(step, record, replayed, tolerance):
            largest[found.quantity] = max(largest.get(found.quantity, 0.0), found.size)
            if not found.is_allowed:
                outside.append(found)
    else:
        if len(recorded) != num_replayed:
            shorter = min(len(recorded), num_replayed)
            outside.append(Difference(shorter, "number of steps", len(recorded), num_replayed, 0.0))
    k_max = max((*(record.k for record in recorded), *replayed["k"]), default=0)
    jumps = [found for found in outside if _is_jump(found, k_max)]
    if len(jumps) <= tolerance.num_k_jumps(len(recorded)):
        outside = [found for found in outside if found not in jumps]
    return Comparison(len(recorded), num_replayed, largest, len(jumps), outside[0] if outside else None)


def _is_jump(found: Difference, k_max: float) -> bool:
    return found.quantity == "k" and k_max in (found.recorded, found.replayed)


def _differences(
    step: int, record: StepRecord, replayed: Mapping[str, Sequence[float]], tolerance: Tolerance
) -> Iterator[Difference]:
    allowed = {
        "entropy_nats": tolerance.entropy_nats,
        "gravity": tolerance.gravity,
        "k": tolerance.k(record.k),
        "logprob": tolerance.logprob,
    }
    for quantity, limit in allowed.items():
        yield Difference(step, quantity, getattr(record, quantity), replayed[quantity][step], limit)
