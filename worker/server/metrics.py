"""Prometheus metrics of a worker. Label sets are closed, so no client can make series grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.engine.engine import EngineStats
from worker.protocol import TurnSummary
from worker.trace import TraceCounters

FINISHES = ("stop", "length", "cancelled", "error")
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx")
OTHER = "other"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


_NATS = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)


class Metrics:
    """One registry of its own, so that two workers in one process would not meet."""

    def __init__(self, routes: Iterable[str], error_codes: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        self._routes = frozenset(routes)
        self._error_codes = frozenset(error_codes)
        self.requests = Counter(
            "ng_worker_requests",
            "HTTP requests answered.",
            ("route", "status_class"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "ng_worker_request_seconds",
            "Time until the last byte.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.errors = Counter("ng_worker_errors", "Errors answered.", ("error_code",), registry=self.registry)
        self.choices = Counter(
            "ng_worker_choices", "Choices by how they ended.", ("finish",), registry=self.registry
        )
        self.prompt_tokens = Counter(
            "ng_worker_prompt_tokens", "Prompt tokens of accepted requests.", registry=self.registry
        )
        self.completion_tokens = Counter(
            "ng_worker_completion_tokens", "Tokens emitted to clients.", registry=self.registry
        )
        self.time_to_first_token = Histogram(
            "ng_worker_time_to_first_token_seconds",
            "From submission to the first token of a request.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.entropic_time = Counter(
            "ng_worker_entropic_time_nats", "tau of finished choices.", registry=self.registry
        )
        self.envelope = Counter(
            "ng_worker_entropy_envelope_nats",
            "Fall of the smoothed H of finished choices.",
            registry=self.registry,
        )
        self.net_drop = Histogram(
            "ng_worker_entropy_net_drop_nats",
            "First H less last H of finished choices.",
            buckets=_NATS,
            registry=self.registry,
        )
        self.cost = Counter(
            "ng_worker_decode_gmac",
            "10^9 multiplications of finished choices' steps: parameters and attended KV entries.",
            registry=self.registry,
        )
        for finish in FINISHES:
            self.choices.labels(finish)

    def watch(self, stats: Callable[[], EngineStats], trace: Callable[[], TraceCounters] | None) -> None:
        """Read the engine and the trace at every scrape."""
        self.registry.register(_Levels(stats, trace))

    def observe_request(self, route: str, status: int, duration_s: float) -> None:
        route = route if route in self._routes else OTHER
        status_class = f"{status // 100}xx"
        status_class = status_class if status_class in STATUS_CLASSES else OTHER
        self.requests.labels(route, status_class).inc()
        self.request_seconds.labels(route).observe(duration_s)

    def observe_summary(self, summary: TurnSummary) -> None:
        """Add up what a finished choice resolved, and what for. Ratios of the sums are means over steps."""
        self.entropic_time.inc(summary.entropic_time_nats)
        self.envelope.inc(summary.envelope_nats)
        self.net_drop.observe(summary.net_drop_nats)
        self.cost.inc(summary.cost_gmac)

    def observe_error(self, code: str) -> None:
        self.errors.labels(code if code in self._error_codes else OTHER).inc()


class _Levels(Collector):
    def __init__(self, stats: Callable[[], EngineStats], trace: Callable[[], TraceCounters] | None) -> None:
        self._stats = stats
        self._trace = trace

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        yield _gauge("ng_worker_requests_running", "Sequences in the batch.", stats.running)
        yield _gauge("ng_worker_requests_waiting", "Sequences in the queue.", stats.waiting)
        yield _gauge("ng_worker_kv_tokens_used", "Cache positions held.", stats.kv_used)
        yield _gauge("ng_worker_kv_tokens_limit", "Cache positions there are.", stats.kv_total)
        yield _counter("ng_worker_engine_steps", "Decoding steps.", stats.steps)
        yield _counter("ng_worker_engine_tokens", "Tokens sampled.", stats.tokens)
        yield _counter("ng_worker_draft_tokens", "Tokens checked before they were known.", stats.drafted)
        yield _counter("ng_worker_draft_tokens_accepted", "Of these, those that came.", stats.accepted)
        yield _counter("ng_worker_preemptions", "Sequences put out for want of memory.", stats.preemptions)
        yield _gauge("ng_worker_prefix_blocks_used", "Kept blocks of 16 tokens.", stats.prefix_blocks)
        yield _gauge("ng_worker_prefix_blocks_held", "Of these, those in use.", stats.prefix_blocks_held)
        yield _gauge("ng_worker_prefix_blocks_limit", "Blocks that can be kept.", stats.prefix_blocks_total)
        yield _counter("ng_worker_prefix_tokens_asked", "Tokens of admitted prompts.", stats.prefix_asked)
        yield _counter("ng_worker_prefix_tokens_found", "Of these, not computed again.", stats.prefix_found)
        if self._trace is None:
            return
        trace = self._trace()
        yield _counter("ng_worker_trace_steps_written", "Steps written to Redis.", trace.written)
        yield _counter("ng_worker_trace_steps_spilled", "Steps put into the spill file.", trace.spilled)
        yield _counter("ng_worker_trace_steps_lost", "Steps that fitted nowhere.", trace.lost)
        yield _counter("ng_worker_trace_reconnects", "Times that Redis came back.", trace.reconnects)
        yield _gauge("ng_worker_trace_steps_queued", "Steps in the writer's queue.", trace.queued)
        yield _gauge("ng_worker_trace_spill_bytes", "Bytes in the spill file.", trace.spill_bytes)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text)
    family.add_metric([], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    family = CounterMetricFamily(name, text)
    family.add_metric([], value)
    return family
