"""Prometheus metrics with closed label sets: never a user, a key, a request id or a path as it was sent.

Whatever is not in a label's set counts as ``other``, so that no client can grow the number of series
(litellm#39136).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.telemetry import genai

OTHER = "other"
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
TOKEN_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.4, 0.8, 1.6)
MAX_SERIES = 1024
"""That are remembered by their labels."""
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "cancelled")


def closed(value: str, known: Collection[str]) -> str:
    """``value`` where it is known, else ``other``."""
    return value if value in known else OTHER


class TurnLabels(NamedTuple):
    """The labels of a turn, every one of them out of a closed set."""

    model: str
    task: str
    lane: str
    bucket: str
    worker: str


class _LaneSeries(NamedTuple):
    """The series of one task and lane that every turn counts in."""

    turn_seconds: Histogram
    tokens_before: Counter
    tokens_after: Counter


class Metrics:
    """All metrics of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        # To find a series by its labels costs more than to count in it.
        self._turn_series = lru_cache(maxsize=MAX_SERIES)(self._find_turn_series)
        self._lane_series = lru_cache(maxsize=MAX_SERIES)(self._find_lane_series)
        self.registry = registry = CollectorRegistry()
        self.http_requests = Counter(
            "gravity_http_requests",
            "HTTP requests by route template and class of status",
            ("route", "status_class", "error_code"),
            registry=registry,
        )
        self.turns = Counter(
            "gravity_turns",
            "Finished turns by outcome: ok, error, cancelled",
            ("model", "task", "lane", "bucket", "worker", "outcome"),
            registry=registry,
        )
        self.turn_seconds = Histogram(
            "gravity_turn_duration_seconds",
            "From a turn's arrival to its end",
            ("task", "lane"),
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.first_token_seconds = Histogram(
            genai.prometheus_name(genai.TIME_TO_FIRST_TOKEN),
            "From a turn's arrival to its first token (streams only)",
            ("model", "lane"),
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.output_token_seconds = Histogram(
            genai.prometheus_name(genai.TIME_PER_OUTPUT_TOKEN),
            "Mean time of a token after the first (streams only)",
            ("model", "lane"),
            buckets=TOKEN_BUCKETS_S,
            registry=registry,
        )
        self.context_tokens = Counter(
            "gravity_context_tokens",
            "Tokens of the documents as sent (before) and as kept (after)",
            ("task", "lane", "stage"),
            registry=registry,
        )
        self.context_findings = Counter(
            "gravity_context_findings",
            "Turns with documents that contradict each other (conflicts) or have several themes (centres)",
            ("task", "lane", "finding"),
            registry=registry,
        )
        self.bucket_pools = Counter(
            "gravity_bucket_pool",
            "Turns by bucket, and by what their worker is for: own (this bucket), shared (all), other",
            ("bucket", "pool"),
            registry=registry,
        )
        self.retries = Counter(
            "gravity_dispatch_retries",
            "Turns sent to another worker because one failed before its first byte",
            registry=registry,
        )
        self.hedges = Counter(
            "gravity_dispatch_hedges",
            "Turns sent to a second worker while the first was silent, by who began: first, second, neither",
            ("began",),
            registry=registry,
        )
        self.silent_workers = Counter(
            "gravity_worker_silences",
            "Times that a worker was taken out because it was silent while another answered",
            ("worker",),
            registry=registry,
        )
        self.queue_waiting = Gauge(
            "gravity_queue_waiting", "Turns that wait for a worker with room", ("bucket",), registry=registry
        )
        self.queue_seconds = Histogram(
            "gravity_queue_duration_seconds",
            "How long turns waited that had to wait and got a worker",
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self.queue_refusals = Counter(
            "gravity_queue_refusals",
            "Turns refused by the queue: full, late (would surely miss the deadline), timeout, displaced (by "
            "one more urgent)",
            ("reason",),
            registry=registry,
        )
        self.shed_level = Gauge(
            "gravity_shed_level",
            "Steps of shedding in force: 1 budget, 2 shadow, 3 choices, 4 priority",
            registry=registry,
        )
        self.shed = Counter(
            "gravity_shed",
            "Turns with a smaller budget (budget), left out (shadow) or refused (choices, priority)",
            ("step",),
            registry=registry,
        )
        self.records_not_written = Counter(
            "gravity_records_not_written",
            "Turn records lost because Redis was away or too slow",
            registry=registry,
        )
        self.record_failures = Counter(
            "gravity_record_write_failures",
            "Attempts to write turn records that Redis did not take",
            registry=registry,
        )
        self.records_waiting = Gauge(
            "gravity_records_waiting", "Turn records that wait to be written", registry=registry
        )
        self.estimates_waiting = Gauge(
            "gravity_estimated_batches_waiting",
            "Batches of steps at opaque workers that wait to be written",
            registry=registry,
        )
        self.estimate_failures = Counter(
            "gravity_estimated_batch_write_failures",
            "Attempts to write steps at opaque workers that Redis did not take",
            registry=registry,
        )
        self.estimates_not_written = Counter(
            "gravity_estimated_batches_not_written",
            "Batches of steps at opaque workers lost because Redis was away or too slow",
            registry=registry,
        )
        self.estimated_steps_lost = Counter(
            "gravity_estimated_steps_lost",
            "Steps at opaque workers lost because Redis was away or too slow",
            registry=registry,
        )
        self.outcomes_not_written = Counter(
            "gravity_outcomes_not_written",
            "Exposures and outcomes of experiments lost because Redis was away or too slow",
            registry=registry,
        )
        self.outcome_failures = Counter(
            "gravity_outcome_write_failures",
            "Attempts to write exposures and outcomes that Redis did not take",
            registry=registry,
        )
        self.outcomes_waiting = Gauge(
            "gravity_outcomes_waiting", "Exposures and outcomes that wait to be written", registry=registry
        )
        self.texts_not_measured = Counter(
            "gravity_outcome_texts_not_measured",
            "Outcomes without theme_relevance (busy: too many waited; failed: the encoder did not answer)",
            ("reason",),
            registry=registry,
        )
        self.feedback = Counter(
            "gravity_feedback",
            "Numbers that clients reported of a turn: new, repeated, unknown (no such turn), full",
            ("result",),
            registry=registry,
        )
        self.shadows = Counter(
            "gravity_shadows",
            "Finished shadow turns, which no client waits for, by outcome: ok, error, cancelled",
            ("outcome",),
            registry=registry,
        )
        self.shadows_left_out = Counter(
            "gravity_shadows_left_out",
            "Shadow turns not begun: limit, busy (no idle worker), draining, changed (the "
            "configuration), shed",
            ("reason",),
            registry=registry,
        )
        self.guardrails_broken = Counter(
            "gravity_guardrail_broken",
            "Guardrails of experiments found broken, once each",
            ("metric", "action"),
            registry=registry,
        )
        self.guardrail_actions = Counter(
            "gravity_guardrail_actions",
            "What was tried for a broken guardrail (stop, roll_back), and the result: done, failed",
            ("action", "result"),
            registry=registry,
        )
        self.encodings = Counter(
            "gravity_encodings",
            "Texts that pruning needed encoded, by where the encoding came from: process, redis, encoder",
            ("encoder", "source"),
            registry=registry,
        )
        self.encodings_not_shared = Counter(
            "gravity_encodings_not_shared",
            "Encodings not written to Redis because it was away or too slow",
            registry=registry,
        )
        self.encoding_cache_failures = Counter(
            "gravity_encoding_cache_failures",
            "Times that Redis did not read or write encodings in time; each is followed by a pause",
            registry=registry,
        )
        self.config_version = Gauge(
            "gravity_config_version",
            "Number of the configuration in force; 0 for plain files",
            registry=registry,
        )
        self.config_loaded_timestamp = Gauge(
            "gravity_config_loaded_timestamp_seconds",
            "When the configuration in force was taken over, Unix time",
            registry=registry,
        )
        self.config_last_reload_successful = Gauge(
            "gravity_config_last_reload_successful",
            "1 where what the configuration's store has now is what serves, else 0",
            registry=registry,
        )
        self.key_refusals = Counter(
            "gravity_key_refusals",
            "Requests refused by keys: keyless (from elsewhere while no key is configured), invalid, scope, "
            "task, model, or a limit: requests, tokens, turns",
            ("reason",),
            registry=registry,
        )
        self.limits_from_memory = Counter(
            "gravity_limits_from_memory",
            "Checks of a key's limits that hold for this gateway alone: Redis was away or too slow",
            registry=registry,
        )
        self.worker_ready = Gauge(
            "gravity_worker_ready", "1 where requests are sent to the worker", ("worker",), registry=registry
        )
        self.worker_in_flight = Gauge(
            "gravity_worker_in_flight",
            "Requests that this gateway has open at the worker",
            ("worker",),
            registry=registry,
        )

    def observe_turn(self, labels: TurnLabels, outcome: str, latency_s: float) -> None:
        """Count a turn that ended: ok, error or cancelled."""
        self._turn_series(labels, outcome).inc()
        self._lane_series(labels.task, labels.lane).turn_seconds.observe(latency_s)

    def observe_tokens(self, labels: TurnLabels, first_s: float, later_s: float | None) -> None:
        """``first_s`` until the first token, ``later_s`` the mean of those after it, if there were any."""
        self.first_token_seconds.labels(labels.model, labels.lane).observe(first_s)
        if later_s is not None:
            self.output_token_seconds.labels(labels.model, labels.lane).observe(later_s)

    def observe_context(self, labels: TurnLabels, tokens_before: int, tokens_after: int) -> None:
        series = self._lane_series(labels.task, labels.lane)
        series.tokens_before.inc(tokens_before)
        series.tokens_after.inc(tokens_after)

    def observe_findings(self, labels: TurnLabels, num_conflicts: int, num_centres: int) -> None:
        """Count a turn once for each kind of trouble that its kept documents are in."""
        if num_conflicts:
            self.context_findings.labels(labels.task, labels.lane, "conflicts").inc()
        if num_centres:
            self.context_findings.labels(labels.task, labels.lane, "centres").inc()

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _find_turn_series(self, labels: TurnLabels, outcome: str) -> Counter:
        return self.turns.labels(*labels, outcome)

    def _find_lane_series(self, task: str, lane: str) -> _LaneSeries:
        return _LaneSeries(
            self.turn_seconds.labels(task, lane),
            self.context_tokens.labels(task, lane, "before"),
            self.context_tokens.labels(task, lane, "after"),
        )
