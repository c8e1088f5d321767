"""How many rows of a step are given to drafts, and whose they are."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch


@dataclass(frozen=True, slots=True)
class StepPrice:
    """What a step costs, in units of a drafted token's row.

    Measured with SmolLM2-135M in bf16 on one core, 300 tokens of context, up to 32 sequences: 33 ms, 4.3 ms a
    sequence, 2 ms a draft that leaves the attention call of the others, 3.6 ms a drafted token. Where the
    engine goes over to its float32 copies the line bends by less than it is uncertain.
    """

    fixed: float = 9.0
    """For reading the weights."""
    sequence: float = 1.2
    """For every sequence's own token, with its keys and values."""
    opening: float = 0.6
    """For every draft in company: its sequence attends by a call of its own then."""
    trust: float = 0.75
    """What is counted of a chance in company, where a wrong draft costs the others time too. On structured
    and open text less comes true than on the questions that the chances were fitted with."""

    @classmethod
    def of(cls, dtype: torch.dtype) -> StepPrice:
        """Return the price for weights of this type: more of them to read, and a row that costs still more.

        In float32 a step is 45 ms, 10.5 ms a sequence, 5 ms a draft and 10 ms a token of it, up to 12 rows.
        """
        return cls(fixed=4.5, sequence=1.05, opening=0.5) if dtype == torch.float32 else cls()


@dataclass(frozen=True, slots=True)
class Offer:
    """One sequence's draft. ``chances`` fall along it: that the token and all before it are right."""

    chances: tuple[float, ...]
    is_whole: bool = False
    """Taken as it is or not at all."""


class _Part(NamedTuple):
    """The next tokens of an offer that may be given. The dearest for what it gives sorts last."""

    cost_per_token: float
    offer: int
    """Its place among the offers."""
    num_rows: int
    gain: float
    """Tokens that are expected of it."""
    cost: float


def share_out(offers: Sequence[Offer], num_sequences: int, max_rows: int, price: StepPrice) -> list[int]:
    """Return how much of each offer is worth its rows: as much as makes a token of this step cheapest.

    ``num_sequences`` give a token each anyhow. At most ``max_rows`` are given. What gives most for its cost
    comes first, and is taken iff (cost + its cost) / (tokens + its tokens) < cost / tokens.
    """
    lengths = [0] * len(offers)
    is_alone = num_sequences == 1
    opening, trust = (0.0, 1.0) if is_alone else (price.opening, price.trust)
    parts = [_first(index, offer, opening) for index, offer in enumerate(offers) if offer.chances]
    heapq.heapify(parts)
    tokens, cost = float(num_sequences), price.fixed + price.sequence * num_sequences
    while parts:
        part = heapq.heappop(parts)
        gain = trust * part.gain
        if part.cost * tokens >= cost * gain:
            break  # all others give less for their cost, and a token has become cheaper
        if part.num_rows > max_rows:
            continue
        max_rows -= part.num_rows
        tokens, cost = tokens + gain, cost + part.cost
        lengths[part.offer] += part.num_rows
        left = offers[part.offer].chances[lengths[part.offer] :]
        if left:
            heapq.heappush(parts, _Part(1.0 / left[0], part.offer, 1, left[0], 1.0))
    return lengths


def _first(index: int, offer: Offer, opening: float) -> _Part:
    """Return as many tokens as give most for their cost, the opening shared among them."""
    gains = list(accumulate(offer.chances))
    counts = [len(gains)] if offer.is_whole else range(1, len(gains) + 1)
    parts = (
        _Part((opening + count) / gains[count - 1], index, count, gains[count - 1], opening + count)
        for count in counts
    )
    return min(parts)
