"""Traces and metrics at a real collector: what they hold, how they hang together, what never gets there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.errors import ConfigError
from gateway.flow.tracing import open_tracing
from gateway.settings import GatewaySettings
from gateway.telemetry.spans import NO_PARENT, NO_SPAN, NoTracing, Parent
from tests.conftest import WaitUntil
from tests.servers.collector import Collector, attributes, collecting
from tests.servers.gateway import CHAT, PLAIN, Gateway, Scripted, StartGateway
from tests.servers.upstream import MODEL, Die, Hang, Script, StartUpstream, Upstream, chunk, events, whole

JSON = "application/json"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
SECRET = "Xylophonquark"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    with collecting() as running:
        yield running


def ask(gateway: Gateway, **body: Any) -> httpx.Response:
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    return httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | body, headers=headers, timeout=30.0)


def test_a_turn_is_a_server_span_with_its_parts_under_the_clients_trace(
    collector: Collector, upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(events(chunk(SECRET), chunk(finish="stop"), {"choices": [], "usage": USAGE}))
    gateway = start_gateway(upstream.url, otel_endpoint=collector.url)
    messages = [{"role": "user", "content": SECRET}]
    response = ask(gateway, stream=True, messages=messages, user=SECRET, temperature=0.5)
    (turn,) = wait_until(lambda: collector.named("chat "))
    assert turn.name == f"chat {MODEL}"
    assert turn.kind == Span.SPAN_KIND_SERVER
    assert turn.trace_id.hex() == TRACE
    assert turn.parent_span_id.hex() == CALLER
    names = ("prune", "dispatch", "relay")
    wait_until(lambda: all(collector.named(name) for name in names))
    parts = {name: collector.named(name)[0] for name in names}
    assert {part.parent_span_id for part in parts.values()} == {turn.span_id}
    assert parts["dispatch"].kind == Span.SPAN_KIND_CLIENT
    assert attributes(parts["dispatch"])["gravity.worker"] == upstream.url
    assert upstream.headers[0]["traceparent"] == f"00-{TRACE}-{parts['dispatch'].span_id.hex()}-01"
    assert upstream.headers[0]["tracestate"] == "vendor=1"

    told = attributes(turn)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == MODEL
    assert told["gen_ai.request.temperature"] == 0.5
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (3, 2)
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert told["gravity.turn_id"] == response.headers["x-gravity-turn-id"]
    assert told["gravity.documents_kept"] == 0
    assert turn.status.code == Status.STATUS_CODE_UNSET
    assert collector.resources[0]["service.name"] == "narrative-gravity"
    assert not any(SECRET.encode() in body for body in collector.raw)


def test_each_attempt_is_a_span_and_a_failed_one_says_why(
    collector: Collector, start_upstream: StartUpstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    failing, healthy = start_upstream(), start_upstream()
    failing.plays(Script([b'{"error": {"message": "Xylophonquark"}}'], status=500, content_type=JSON))
    healthy.plays(Script([whole("ok")], content_type=JSON))
    gateway = start_gateway(failing.url, healthy.url, otel_endpoint=collector.url)
    assert [ask(gateway).status_code for _ in range(2)] == [200, 200]
    wait_until(lambda: len(collector.named("chat ")) == 2)
    attempts = {attributes(span)["gravity.worker"]: span for span in collector.named("dispatch")}
    assert attributes(attempts[failing.url])["error.type"] == "upstream_error"
    assert attempts[failing.url].status.code == Status.STATUS_CODE_ERROR
    assert attempts[healthy.url].status.code == Status.STATUS_CODE_UNSET
    assert not any(SECRET.encode() in body for body in collector.raw)


def test_an_answer_that_breaks_off_and_a_client_that_leaves_are_errors(
    collector: Collector, upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    broken = Script([events(chunk("a"), done=False), Die()])
    upstream.plays(broken, Script([events(chunk("a"), done=False), Hang()]))
    gateway = start_gateway(upstream.url, otel_endpoint=collector.url)
    ask(gateway, stream=True)
    with httpx.stream("POST", gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}) as response:
        next(response.iter_raw())
    wait_until(lambda: len(collector.named("chat ")) == 2)
    assert [attributes(span)["error.type"] for span in collector.named("chat ")] == [
        "upstream_error",
        "cancelled",
    ]
    assert [attributes(span)["error.type"] for span in collector.named("relay")] == [
        "upstream_error",
        "CancelledError",
    ]


def test_metrics_come_under_the_genai_names_with_closed_labels(
    collector: Collector, upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(events(chunk("a"), chunk("b"), chunk(finish="stop"), {"choices": [], "usage": USAGE}))
    gateway = start_gateway(upstream.url, otel_endpoint=collector.url)
    ask(gateway, stream=True)
    assert ask(gateway, model="made-up").status_code == 404
    durations = wait_until(lambda: _two(collector.points("gen_ai.server.request.duration")))
    labels = {labels["gen_ai.request.model"]: labels for labels, _ in durations}
    assert labels[MODEL] == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "narrative_gravity",
        "gen_ai.request.model": MODEL,
    }
    assert labels["other"]["error.type"] == "model_not_found"
    assert [point.count for _, point in collector.points("gen_ai.server.time_to_first_token")] == [1]
    assert [point.count for _, point in collector.points("gen_ai.server.time_per_output_token")] == [1]
    tokens = {
        labels["gen_ai.token.type"]: point.sum
        for labels, point in collector.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": 3, "output": 2}


def _two(points: list[tuple[dict[str, Any], Any]]) -> list[tuple[dict[str, Any], Any]]:
    return points if len(points) == 2 else []


def test_texts_are_told_only_where_a_setting_says_so(
    collector: Collector, upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([whole("an answer")], content_type=JSON))
    ask(start_gateway(upstream.url, otel_endpoint=collector.url, otel_prompt_text=True))
    (turn,) = wait_until(lambda: collector.named("chat "))
    assert "hello" in attributes(turn)["gen_ai.input.messages"]
    assert attributes(turn)["gen_ai.output.messages"] == "an answer"


def test_at_ratio_zero_a_trace_that_begins_here_is_not_kept_and_the_clients_is(
    collector: Collector, upstream: Upstream, start_gateway: StartGateway, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([whole("ok")], content_type=JSON))
    gateway = start_gateway(upstream.url, otel_endpoint=collector.url, otel_sample_ratio=0.0)
    httpx.post(gateway.url + CHAT, json=PLAIN[CHAT])
    ask(gateway)
    wait_until(lambda: collector.named("chat "))
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    flags = int(upstream.headers[0]["traceparent"][-2:], 16)
    assert flags & 1 == 0


def test_the_sdks_own_variables_are_honoured(
    collector: Collector,
    upstream: Upstream,
    start_gateway: StartGateway,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=harbour")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    upstream.plays(Script([whole("ok")], content_type=JSON))
    ask(start_gateway(upstream.url, otel_endpoint=collector.url, otel_sample_ratio=0.0))
    wait_until(lambda: collector.named("chat "))
    assert collector.resources[0]["service.name"] == "gate"
    assert any(headers.get("x-team") == "harbour" for headers in collector.headers)


def test_without_a_collector_the_worker_sees_the_clients_own_trace(scripted: Scripted) -> None:
    assert isinstance(scripted.gateway.deps.tracing, NoTracing)
    scripted.upstream.plays(Script([whole("ok")], content_type=JSON))
    ask(scripted.gateway)
    assert scripted.upstream.headers[0]["traceparent"] == TRACEPARENT
    scripted.post()
    assert "traceparent" not in scripted.upstream.headers[1]
    assert NoTracing().turn(NO_PARENT, 0.0) is NO_SPAN


@pytest.mark.parametrize(
    "value",
    [
        *("", "x", TRACEPARENT[:-1], TRACEPARENT + "0", TRACEPARENT.upper(), f"01-{TRACE}-{CALLER}-01"),
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{TRACEPARENT}\n",
    ],
)
def test_a_traceparent_that_is_none_is_as_if_it_were_absent(value: str) -> None:
    assert Parent.of({"traceparent": value, "tracestate": "a=1"}) is NO_PARENT


def test_a_collector_without_the_packages_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.telemetry.otel", None)
    settings = GatewaySettings(otel_endpoint="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"narrative-gravity\[otel\]"):
        open_tracing(settings, "here", tuple)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:b@host", "http://host?x=1"])
def test_a_collectors_address_is_checked(url: str) -> None:
    with pytest.raises(ValueError, match="collector"):
        GatewaySettings(otel_endpoint=url)
