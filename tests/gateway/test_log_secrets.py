"""A gateway process with planted secrets, taken through its failures: none of them is in what it printed."""

from __future__ import annotations

from typing import Any

import httpx
import orjson

from tests.conftest import StartProcess, WaitUntil
from tests.servers.gateway import CHAT, PLAIN
from tests.servers.upstream import Die, Script, Upstream, chunk, events, whole

JSON = "application/json"
PROMPT = "Marzipanprompt"
REDIS_PASSWORD = "Quittenpasswort"
WORKER_KEY = "Holunderschluessel"
ADMIN_KEY = "Wacholderschluessel"
CLIENT_KEY = "Sanddornschluessel"
PLANTED = (PROMPT, REDIS_PASSWORD, WORKER_KEY, ADMIN_KEY, CLIENT_KEY)


def test_no_failure_prints_a_secret_or_a_prompt(
    start_process: StartProcess, upstream: Upstream, valkey_url: str, wait_until: WaitUntil
) -> None:
    upstream.plays(Script([whole("ok")], content_type=JSON))
    environment = {
        "NG_PORT": "0",
        "NG_WORKERS": upstream.url,
        # A user that Valkey does not know: each use of Redis is one more failure.
        "NG_REDIS_URL": valkey_url.replace("redis://", f"redis://nobody:{REDIS_PASSWORD}@"),
        "NG_WORKER_API_KEY": WORKER_KEY,
        "NG_ADMIN_KEY": ADMIN_KEY,
        "NG_PRELOAD_ENCODER": "false",
        "NG_PROBE_INTERVAL_S": "0.2",
        "NG_FIRST_TOKEN_TIMEOUT_S": "0.5",
        "NG_REQUEST_TIMEOUT_S": "0.5",
        "NG_BREAKER_FAILURES": "100",
    }
    running = start_process(["-m", "gateway"], environment)
    wait_until(lambda: httpx.get(running.url + "/readyz").status_code == 200)
    statuses = [_fail(running.url, upstream, script, body) for script, body in _failures()]
    assert statuses == [200, 400, 429, 502, 502, 502, 504, 200, 200, 404, 400, 400, 400]
    headers = {"Authorization": f"Bearer {CLIENT_KEY}", "X-Request-Id": "req-of-the-test"}
    for path in ("/admin/turns", f"/admin/config?api_key={CLIENT_KEY}", f"/nowhere/{PROMPT}"):
        httpx.get(running.url + path, headers=headers)
    httpx.post(running.url + CHAT, content=f'{{"model": "{PROMPT}'.encode(), headers=headers)
    httpx.get(running.url + "/admin/turns", headers={"Authorization": f"Bearer {ADMIN_KEY}"})
    assert running.end() == 0
    assert {event["event"] for event in running.events()} >= {
        "ready",
        "turn",
        "worker_refused",
    }
    assert "records_not_written" in running.output
    for secret in PLANTED:
        assert secret not in running.output


def _failures() -> list[tuple[Script | bytes, dict[str, Any]]]:
    """Scripts of the worker and requests, in the order of the statuses above."""
    quoting = orjson.dumps({"error": {"message": f"I cannot read {PROMPT} {WORKER_KEY}", "type": "x"}})
    no_index = orjson.dumps({"choices": [{"index": [PROMPT], "message": {"content": PROMPT}}]})
    ok = Script([whole("ok")], content_type=JSON)
    return [
        (Script([no_index], content_type=JSON), {}),
        (Script([quoting], status=400, content_type=JSON), {}),
        (Script([quoting], status=429, content_type=JSON), {}),
        (Script([quoting], status=500, content_type=JSON), {}),
        (Script([PROMPT.encode()], content_type=JSON), {}),
        (Script(dies_at_once=True), {}),
        (Script(is_silent=True), {}),
        (Script([events(chunk(PROMPT), done=False), Die()]), {"stream": True}),
        (events(chunk(PROMPT), orjson.loads(quoting)), {"stream": True}),
        (ok, {"model": PROMPT}),
        (ok, {"seed": PROMPT}),
        (ok, {"messages": PROMPT}),
        (ok, {"gravity": {PROMPT: PROMPT}}),
    ]


def _fail(url: str, upstream: Upstream, script: Script | bytes, body: dict[str, Any]) -> int:
    upstream.plays(script)
    plain = PLAIN[CHAT] | {"messages": [{"role": "user", "content": f"Tell me of {PROMPT}"}]}
    headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
    return httpx.post(
        url + CHAT, json=plain | {"user": PROMPT} | body, headers=headers, timeout=30.0
    ).status_code
