"""Entropic time: how much uncertainty a turn has resolved, beside the two figures that keep it honest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from worker.protocol import StepRecord, TurnSummary
from worker.thermo.adaptive import smooth

ENVELOPE_HISTORY = 0.7


def entropic_time(entropies_nats: Sequence[float]) -> float:
    """Return tau = sum of max(0, H[t-1] - H[t]).

    tau = (net drop + total variation) / 2: noise alone makes it grow, so it is never shown alone.
    """
    return sum(max(0.0, before - after) for before, after in itertools.pairwise(entropies_nats))


def net_drop(entropies_nats: Sequence[float]) -> float:
    """Return H[0] - H[n]; 0 for no steps."""
    return entropies_nats[0] - entropies_nats[-1] if entropies_nats else 0.0


def envelope(entropies_nats: Sequence[float], history_weight: float = ENVELOPE_HISTORY) -> float:
    """Return e[0] - min e, with e the exponential mean of H; 0 for no steps."""
    mean: float | None = None
    lowest = 0.0
    for entropy in entropies_nats:
        mean = smooth(mean, entropy, history_weight)
        lowest = min(lowest, mean - entropies_nats[0])
    return -lowest


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step of a model multiplies by: its weights once, and every number that it attends to."""

    num_parameters: int
    kv_width: int
    """Numbers of one position, keys and values of all layers."""

    def of_steps_gmac(self, num_prompt: int, num_steps: int, kept_share: float = 1.0) -> float:
        """Return C, in 10^9 multiplications, of ``num_steps`` steps behind a prompt.

        ``kept_share`` is the mean share of the text that the steps attended to.

        C = sum over steps of (active parameters + attended KV entries): a proxy for FLOPs. The prompt's own
        computation is not in it, nor what is no product with a weight, a key or a value.
        """
        attended = num_steps * num_prompt + num_steps * (num_steps - 1) // 2
        return (num_steps * self.num_parameters + kept_share * attended * self.kv_width) / 1e9


def with_cost(summary: TurnSummary, cost_gmac: float) -> TurnSummary:
    """Return the summary with C and d tau / dC."""
    rate = summary.entropic_time_nats / cost_gmac if cost_gmac else 0.0
    return summary.model_copy(update={"cost_gmac": cost_gmac, "nats_per_gmac": rate})


def summarise(records: Sequence[StepRecord]) -> TurnSummary:
    """Return what a worker reports about a finished choice; all zero for a choice without tokens."""
    entropies = [record.entropy_nats for record in records]
    return TurnSummary(
        num_steps=len(records),
        mean_entropy_nats=fmean(entropies) if records else 0.0,
        mean_gravity=fmean(record.gravity for record in records) if records else 0.0,
        mean_k=fmean(record.k for record in records) if records else 0.0,
        entropic_time_nats=entropic_time(entropies),
        net_drop_nats=net_drop(entropies),
        envelope_nats=envelope(entropies),
        num_accepted_drafts=sum(record.accepted_draft for record in records),
    )


def mean_kept_share(records: Sequence[StepRecord]) -> float:
    """Return the mean over steps of the share of KV blocks attended to; 1 for no steps."""
    return fmean(record.kept_share for record in records) if records else 1.0
