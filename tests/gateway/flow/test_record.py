"""Turns in a real Valkey: written, bounded, and never in a request's way when it is gone, slow or late."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from tests.passages import FERRY, QUESTION
from tests.servers.gateway import CHAT, PLAIN, Gateway, Scripted, StartGateway
from tests.servers.upstream import Script, Upstream, chunk, events, whole

WaitUntil = Callable[..., Any]
SUMMARY = {
    "num_steps": 2,
    "mean_entropy_nats": 1.25,
    "mean_gravity": 0.8,
    "mean_k": 12.0,
    "entropic_time_nats": 0.5,
    "net_drop_nats": 0.25,
    "envelope_nats": 0.3,
    "seed": 11,
}
REDIS_TIMEOUT_S = 2.0
SOON_S = 1.8
"""Less than a request would take that waited for a Redis that does not answer."""


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def answering(upstream: Upstream) -> Upstream:
    upstream.plays(Script([whole("ok")], content_type="application/json"))
    return upstream


def ask(gateway: Gateway, **body: Any) -> str:
    """Return the turn's id."""
    answer = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | body, timeout=30.0)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-gravity-turn-id"]


def ask_promptly(gateway: Gateway) -> str:
    """Return the turn's id; the request must not have waited for Redis."""
    started = time.monotonic()
    turn_id = ask(gateway)
    assert time.monotonic() - started < SOON_S
    return turn_id


def metric(gateway: Gateway, name: str) -> float:
    lines = httpx.get(gateway.url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + " ", name + "{")))


def test_a_turn_is_recorded_with_its_outcome(
    upstream: Upstream, start_gateway: StartGateway, redis: Redis, wait_until: WaitUntil
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    end = chunk(finish="stop", gravity=SUMMARY)
    upstream.plays(events(chunk("he"), chunk("llo"), end, {"choices": [], "usage": usage}))
    turn_id = ask(start_gateway(upstream.url), stream=True, user="ada")
    record = orjson.loads(wait_until(lambda: redis.get(f"ng:turn:{turn_id}")))
    outcome = record["outcome"]
    assert (outcome["status"], outcome["finish_reasons"], outcome["text"]) == ("ok", ["stop"], "hello")
    assert (outcome["prompt_tokens"], outcome["completion_tokens"], outcome["seed"]) == (3, 2, 11)
    assert (outcome["mean_gravity"], outcome["entropic_time_nats"]) == (0.8, 0.5)
    assert 0 < outcome["time_to_first_token_s"] <= outcome["latency_s"]
    assert record["upstream_body"] == upstream.received[0][1]
    assert redis.ttl(f"ng:turn:{turn_id}") > 60


def test_the_stream_of_turns_has_a_summary_of_each(
    answering: Upstream, start_gateway: StartGateway, redis: Redis, wait_until: WaitUntil
) -> None:
    gateway = start_gateway(answering.url)
    ids = {ask(gateway, user="quetzal") for _ in range(5)}

    def found() -> list[dict[bytes, bytes]] | None:
        entries: Any = redis.xrevrange("ng:turns", count=100)
        ours = [fields for _, fields in entries if fields[b"id"].decode() in ids]
        return ours if len(ours) == 5 else None

    for fields in wait_until(found):
        assert (fields[b"lane"], fields[b"task"], fields[b"status"]) == (b"treatment", b"default", b"ok")
        assert fields[b"worker"].decode() == answering.url
        assert b"quetzal" not in b"".join(fields.values())


def test_openlinker_2163_the_stream_of_turns_is_bounded(
    answering: Upstream, start_gateway: StartGateway, start_valkey: Any, wait_until: WaitUntil
) -> None:
    valkey = start_valkey()
    gateway = start_gateway(answering.url, redis_url=valkey.url, max_turns=10)
    with httpx.Client(base_url=gateway.url) as client, Redis.from_url(valkey.url) as redis:
        for _ in range(250):
            answer = client.post(CHAT, json=PLAIN[CHAT])
        last = answer.headers["x-gravity-turn-id"]
        wait_until(lambda: redis.exists(f"ng:turn:{last}"))
        # Trimming is approximate: whole nodes of 100 entries.
        assert redis.xlen("ng:turns") <= 10 + 100
    valkey.end()


def test_a_failed_turn_is_recorded_as_one(
    upstream: Upstream, start_gateway: StartGateway, redis: Redis, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([b"{}"], status=500, content_type="application/json"))
    answer = httpx.post(start_gateway(upstream.url).url + CHAT, json=PLAIN[CHAT])
    key = f"ng:turn:{answer.headers['x-gravity-turn-id']}"
    record = orjson.loads(wait_until(lambda: redis.get(key)))
    assert (record["outcome"]["status"], record["outcome"]["error_code"]) == ("error", "upstream_error")
    assert record["worker"] == upstream.url


@pytest.mark.parametrize("retention", ["hashed", "none"])
def test_the_retention_setting_keeps_texts_out_of_redis(
    answering: Upstream, start_gateway: StartGateway, redis: Redis, wait_until: WaitUntil, retention: str
) -> None:
    gateway = start_gateway(answering.url, text_retention=retention)
    body = {
        "messages": [{"role": "user", "content": "where is the quetzalcoatl"}],
        "documents": ["the quetzalcoatl is here"],
        "user": "quetzalcoatl",
    }
    # The control lane, which needs no encoder.
    headers = {"X-Gravity-Lane": "control"}
    answer = httpx.post(gateway.url + CHAT, json=PLAIN[CHAT] | body, headers=headers)
    turn_id = answer.headers["x-gravity-turn-id"]
    assert b"quetzalcoatl" not in wait_until(lambda: redis.get(f"ng:turn:{turn_id}"))


def test_a_record_that_is_too_large_is_kept_without_its_texts(
    answering: Upstream, start_gateway: StartGateway, redis: Redis, wait_until: WaitUntil
) -> None:
    gateway = start_gateway(answering.url, max_record_bytes=20_000)
    turn_id = ask(gateway, messages=[{"role": "user", "content": "a" * 30_000}])
    record = orjson.loads(wait_until(lambda: redis.get(f"ng:turn:{turn_id}")))
    assert (record["text_retention"], record["question"]) == ("none", "")


def test_redis_away_at_the_start_requests_are_served_and_records_come_later(
    answering: Upstream,
    start_gateway: StartGateway,
    start_valkey: Any,
    free_port: Callable[[], int],
    wait_until: WaitUntil,
) -> None:
    port = free_port()
    gateway = start_gateway(answering.url, redis_url=f"redis://127.0.0.1:{port}/0")
    assert httpx.get(gateway.url + "/readyz").status_code == 200
    turn_id = ask(gateway)
    wait_until(lambda: metric(gateway, "gravity_record_write_failures_total") >= 1)
    health = wait_until(lambda: _degraded(gateway))
    assert health["records"]["waiting"] == 1
    assert httpx.get(gateway.url + f"/admin/turns/{turn_id}").status_code == 503
    valkey = start_valkey(port)
    wait_until(lambda: httpx.get(gateway.url + f"/admin/turns/{turn_id}").status_code == 200)
    valkey.end()


def _degraded(gateway: Gateway) -> Any:
    health = httpx.get(gateway.url + "/health").json()
    return health if health["status"] == "degraded" and not health["redis"]["is_answering"] else None


def test_redis_killed_in_the_middle_requests_are_served_and_losses_counted(
    answering: Upstream, start_gateway: StartGateway, start_valkey: Any, wait_until: WaitUntil
) -> None:
    valkey = start_valkey()
    gateway = start_gateway(answering.url, redis_url=valkey.url, record_queue=3)
    ask(gateway)
    wait_until(lambda: gateway.deps.recorder.num_waiting == 0)
    valkey.signal(signal.SIGKILL)
    valkey.process.wait()
    for _ in range(8):
        ask_promptly(gateway)
    assert gateway.deps.recorder.num_waiting == 3
    assert metric(gateway, "gravity_records_not_written_total") == 5
    assert httpx.get(gateway.url + "/health").json()["records"] == {"waiting": 3, "lost": 5}


def test_redis_stopped_for_a_while_requests_are_served_and_no_turn_is_written_twice(
    answering: Upstream, start_gateway: StartGateway, start_valkey: Any, wait_until: WaitUntil
) -> None:
    valkey = start_valkey()
    gateway = start_gateway(answering.url, redis_url=valkey.url, redis_timeout_s=REDIS_TIMEOUT_S)
    first = ask(gateway)
    with Redis.from_url(valkey.url) as redis:
        wait_until(lambda: redis.exists(f"ng:turn:{first}"))
        valkey.signal(signal.SIGSTOP)
        ids = [ask_promptly(gateway) for _ in range(5)]
        wait_until(lambda: metric(gateway, "gravity_record_write_failures_total") >= 1)
        valkey.signal(signal.SIGCONT)
        wait_until(lambda: all(redis.exists(f"ng:turn:{turn_id}") for turn_id in ids))
        wait_until(lambda: gateway.deps.recorder.num_waiting == 0)
        entries: Any = redis.xrange("ng:turns")
        recorded = [fields[b"id"].decode() for _, fields in entries]
    assert sorted(recorded) == sorted([first, *ids])
    assert metric(gateway, "gravity_records_not_written_total") == 0
    valkey.end()


def test_what_a_turn_measured_moves_its_tasks_expected_s(
    upstream: Upstream, start_gateway: StartGateway, start_valkey: Any, wait_until: WaitUntil
) -> None:
    valkey = start_valkey()
    upstream.plays(events(chunk("a"), chunk(finish="stop", gravity=SUMMARY)))
    gateway = start_gateway(upstream.url, redis_url=valkey.url)
    ask(gateway, stream=True)
    task = gateway.deps.config.snapshot.tasks["default"]
    calibrated = task.calibration.s_mean if task.calibration else 0.2
    # 1 - G of the summary is 0.2; the calibration counts as one turn.
    expected = (calibrated + 0.2) / 2

    def is_learnt() -> bool:
        s = gateway.deps.entropies.expected_s(task, "fake-model")
        return s == pytest.approx(expected)

    wait_until(is_learnt)
    valkey.end()


def test_turns_whose_documents_contradict_each_other_are_told_and_counted(scripted: Scripted) -> None:
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    documents = [{"id": "old", "text": FERRY}, {"id": "new", "text": FERRY.replace("forty", "ninety")}]
    before = metric(scripted.gateway, "gravity_context_findings_total")
    for sent, expected in ((documents, [["old", "new"]]), (documents[:1], [])):
        answer = scripted.post(messages=[{"role": "user", "content": QUESTION}], documents=sent)
        told = answer.json()["gravity"]
        assert [conflict["documents"] for conflict in told["conflicts"]] == expected
        assert told["centres"] == []
    assert metric(scripted.gateway, "gravity_context_findings_total") == before + 1
    assert 'finding="conflicts"' in httpx.get(scripted.gateway.url + "/metrics").text
