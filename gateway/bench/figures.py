"""From the samples of the rounds to figures with intervals, and what they are compared to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.bench.cells import FEW_CHUNKS, LONG_STREAM, MANY_CHUNKS, SHORT_STREAM, Cell
from gateway.bench.load import Measured
from gateway.lab.intervals import Interval, mean_interval, ratio_interval

DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Sample:
    """One cell on one target in one round. Times in milliseconds."""

    cpu_ms: float
    """Processor time a request, all processes of the target; 0 for direct."""
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    requests_per_s: float
    num_failed: int


@dataclass(frozen=True, slots=True)
class CellFigures:
    """Means over the rounds with their 95 % intervals; "added" is against direct, round by round."""

    cpu_ms: Interval
    added_p50_ms: Interval
    added_p99_ms: Interval
    added_first_ms: Interval
    requests_per_s: Interval
    num_failed: int


Samples = dict[tuple[str, str], list[Sample]]
"""By target and cell, one a round."""


def sample_of(measured: Measured, cpu_s: float) -> Sample:
    """Return one round's sample. ``cpu_s`` is what the target used over all of the run."""
    num_answered = max(1, len(measured.latencies_ms))
    latencies = measured.latencies_ms or [float("nan")]
    return Sample(
        cpu_ms=1e3 * cpu_s / max(1, num_answered + measured.num_failed),
        p50_ms=float(np.quantile(latencies, 0.5)),
        p99_ms=float(np.quantile(latencies, 0.99)),
        first_p50_ms=float(np.median(measured.first_ms or [float("nan")])),
        requests_per_s=len(measured.latencies_ms) / measured.elapsed_s,
        num_failed=measured.num_failed,
    )


def cell_figures(samples: Samples, target: str, cell: Cell) -> CellFigures:
    """Return the figures of one target in one cell."""
    ours, direct = samples[target, cell.name], samples[DIRECT, cell.name]

    def added(field: Callable[[Sample], float]) -> Interval:
        return mean_interval([field(a) - field(b) for a, b in zip(ours, direct, strict=True)])

    return CellFigures(
        cpu_ms=mean_interval([sample.cpu_ms for sample in ours]),
        added_p50_ms=added(lambda sample: sample.p50_ms),
        added_p99_ms=added(lambda sample: sample.p99_ms),
        added_first_ms=added(lambda sample: sample.first_p50_ms),
        requests_per_s=mean_interval([sample.requests_per_s for sample in ours]),
        num_failed=sum(sample.num_failed for sample in ours),
    )


def chunk_us(samples: Samples, target: str) -> Interval:
    """Return the processor time of one more chunk of a stream, in microseconds: long less short streams."""
    pairs = zip(samples[target, LONG_STREAM.name], samples[target, SHORT_STREAM.name], strict=True)
    num_more = MANY_CHUNKS - FEW_CHUNKS
    return mean_interval([1e3 * (long.cpu_ms - short.cpu_ms) / num_more for long, short in pairs])


def cpu_ratio(samples: Samples, of: tuple[str, str], to: tuple[str, str]) -> Interval:
    """Return the processor time of ``of`` a request over that of ``to``; rounds are drawn in pairs."""
    return ratio_interval(_cpu(samples[of]), _cpu(samples[to]))


def _cpu(samples: Sequence[Sample]) -> list[float]:
    return [sample.cpu_ms for sample in samples]
