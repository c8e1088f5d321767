"""OpenTelemetry: a server span a turn, its parts below it, and the GenAI metrics, sent over OTLP/HTTP.

Needs the extra ``otel``; nothing of it is imported where no collector is named. The SDK's own variables
(``OTEL_*``: headers, timeouts, resource, sampler, intervals) are honoured as it reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from opentelemetry import context as otel_context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry import genai
from gateway.telemetry.metrics import LATENCY_BUCKETS_S, TOKEN_BUCKETS_S, closed
from gateway.telemetry.spans import Attribute, Kind, Parent, Part, TurnFacts, TurnSpan

SCOPE = "narrative-gravity"
TOKEN_COUNT_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)
KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
NANOSECONDS = 1_000_000_000
_PROPAGATOR = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class OtelSettings:
    """Where to send, and how much."""

    endpoint: str
    """Base URL of the collector; ``/v1/traces`` and ``/v1/metrics`` are added."""
    sample_ratio: float
    """Share of the traces that begin here; one that the client began keeps its decision."""
    has_prompt_text: bool
    replica_id: str


class OtelTracing:
    """The SDK's providers of this process, not the global ones."""

    is_on = True

    def __init__(self, settings: OtelSettings, known_models: Callable[[], Collection[str]]) -> None:
        self.has_prompt_text = settings.has_prompt_text
        named = {} if _is_service_named() else {"service.name": SCOPE}
        resource = Resource.create({"service.instance.id": settings.replica_id, **named})
        self._spans = TracerProvider(sampler=_sampler(settings), resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=settings.endpoint + "/v1/traces")
        self._spans.add_span_processor(BatchSpanProcessor(exporter))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=settings.endpoint + "/v1/metrics"))
        self._metrics = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
        self._tracer = self._spans.get_tracer(SCOPE)
        self._figures = _Figures(self._metrics, known_models)

    def turn(self, parent: Parent, received_at: float) -> TurnSpan:
        context = _PROPAGATOR.extract(parent.headers, otel_context.Context())
        span = self._tracer.start_span(
            "turn", context, SpanKind.SERVER, start_time=int(received_at * NANOSECONDS)
        )
        return _OtelTurn(self._tracer, span, self._figures)

    def close(self) -> None:
        self._spans.shutdown()
        self._metrics.shutdown()


class _Figures:
    """The GenAI metrics. Labels come out of closed sets: a model that no worker has is ``other``."""

    def __init__(self, provider: MeterProvider, known_models: Callable[[], Collection[str]]) -> None:
        meter = provider.get_meter(SCOPE)
        self._known_models = known_models
        self._duration = _seconds(meter.create_histogram, genai.REQUEST_DURATION, LATENCY_BUCKETS_S)
        self._first = _seconds(meter.create_histogram, genai.TIME_TO_FIRST_TOKEN, LATENCY_BUCKETS_S)
        self._later = _seconds(meter.create_histogram, genai.TIME_PER_OUTPUT_TOKEN, TOKEN_BUCKETS_S)
        self._tokens = meter.create_histogram(
            genai.TOKEN_USAGE, "{token}", explicit_bucket_boundaries_advisory=TOKEN_COUNT_BUCKETS
        )

    def observe(self, facts: TurnFacts) -> None:
        labels = {
            genai.OPERATION_NAME: facts.operation,
            genai.PROVIDER_NAME: genai.PROVIDER,
            genai.REQUEST_MODEL: closed(facts.model, self._known_models()),
        }
        failed = {genai.ERROR_TYPE: facts.error_code} if facts.error_code else {}
        self._duration.record(facts.latency_s, labels | failed)
        if facts.first_token_s is not None:
            self._first.record(facts.first_token_s, labels)
        if facts.later_token_s is not None:
            self._later.record(facts.later_token_s, labels)
        for kind, count in (("input", facts.input_tokens), ("output", facts.output_tokens)):
            if count:
                self._tokens.record(count, labels | {genai.TOKEN_TYPE: kind})


class _OtelTurn:
    """One turn's span."""

    def __init__(self, tracer: Tracer, span: Span, figures: _Figures) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span, otel_context.Context())
        self._figures = figures

    def part(self, name: str, kind: Kind = "internal") -> AbstractContextManager[Part]:
        return self._timed(name, kind)

    @contextmanager
    def _timed(self, name: str, kind: Kind) -> Iterator[Part]:
        span = self._tracer.start_span(name, self._context, KINDS[kind])
        try:
            yield _OtelPart(span)
        except BaseException as error:
            # Never the error's own words: a worker may have put the prompt into them.
            code = str(getattr(error, "code", "") or type(error).__name__)
            span.set_attribute(genai.ERROR_TYPE, code)
            span.set_status(Status(StatusCode.ERROR, code))
            raise
        finally:
            span.end()

    def end(self, facts: TurnFacts) -> None:
        if self._span.is_recording():
            self._span.update_name(f"{facts.operation} {facts.model}")
            self._span.set_attributes(dict(facts.attributes))
            if facts.error_code:
                self._span.set_attribute(genai.ERROR_TYPE, facts.error_code)
                self._span.set_status(Status(StatusCode.ERROR, facts.error_code))
        self._span.end()
        self._figures.observe(facts)


class _OtelPart:
    """One part's span."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span, otel_context.Context()))
        self.headers: Mapping[str, str] = carrier

    def tell(self, attributes: Mapping[str, Attribute]) -> None:
        self._span.set_attributes(dict(attributes))


def _seconds(create: Callable[..., Histogram], name: str, boundaries: tuple[float, ...]) -> Histogram:
    return create(name, "s", explicit_bucket_boundaries_advisory=boundaries)


def _sampler(settings: OtelSettings) -> Sampler | None:
    """Return the setting's sampler; None leaves it to the SDK, which then reads its own variable."""
    if os.environ.get("OTEL_TRACES_SAMPLER"):
        return None
    return ParentBased(TraceIdRatioBased(settings.sample_ratio))


def _is_service_named() -> bool:
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return bool(os.environ.get("OTEL_SERVICE_NAME")) or "service.name=" in attributes
