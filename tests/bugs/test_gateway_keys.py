"""Public reports about keys and their limits, as inputs to the gateway."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from gateway.telemetry.logs import JsonFormatter
from tests.conftest import WaitUntil
from tests.servers.gateway import CHAT, PLAIN, Gateway, StartGateway
from tests.servers.keys import MadeKey, made_key
from tests.servers.upstream import Hang, Script, Upstream, chunk, events

TOKENS_PER_MINUTE = 60
StartKeyed = Callable[..., Gateway]


@pytest.fixture
def start_keyed(upstream: Upstream, start_gateway: StartGateway, tmp_path: Path) -> StartKeyed:
    """Start a gateway whose file of keys holds the given ones."""

    def start(*keys: MadeKey) -> Gateway:
        file = tmp_path / "keys.json"
        file.write_text(json.dumps({"keys": [key.entry for key in keys]}))
        return start_gateway(
            upstream.url,
            keys_file=file,
            state_dir=tmp_path,
            config_namespace=f"bugs-{uuid.uuid4().hex}",
            limit_timeout_s=5.0,
        )

    return start


def test_litellm_39757_neither_a_key_nor_its_hash_is_shown_whatever_is_wrong_with_it(
    start_keyed: StartKeyed, caplog: pytest.LogCaptureFixture
) -> None:
    good, gone = made_key(), made_key(revoked_at="2026-01-01T00:00:00Z")
    late = made_key(expires_at="2026-01-01T00:00:00Z")
    gateway = start_keyed(good, gone, late)
    wrong = good.secret[:-1] + ("0" if good.secret[-1] != "0" else "1")
    unknown = made_key()
    headers: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": good.secret},
        {"Authorization": f"Basic {good.secret}"},
        {"x-api-key": good.secret},
        *({"Authorization": f"Bearer {each}"} for each in (wrong, gone.secret, late.secret, unknown.secret)),
        *({"Authorization": f"Bearer {each}"} for each in (good.entry["sha256"], "sk-mine-0123456789")),
    ]
    with caplog.at_level(logging.DEBUG):
        answers = [httpx.post(gateway.url + CHAT, json=PLAIN[CHAT], headers=each) for each in headers]
    assert {answer.status_code for answer in answers} == {401}
    # One body for all of them, to the byte.
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["error"]["code"] == "invalid_api_key"
    lines = [JsonFormatter().format(record) for record in caplog.records]
    told = "\n".join([*lines, *(answer.text + str(answer.headers) for answer in answers)])
    told += httpx.get(gateway.url + "/metrics").text + httpx.get(gateway.url + "/health").text
    for key in (good, gone, late, unknown):
        assert key.secret.rpartition("_")[2] not in told
        assert key.entry["sha256"] not in told
    assert "sk-mine" not in told
    # A good one is served all the while.
    assert httpx.get(gateway.url + "/v1/models", headers=good.bearer).status_code == 200


@pytest.mark.parametrize("usage_of_upstream", [True, False])
def test_higress_2187_a_stream_without_include_usage_counts_against_the_tokens(
    start_keyed: StartKeyed, upstream: Upstream, wait_until: WaitUntil, usage_of_upstream: bool
) -> None:
    key = made_key(limits={"tokens_per_minute": TOKENS_PER_MINUTE})
    gateway = start_keyed(key)
    words = [chunk(f" word{number}") for number in range(50)]
    usage = [chunk(usage={"prompt_tokens": 2, "completion_tokens": 50}, choices=[])]
    upstream.plays(events(*words, chunk(finish="stop"), *(usage if usage_of_upstream else [])))
    with httpx.Client(base_url=gateway.url, headers=key.bearer, timeout=30.0) as client:
        first = client.post(CHAT, json=PLAIN[CHAT] | {"stream": True})
        assert first.status_code == 200
        assert b'"usage"' not in first.content

        def left() -> int:
            headers = client.get("/v1/models").headers
            return int(headers["x-ratelimit-remaining-tokens"])

        # Of 60 about ten are left, and one comes back in a second.
        wait_until(lambda: left() <= 20, timeout_s=5.0)
        refused = client.post(
            CHAT, json={**PLAIN[CHAT], "messages": [{"role": "user", "content": "x" * 200}]}
        )
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 20


def test_higress_2187_tokens_count_while_the_stream_runs_and_when_its_client_leaves(
    start_keyed: StartKeyed, upstream: Upstream, wait_until: WaitUntil
) -> None:
    key = made_key(limits={"tokens_per_minute": TOKENS_PER_MINUTE})
    gateway = start_keyed(key)
    words = events(*(chunk(f" w{number}") for number in range(40)), done=False)
    upstream.plays(Script([words, Hang()]))

    def left() -> int:
        headers = httpx.get(gateway.url + "/v1/models", headers=key.bearer).headers
        return int(headers["x-ratelimit-remaining-tokens"])

    with httpx.stream(
        "POST", gateway.url + CHAT, json=PLAIN[CHAT] | {"stream": True}, headers=key.bearer, timeout=30.0
    ) as stream:
        pieces = stream.iter_bytes()
        assert next(pieces)
        wait_until(lambda: left() <= 30, timeout_s=5.0)
    wait_until(lambda: upstream.num_left == 1)
    assert left() <= 35
