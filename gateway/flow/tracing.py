"""Which tracing a gateway has: OpenTelemetry's where a collector is named, else none."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gateway.errors import ConfigError
from gateway.settings import GatewaySettings
from gateway.telemetry.spans import NoTracing, Tracing

NEEDS_EXTRA = "NG_OTEL_ENDPOINT needs OpenTelemetry: pip install 'narrative-gravity[otel]'"


def open_tracing(
    settings: GatewaySettings, replica_id: str, known_models: Callable[[], Collection[str]]
) -> Tracing:
    """Raises ConfigError where a collector is named and the packages are not there."""
    if settings.otel_endpoint is None:
        return NoTracing()
    try:
        from gateway.telemetry.otel import OtelSettings, OtelTracing
    except ImportError as error:
        raise ConfigError(NEEDS_EXTRA) from error
    told = OtelSettings(
        endpoint=settings.otel_endpoint,
        sample_ratio=settings.otel_sample_ratio,
        has_prompt_text=settings.otel_prompt_text,
        replica_id=replica_id,
    )
    return OtelTracing(told, known_models)
