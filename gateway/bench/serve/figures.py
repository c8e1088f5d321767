"""From blocks to figures: medians and tails over all answers, rates and ratios with intervals over blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.bench.serve.driving import Answered, Driven
from gateway.lab.intervals import Interval, mean_interval, ratio_interval


@dataclass(frozen=True, slots=True)
class Block:
    """One block on one engine, with the processor time of all of the engine's processes in it."""

    driven: Driven
    cpu_s: float

    @property
    def num_tokens(self) -> int:
        return sum(answer.num_tokens for answer in self.driven.answers)


@dataclass(frozen=True, slots=True)
class Quantiles:
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Of one kind of request, or of all. Times in seconds."""

    num_requests: int
    first_token_s: Quantiles
    per_token_s: Quantiles
    """Between tokens, the first left out: (last - first) / (tokens - 1) of an answer."""
    total_s: Quantiles


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine did with all blocks. ``tokens`` are written ones."""

    tokens_per_s: Interval
    requests_per_s: Interval
    cpu_s_per_block: Interval
    tokens_per_cpu_s: Interval
    all: KindFigures
    by_kind: dict[str, KindFigures]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ours over a rival's; above 1 is better for us in each. Blocks are drawn in pairs."""

    throughput: Interval
    tokens_per_cpu_s: Interval
    first_token_speed: Interval
    """The rival's median time to the first token over ours."""
    per_token_speed: Interval


def engine_figures(blocks: Sequence[Block]) -> EngineFigures:
    """Return an engine's figures over at least one block."""
    answers = [answer for block in blocks for answer in block.driven.answers]
    kinds = sorted({answer.kind for answer in answers})
    tokens = [float(block.num_tokens) for block in blocks]
    elapsed = [block.driven.elapsed_s for block in blocks]
    return EngineFigures(
        tokens_per_s=ratio_interval(tokens, elapsed),
        requests_per_s=ratio_interval([float(len(block.driven.answers)) for block in blocks], elapsed),
        cpu_s_per_block=mean_interval([block.cpu_s for block in blocks]),
        tokens_per_cpu_s=ratio_interval(tokens, [block.cpu_s for block in blocks]),
        all=kind_figures(answers),
        by_kind={kind: kind_figures([a for a in answers if a.kind == kind]) for kind in kinds},
    )


def ratios(ours: Sequence[Block], theirs: Sequence[Block]) -> Ratios:
    """Compare blocks of the same requests: all write the same number of tokens, so times say it all."""

    def compared(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Interval:
        return ratio_interval(theirs_s, ours_s)

    return Ratios(
        throughput=compared([b.driven.elapsed_s for b in ours], [b.driven.elapsed_s for b in theirs]),
        tokens_per_cpu_s=compared([b.cpu_s for b in ours], [b.cpu_s for b in theirs]),
        first_token_speed=compared([_first_s(b) for b in ours], [_first_s(b) for b in theirs]),
        per_token_speed=compared([_per_token_s(b) for b in ours], [_per_token_s(b) for b in theirs]),
    )


def kind_figures(answers: Sequence[Answered]) -> KindFigures:
    """Return the figures of at least one answer."""
    return KindFigures(
        len(answers),
        _quantiles([answer.first_s for answer in answers]),
        _quantiles([per_token_s(answer) for answer in answers]),
        _quantiles([answer.total_s for answer in answers]),
    )


def per_token_s(answer: Answered) -> float:
    return (answer.total_s - answer.first_s) / max(1, answer.num_tokens - 1)


def _first_s(block: Block) -> float:
    return float(np.median([answer.first_s for answer in block.driven.answers]))


def _per_token_s(block: Block) -> float:
    return float(np.median([per_token_s(answer) for answer in block.driven.answers]))


def _quantiles(values: Sequence[float]) -> Quantiles:
    return Quantiles(float(np.quantile(values, 0.5)), float(np.quantile(values, 0.99)))
