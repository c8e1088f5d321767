"""Keys and their limits over real connections: two gateways, one Valkey, the real client of OpenAI."""

from __future__ import annotations

import json
import re
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
import pytest
from redis import Redis

from gateway.keys.fleet import FleetKeys
from gateway.keys.key import Key
from gateway.keys.names import KeyNames
from tests.conftest import StartValkey, WaitUntil
from tests.servers.gateway import CHAT, COMPLETIONS, PLAIN, Gateway, serving, until
from tests.servers.keys import MadeKey, made_key
from tests.servers.upstream import MODEL, Hang, Loop, Script, Upstream, chunk, events, whole

JSON = "application/json"
MESSAGES: Any = PLAIN[CHAT]["messages"]
AMPLE_S = 5.0
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two gateways that share a Valkey, their keys and one upstream."""

    gateways: tuple[Gateway, Gateway]
    upstream: Upstream
    keys: FleetKeys
    clients: list[openai.OpenAI] = field(default_factory=list)
    """Closed with the test."""

    def knows(self, key: MadeKey) -> MadeKey:
        """Add or change a key; returns when both gateways have taken it over."""
        wanted = Key.model_validate(key.entry)
        self.keys.change(key.id, lambda before: wanted)
        until(lambda: all(each.deps.gate.keys.ring.keys.get(key.id) == wanted for each in self.gateways))
        return key

    def post(self, key: MadeKey, gateway: int = 0, path: str = CHAT, **body: Any) -> httpx.Response:
        url = self.gateways[gateway].url + path
        return httpx.post(url, json=PLAIN.get(path, {}) | body, headers=key.bearer, timeout=30.0)

    def client(self, secret: str, gateway: int = 0) -> openai.OpenAI:
        url = self.gateways[gateway].url + "/v1"
        self.clients.append(openai.OpenAI(base_url=url, api_key=secret, max_retries=0))
        return self.clients[-1]

    def refusals(self, reason: str) -> float:
        """How many the first gateway has counted."""
        registry = self.gateways[0].deps.metrics.registry
        return registry.get_sample_value("gravity_key_refusals_total", {"reason": reason}) or 0.0


@pytest.fixture(scope="module")
def module_fleet(
    valkey_url: str, server_loop: Loop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    upstream = Upstream(server_loop, is_native=True)
    upstream.start()
    namespace = f"keys-{uuid.uuid4().hex}"
    settings: dict[str, Any] = {
        "redis_url": valkey_url,
        "config_namespace": namespace,
        "state_dir": tmp_path_factory.mktemp("state"),
        "limit_timeout_s": AMPLE_S,
        "admin_key": "an-admin-key-of-32-characters-xx",
    }
    with (
        serving(upstream.url, **settings) as one,
        serving(upstream.url, **settings) as other,
        Redis.from_url(valkey_url) as redis,
    ):
        until(lambda: one.deps.pool.has_ready_worker and other.deps.pool.has_ready_worker)
        yield Fleet((one, other), upstream, FleetKeys(redis, KeyNames(namespace)))
    upstream.stop()


@pytest.fixture
def fleet(module_fleet: Fleet) -> Iterator[Fleet]:
    """The module's fleet, which has a key by now, so nothing is open; its upstream answers ``ok``."""
    module_fleet.upstream.plays(Script([whole("ok", usage=USAGE)], content_type=JSON))
    module_fleet.upstream.forget()
    module_fleet.knows(made_key())
    yield module_fleet
    while module_fleet.clients:
        module_fleet.clients.pop().close()


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["error"]["code"]
    return code


def test_a_key_is_taken_at_once_and_goes_at_once(fleet: Fleet) -> None:
    key = fleet.knows(made_key())
    assert fleet.client(key.secret).chat.completions.create(model=MODEL, messages=MESSAGES).choices
    fleet.knows(MadeKey(key.id, key.secret, key.entry | {"revoked_at": "2026-01-01T00:00:00Z"}))
    with pytest.raises(openai.AuthenticationError):
        fleet.client(key.secret, 1).chat.completions.create(model=MODEL, messages=MESSAGES)


def test_openais_client_sees_its_own_exceptions(fleet: Fleet) -> None:
    with pytest.raises(openai.AuthenticationError) as unknown:
        fleet.client("sk-0123456789abcdef").models.list()
    assert unknown.value.code == "invalid_api_key"
    pruning = fleet.knows(made_key("prune"))
    with pytest.raises(openai.PermissionDeniedError) as denied:
        fleet.client(pruning.secret).chat.completions.create(model=MODEL, messages=MESSAGES)
    assert denied.value.code == "insufficient_scope"
    narrow = fleet.knows(made_key(models=["another"]))
    with pytest.raises(openai.NotFoundError) as missing:
        fleet.client(narrow.secret).chat.completions.create(model=MODEL, messages=MESSAGES)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    limited = fleet.knows(made_key(limits={"requests_per_minute": 1}))
    client = fleet.client(limited.secret)
    client.chat.completions.create(model=MODEL, messages=MESSAGES)
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert refused.value.code == "rate_limit_exceeded"
    assert 50 <= int(refused.value.response.headers["retry-after"]) <= 60


@pytest.mark.parametrize(
    ("scope", "opened"),
    [
        ("infer", {CHAT, COMPLETIONS, "/v1/prune", "/v1/rerank", "/v1/feedback", "/v1/models"}),
        ("prune", {"/v1/prune", "/v1/rerank", "/v1/models"}),
        ("feedback", {"/v1/feedback", "/v1/models"}),
        ("turns:read", {"/v1/models", "/admin/turns"}),
        ("config:read", {"/v1/models", "/admin/config"}),
        ("experiments:read", {"/v1/models", "/admin/experiments"}),
    ],
)
def test_a_scope_opens_its_paths_and_no_other(fleet: Fleet, scope: str, opened: set[str]) -> None:
    key = fleet.knows(made_key(scope))
    posts = (CHAT, COMPLETIONS, "/v1/prune", "/v1/rerank", "/v1/feedback")
    gets = ("/v1/models", "/admin/turns", "/admin/config", "/admin/experiments")
    with httpx.Client(base_url=fleet.gateways[0].url, headers=key.bearer) as client:
        # An empty body is a 400 for whoever may come in.
        statuses = {path: client.post(path, content=b"").status_code for path in posts}
        statuses |= {path: client.get(path).status_code for path in gets}
        statuses |= {"/admin/workers": client.get("/admin/workers").status_code}
        writes = [client.delete("/admin/turns?user=x").status_code, client.post("/admin/config/publish")]
    assert {path for path, status in statuses.items() if status != 403} == opened
    assert writes[0] == 403
    assert isinstance(writes[1], httpx.Response)
    assert writes[1].status_code == 403


def test_what_asks_for_no_key_is_open(fleet: Fleet) -> None:
    for path in ("/livez", "/readyz", "/health", "/metrics", "/openapi.json"):
        assert httpx.get(fleet.gateways[0].url + path).status_code == 200
    assert httpx.get(fleet.gateways[0].url + "/v1/models").status_code == 401


def test_a_key_sees_its_models_and_has_its_tasks(fleet: Fleet) -> None:
    narrow = fleet.knows(made_key(models=["another"], tasks=["rag_qa"]))
    assert fleet.client(narrow.secret).models.list().data == []
    with pytest.raises(openai.NotFoundError):
        fleet.client(narrow.secret).models.retrieve(MODEL)
    tasked = fleet.knows(made_key(tasks=["rag_qa"]))
    assert fleet.post(tasked, task="rag_qa").status_code == 200
    others: tuple[dict[str, Any], ...] = ({}, {"task": "default"}, {"task": "made-up"})
    for body in others:
        answer = fleet.post(tasked, **body)
        assert (answer.status_code, code_of(answer)) == (403, "insufficient_scope")
        assert answer.json()["error"]["param"] == "task"


def test_a_turn_carries_its_callers_id_and_priority(fleet: Fleet) -> None:
    key = fleet.knows(made_key(priority=7))
    answer = fleet.post(key)
    turn_id = answer.headers["x-gravity-turn-id"]
    gateway, admin = fleet.gateways[0], {"Authorization": "Bearer an-admin-key-of-32-characters-xx"}
    until(lambda: httpx.get(f"{gateway.url}/admin/turns/{turn_id}", headers=admin).status_code == 200)
    record = httpx.get(f"{gateway.url}/admin/turns/{turn_id}", headers=admin)
    assert (record.json()["turn"]["caller"], record.json()["turn"]["priority"]) == (key.id, 7)
    assert key.secret not in record.text
    assert key.entry["sha256"] not in record.text


def test_two_gateways_share_a_keys_requests(fleet: Fleet) -> None:
    key = fleet.knows(made_key(limits={"requests_per_minute": 4}))
    before = fleet.refusals("requests")
    answers = [fleet.post(key, number % 2) for number in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]
    told = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
    assert told == ["3", "2", "1", "0", "0"]
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in answers} == {"4"}
    # A request comes back in 15 s, all four in a minute.
    assert re.fullmatch(r"(1m0s|5\d(\.\d+)?s)", answers[3].headers["x-ratelimit-reset-requests"])
    assert fleet.refusals("requests") == before + 1
    assert fleet.post(key).status_code == 429
    assert len(fleet.upstream.received) == 4


def test_a_bad_request_is_a_request_and_every_answer_tells_what_is_left(fleet: Fleet) -> None:
    key = fleet.knows(made_key(limits={"requests_per_minute": 6, "tokens_per_minute": 1_000}))
    fleet.upstream.plays(Script([events(chunk("a"), chunk(finish="stop"))]))
    answers = [
        fleet.post(key, temperature=9),
        fleet.post(key, model="gpt-99"),
        fleet.post(key, stream=True),
        fleet.post(key, path="/v1/feedback", turn_id="none", name="liked", value=1),
        httpx.get(fleet.gateways[0].url + "/v1/models", headers=key.bearer),
    ]
    assert [answer.status_code for answer in answers] == [400, 404, 200, 404, 200]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == list("54321")
    assert all(int(answer.headers["x-ratelimit-remaining-tokens"]) > 900 for answer in answers)
    assert answers[2].headers["content-type"].startswith("text/event-stream")


def test_prompt_tokens_are_estimated_and_then_as_the_worker_counted_them(
    fleet: Fleet, wait_until: WaitUntil
) -> None:
    key = fleet.knows(made_key(limits={"tokens_per_minute": 600}))
    text = "x" * 400  # by its bytes 100 tokens
    fleet.upstream.plays(
        Script([whole("ok", usage={"prompt_tokens": 300, "completion_tokens": 60})], content_type=JSON)
    )
    first = fleet.post(key, messages=[{"role": "user", "content": text}])
    assert 500 <= int(first.headers["x-ratelimit-remaining-tokens"]) <= 502
    # 600 - 300 - 60, at ten a second since; what it is told while the correction is on its way is 500.
    left = wait_until(lambda: _left_below(fleet, key, 480), timeout_s=5.0)
    assert 240 <= left <= 440


def _left_below(fleet: Fleet, key: MadeKey, most: int) -> int | None:
    headers = httpx.get(fleet.gateways[1].url + "/v1/models", headers=key.bearer).headers
    left = int(headers["x-ratelimit-remaining-tokens"])
    return left if left < most else None


def test_turns_at_once_are_shared_and_a_client_that_leaves_frees_its_place(
    fleet: Fleet, wait_until: WaitUntil
) -> None:
    key = fleet.knows(made_key(limits={"concurrent_turns": 1}))
    fleet.upstream.plays(Script([events(chunk("a"), done=False), Hang()]))
    url = fleet.gateways[0].url + CHAT
    with (
        httpx.Client(timeout=30.0) as client,
        client.stream("POST", url, json=PLAIN[CHAT] | {"stream": True}, headers=key.bearer) as stream,
    ):
        pieces = stream.iter_bytes()  # kept: without it the client would leave
        assert next(pieces)
        refused = fleet.post(key, 1)
        assert (refused.status_code, code_of(refused)) == (429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        assert "x-ratelimit-limit-requests" not in refused.headers
    fleet.upstream.plays(Script([whole("ok")], content_type=JSON))
    wait_until(lambda: fleet.post(key, 1).status_code == 200, timeout_s=5.0)


def test_limits_hold_for_each_gateway_while_redis_is_paused(
    start_valkey: StartValkey, upstream: Upstream, tmp_path: Any, wait_until: WaitUntil
) -> None:
    valkey, key = start_valkey(), made_key(limits={"requests_per_minute": 3})
    upstream.plays(Script([whole("ok")], content_type=JSON))
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key.entry]}))
    settings: dict[str, Any] = {
        "redis_url": valkey.url,
        "keys_file": file,
        "state_dir": tmp_path,
        "limit_timeout_s": 0.3,
    }
    with serving(upstream.url, **settings) as one, serving(upstream.url, **settings) as other:
        until(lambda: one.deps.pool.has_ready_worker and other.deps.pool.has_ready_worker)

        def statuses(gateway: Gateway, num_requests: int) -> list[int]:
            with httpx.Client(base_url=gateway.url, headers=key.bearer, timeout=30.0) as client:
                return [client.post(CHAT, json=PLAIN[CHAT]).status_code for _ in range(num_requests)]

        assert statuses(one, 1) == [200]
        valkey.signal(signal.SIGSTOP)
        try:
            assert statuses(one, 3) == [200, 200, 429]
            assert statuses(other, 4) == [200, 200, 200, 429]
        finally:
            valkey.signal(signal.SIGCONT)
        registry = other.deps.metrics.registry
        assert registry.get_sample_value("gravity_limits_from_memory_total") == 4.0
    valkey.end()


def test_a_gateway_without_keys_says_so_once_and_one_that_asks_always_is_closed(
    upstream: Upstream, tmp_path: Any, valkey_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {
        "redis_url": valkey_url,
        "config_namespace": f"none-{uuid.uuid4().hex}",
        "state_dir": tmp_path,
    }
    with serving(upstream.url, **settings) as gateway:
        assert [record.message for record in caplog.records].count("no_keys") == 1
        assert httpx.get(gateway.url + "/v1/models").status_code == 200
        far = httpx.get(gateway.url + "/v1/models", headers={"Host": "gateway.example"})
        assert (far.status_code, code_of(far)) == (403, "insufficient_scope")
        assert httpx.get(gateway.url + "/livez", headers={"Host": "gateway.example"}).status_code == 200
    caplog.clear()
    with serving(upstream.url, **settings, keyless="nobody") as gateway:
        assert httpx.get(gateway.url + "/v1/models").status_code == 401
        assert "no_keys" not in [record.message for record in caplog.records]


def test_health_says_whether_the_keys_are_those_of_the_file(
    upstream: Upstream, tmp_path: Any, valkey_url: str, wait_until: WaitUntil
) -> None:
    key, file = made_key(), tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [key.entry]}))
    settings: dict[str, Any] = {
        "redis_url": valkey_url,
        "config_namespace": f"health-{uuid.uuid4().hex}",
        "state_dir": tmp_path / "state",
    }
    with serving(upstream.url, **settings, keys_file=file) as gateway:
        until(lambda: gateway.deps.pool.has_ready_worker and gateway.deps.redis_watch.is_answering)
        report = httpx.get(gateway.url + "/health").json()
        assert (report["status"], report["keys"]) == ("ok", {"count": 1, "is_current": True})
        file.write_text('{"keys": [')
        wait_until(lambda: httpx.get(gateway.url + "/health").json()["status"] == "degraded")
        report = httpx.get(gateway.url + "/health").json()
        assert report["keys"] == {"count": 1, "is_current": False}
        assert httpx.get(gateway.url + "/v1/models", headers=key.bearer).status_code == 200


def test_a_wrong_key_with_a_large_body_is_told_so_and_not_cut_off(fleet: Fleet) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    answer = httpx.post(fleet.gateways[0].url + CHAT, json=body, headers={"Authorization": "Bearer no"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
