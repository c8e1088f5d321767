"""Processor time of pruning one request: nothing cached, everything cached, and all beside the encoder."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gateway.context.decide import PruneOptions, PruneQuery, TokenCounts
from gateway.context.embed import EncoderSettings
from gateway.context.pruner import Pruner
from gateway.context.report import Document
from gateway.context.selector import Selector
from gateway.evaluation.subject import as_sent, check_pruned
from gateway.lab.labelled import LabelledRequest

SIZES = (20, 100)
ROUNDS = 7
_ENCODE_S = 600.0
_ENCODER_THREAD = "encoder"


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds over the rounds: the median, and the range that the middle half lies in."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PruneCost:
    """What one request costs. Processor time is of all threads of this process."""

    num_chunks: int
    uncached_cpu_ms: Timing
    """Encoding included."""
    beside_encoder_cpu_ms: Timing | None
    """The same runs without what the encoder's thread spent; None where the system does not tell (macOS)."""
    cached_cpu_ms: Timing
    cached_wall_ms: Timing


@dataclass(frozen=True, slots=True)
class _Run:
    cpu_ms: float
    beside_encoder_ms: float | None
    wall_ms: float


async def measure_costs(
    requests: Sequence[LabelledRequest], settings: EncoderSettings, selector: Selector
) -> dict[int, PruneCost]:
    """Time requests of ``SIZES`` chunks, all kinds of run in turn, so that a busy machine slows all alike."""
    queries = {size: request_of(requests, size) for size in SIZES}
    forgetful = Pruner.open(replace(settings, cache_bytes=0), timeout_s=_ENCODE_S, selector=selector)
    remembering = Pruner.open(settings, timeout_s=_ENCODE_S, selector=selector)
    runs: dict[int, list[tuple[_Run, _Run]]] = {size: [] for size in SIZES}
    try:
        for _ in range(1 + ROUNDS):
            for size, query in queries.items():
                runs[size].append((await _run(forgetful, query), await _run(remembering, query)))
    finally:
        forgetful.close()
        remembering.close()
    return {size: _cost(len(queries[size].documents), found[1:]) for size, found in runs.items()}


def request_of(requests: Sequence[LabelledRequest], size: int) -> PruneQuery:
    """Return the first request that has ``size`` chunks, cut to them; where none has, chunks of several."""
    large = next((request for request in requests if len(request.documents) >= size), None)
    if large is not None:
        return PruneQuery(large.question, as_sent(large)[:size])
    documents: dict[str, Document] = {}
    for request in requests:
        for document in as_sent(request):
            if len(documents) < size:
                documents.setdefault(document.text, document)
    return PruneQuery(requests[0].question, tuple(documents.values()))


async def _run(pruner: Pruner, query: PruneQuery) -> _Run:
    async def counted(texts: Sequence[str]) -> TokenCounts:
        return [len(text) for text in texts], False

    encoder_s = _encoder_cpu_s()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    report = await pruner.prune(query, PruneOptions(), counted)
    cpu_ms, wall_ms = (time.process_time() - cpu_s) * 1e3, (time.perf_counter() - started_s) * 1e3
    check_pruned(report, "the one that is timed")
    if encoder_s is None:
        return _Run(cpu_ms, None, wall_ms)
    return _Run(cpu_ms, cpu_ms - ((_encoder_cpu_s() or 0.0) - encoder_s) * 1e3, wall_ms)


def _encoder_cpu_s() -> float | None:
    """Return the processor time so far of all encoders' threads, of which only one works at a time here."""
    if sys.platform == "darwin":
        return None
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name.startswith(_ENCODER_THREAD) and thread.ident is not None
    )


def _cost(num_chunks: int, runs: Sequence[tuple[_Run, _Run]]) -> PruneCost:
    beside = [run.beside_encoder_ms for run, _ in runs if run.beside_encoder_ms is not None]
    return PruneCost(
        num_chunks=num_chunks,
        uncached_cpu_ms=_timing(run.cpu_ms for run, _ in runs),
        beside_encoder_cpu_ms=_timing(beside) if beside else None,
        cached_cpu_ms=_timing(run.cpu_ms for _, run in runs),
        cached_wall_ms=_timing(run.wall_ms for _, run in runs),
    )


def _timing(values: Iterable[float]) -> Timing:
    low, median, high = np.quantile(list(values), [0.25, 0.5, 0.75])
    return Timing(float(median), float(low), float(high))
