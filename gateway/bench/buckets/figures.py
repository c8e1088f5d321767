"""From blocks to ratios between arms, with intervals over the blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.bench.serve.figures import Block
from gateway.lab.intervals import Interval, ratio_interval


@dataclass(frozen=True, slots=True)
class Compared:
    """One arm over another, blocks drawn in pairs. More tokens are better, and less time."""

    tokens_per_cpu_s: Interval
    tokens_per_s: Interval
    p50_s: Interval
    """Of whole answers, from when they were due: the mean of the blocks' medians."""
    p99_s: Interval
    """Of a dozen answers a block: next to its slowest."""


def compared(ours: Sequence[Block], theirs: Sequence[Block]) -> Compared:
    """Compare two arms, which have the same blocks."""

    def ratio(figure: Callable[[Block], float]) -> Interval:
        return ratio_interval([figure(block) for block in ours], [figure(block) for block in theirs])

    return Compared(
        tokens_per_cpu_s=ratio(lambda block: block.num_tokens / block.cpu_s),
        tokens_per_s=ratio(lambda block: block.num_tokens / block.driven.elapsed_s),
        p50_s=ratio(lambda block: _quantile_s(block, 0.5)),
        p99_s=ratio(lambda block: _quantile_s(block, 0.99)),
    )


def _quantile_s(block: Block, share: float) -> float:
    return float(np.quantile([answer.total_s for answer in block.driven.answers], share))
