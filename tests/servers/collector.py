"""An OpenTelemetry collector: takes OTLP over HTTP, decodes the protobuf, keeps all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """``raw`` is every body as it came; ``spans`` and ``resources`` are what they hold."""

    def __init__(self) -> None:
        self.url = ""
        self.raw: list[bytes] = []
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._points: dict[str, list[tuple[dict[str, Any], Any]]] = {}

    def named(self, prefix: str) -> list[Any]:
        """Spans whose name begins so, in the order of their beginning."""
        found = [span for span in self.spans if span.name.startswith(prefix)]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def points(self, metric: str) -> list[tuple[dict[str, Any], Any]]:
        """The newest (labels, data point) pairs of a histogram."""
        return self._points.get(metric, [])

    def take(self, path: str, body: bytes) -> None:
        self.raw.append(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(resource.resource))
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
                    self._points[metric.name] = [
                        (attributes(point), point) for point in metric.histogram.data_points
                    ]


def attributes(holder: Any) -> dict[str, Any]:
    """Return the attributes of a span, a resource or a data point as plain values."""
    return {each.key: _plain(each.value) for each in holder.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.headers.append(dict(self.headers.items()))
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield collector
    server.shutdown()
    server.server_close()
    thread.join()
