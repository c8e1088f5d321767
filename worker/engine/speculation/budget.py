"""How many rows of a step are given to drafts, and whose they are."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch

from worker.engine.linear import KernelsName


@dataclass(frozen=True, slots=True)
class StepPrice:
    """What a step costs, in units of a cheap row: of a sequence's next token or of a drafted one.

    Measured with SmolLM2-135M on one core, 300 tokens of context, up to 32 sequences. By oneDNN in bf16: 33
    ms, 3.6 ms a row, 0.7 ms a sequence, 2 ms a draft that leaves the attention call of the others. Where the
    engine goes over to its float32 copies the line bends by less than it is uncertain.
    """

    fixed: float = 9.0
    """For reading the weights."""
    sequence: float = 0.2
    """For every sequence's keys and values."""
    opening: float = 0.6
    """For every draft in company: its sequence attends by a call of its own then."""
    trust: float = 0.75
    """What is counted of a chance in company, where a wrong draft costs the others time too. On structured
    and open text less comes true than on the questions that the chances were fitted with."""
    cheap_rows: int | None = None
    """So many rows are multiplied while the weights are read; all further ones cost ``dear_row``."""
    dear_row: float = 1.0

    @classmethod
    def of(cls, dtype: torch.dtype, kernels: KernelsName) -> StepPrice:
        """Return the price for weights of this type, multiplied by these kernels.

        In float32, where more is read and rows cost more, a step is 45 ms, 10 ms a row, 0.5 ms a sequence
        and 5 ms a draft, up to 12 rows. By native kernels it is 23 ms, 0.8 ms a sequence and 0.75 ms a row,
        beyond the twelfth 2 ms; a draft attends as everything does.
        """
        if kernels == "native":
            return cls(fixed=30.0, sequence=1.1, opening=0.3, cheap_rows=12, dear_row=2.7)
        return cls(fixed=4.5, sequence=0.05, opening=0.5) if dtype == torch.float32 else cls()

    def of_rows(self, num_rows: int) -> float:
        """Return what ``num_rows`` cost together."""
        if self.cheap_rows is None or num_rows <= self.cheap_rows:
            return float(num_rows)
        return self.cheap_rows + self.dear_row * (num_rows - self.cheap_rows)


@dataclass(frozen=True, slots=True)
class Offer:
    """One sequence's draft. ``chances`` fall along it: that the token and all before it are right."""

    chances: tuple[float, ...]
    is_whole: bool = False
    """Taken as it is or not at all."""


class _Part(NamedTuple):
    """The next tokens of an offer that may be given. The dearest for what it gives sorts last."""

    cost_per_token: float
    """At the price of the first rows."""
    offer: int
    """Its place among the offers."""
    num_rows: int
    gain: float
    """Tokens that are expected of it."""
    opening: float
    """Beside its rows"""


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
    tokens, num_rows = float(num_sequences), num_sequences
    cost = price.fixed + price.sequence * num_sequences + price.of_rows(num_rows)
    while parts:
        part = heapq.heappop(parts)
        gain = trust * part.gain
        added = part.opening + price.of_rows(num_rows + part.num_rows) - price.of_rows(num_rows)
        if added * tokens >= cost * gain:
            break  # all others give less for their cost, and a token has become cheaper
        if part.num_rows > max_rows:
            continue
        max_rows -= part.num_rows
        num_rows += part.num_rows
        tokens, cost = tokens + gain, cost + added
        lengths[part.offer] += part.num_rows
        left = offers[part.offer].chances[lengths[part.offer] :]
        if left:
            heapq.heappush(parts, _Part(1.0 / left[0], part.offer, 1, left[0], 0.0))
    return lengths


def _first(index: int, offer: Offer, opening: float) -> _Part:
    """Return as many tokens as give most for their cost, the opening shared among them."""
    gains = list(accumulate(offer.chances))
    counts = [len(gains)] if offer.is_whole else range(1, len(gains) + 1)
    parts = (
        _Part((opening + count) / gains[count - 1], index, count, gains[count - 1], opening)
        for count in counts
    )
    return min(parts)
