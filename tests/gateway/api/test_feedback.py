"""``/v1/feedback`` against a real Valkey: single, in lists, repeated, late, unknown, bad, without Redis."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest
from redis import Redis

from gateway.outcomes.feedback import MAX_NAMES
from tests.servers.gateway import Scripted, StartGateway
from tests.servers.upstream import Script, Upstream, whole

PATH = "/v1/feedback"
UNKNOWN = "turn-that-never-was"


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def turn_id(scripted: Scripted) -> str:
    """A turn that has ended just now."""
    scripted.upstream.plays(Script([whole("ok")], content_type="application/json"))
    return str(scripted.post().headers["x-gravity-turn-id"])


@pytest.fixture
def recorded(redis: Redis) -> Callable[..., str]:
    """Write the record of a turn with an assignment, as a gateway did long ago."""

    def write(**assignment: Any) -> str:
        turn_id = f"turn-{uuid4().hex}"
        record = {"schema": 1, "id": turn_id, "assignment": assignment}
        redis.set(f"ng:turn:{turn_id}", orjson.dumps(record), ex=600)
        return turn_id

    return write


def report(turn_id: str, value: Any = 1, name: str = "stars") -> dict[str, Any]:
    return {"turn_id": turn_id, "name": name, "value": value}


def test_feedback_is_kept_at_once_beside_its_turn(scripted: Scripted, turn_id: str, redis: Redis) -> None:
    answer = scripted.client.post(PATH, json=report(turn_id, 4.5))
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "object": "feedback",
        "turn_id": turn_id,
        "name": "stars",
        "value": 4.5,
        "replaced": None,
        "experiment": None,
    }
    assert redis.hgetall(f"ng:feedback:{turn_id}") == {b"stars": b"4.5"}
    assert 0 < int(redis.ttl(f"ng:feedback:{turn_id}")) <= 7 * 86_400


def test_of_repeated_feedback_the_last_counts_and_the_answer_says_what_it_was(
    scripted: Scripted, turn_id: str, redis: Redis
) -> None:
    told = [scripted.client.post(PATH, json=report(turn_id, value)).json() for value in (True, 2, False)]
    assert [(each["value"], each["replaced"]) for each in told] == [(1.0, None), (2.0, 1.0), (0.0, 2.0)]
    assert redis.hgetall(f"ng:feedback:{turn_id}") == {b"stars": b"0.0"}


@pytest.mark.parametrize(
    ("reason", "is_sticky", "is_counted"),
    [
        ("split", True, True),
        ("split", False, True),
        ("not_enrolled", True, True),
        ("not_enrolled", False, False),
        ("shadow", True, True),
        ("override", False, False),
        ("default", False, False),
    ],
)
def test_late_feedback_counts_in_the_experiment_that_the_turn_was_in(
    scripted: Scripted,
    recorded: Callable[..., str],
    redis: Redis,
    reason: str,
    is_sticky: bool,
    is_counted: bool,
) -> None:
    experiment = f"late-{uuid4().hex[:8]}"
    turn_id = recorded(experiment=experiment, experiment_version=2, reason=reason, is_sticky=is_sticky)
    for value in (3, 5):
        told = scripted.client.post(PATH, json=report(turn_id, value)).json()
        assert told["experiment"] == (experiment if is_counted else None)
    found: Any = redis.xrange(f"ng:outcomes:{{{experiment}:2}}")
    values = [(fields[b"turn"].decode(), fields[b"name"], fields[b"value"]) for _, fields in found]
    expected = [(turn_id, b"stars", b"3.0"), (turn_id, b"stars", b"5.0")]
    assert values == (expected if is_counted else [])


def test_feedback_on_a_turn_that_nobody_remembers_is_a_404(scripted: Scripted, redis: Redis) -> None:
    answer = scripted.client.post(PATH, json=report(UNKNOWN))
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"], error["type"]) == ("not_found", "turn_id", "invalid_request_error")
    assert not redis.exists(f"ng:feedback:{UNKNOWN}")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (report("t", "5"), "value"),
        (report("t", None), "value"),
        (report("t", [1]), "value"),
        (report("t", name="Stars"), "name"),
        (report("t", name="a" * 65), "name"),
        (report("t", name="stars\n"), "name"),
        (report("a/b"), "turn_id"),
        (report(""), "turn_id"),
        ({"name": "stars", "value": 1}, "turn_id"),
        ([report("t"), report("t", "5")], "[1].value"),
        ([report("t"), 7], None),
        ([], None),
        ([report("t")] * 101, None),
        (7, None),
    ],
)
def test_what_is_no_feedback_is_refused_and_the_field_named(
    scripted: Scripted, body: Any, param: str | None
) -> None:
    answer = scripted.client.post(PATH, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_value"
    if param is not None:
        assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"1e999"])
def test_a_value_that_is_not_finite_is_no_json(scripted: Scripted, value: bytes) -> None:
    body = b'{"turn_id": "t", "name": "stars", "value": ' + value + b"}"
    answer = scripted.client.post(PATH, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


def test_in_a_list_each_report_is_kept_or_told_its_own_error(scripted: Scripted, turn_id: str) -> None:
    sent = [report(turn_id, 1), report(UNKNOWN), report(turn_id, 2), report(turn_id, True, "solved")]
    answer = scripted.client.post(PATH, json=sent)
    assert answer.status_code == 200
    assert answer.json()["object"] == "list"
    first, unknown, second, other = answer.json()["data"]
    assert (first["replaced"], second["replaced"], other["value"]) == (None, 1.0, 1.0)
    assert unknown["turn_id"] == UNKNOWN
    assert unknown["error"]["code"] == "not_found"


def test_a_turn_has_so_many_names_and_no_more(
    scripted: Scripted, recorded: Callable[..., str], redis: Redis
) -> None:
    turn_id = recorded()
    sent = [report(turn_id, number, f"name_{number}") for number in range(MAX_NAMES + 1)]
    *kept, refused = scripted.client.post(PATH, json=sent).json()["data"]
    assert all(each["object"] == "feedback" for each in kept)
    assert refused["error"]["param"] == "name"
    assert redis.hlen(f"ng:feedback:{turn_id}") == MAX_NAMES
    again = scripted.client.post(PATH, json=report(turn_id, 9, "name_3"))
    assert again.json()["replaced"] == 3.0


def test_without_redis_the_client_is_told_that_nothing_was_kept(
    upstream: Upstream, start_gateway: StartGateway, start_valkey: Any
) -> None:
    valkey = start_valkey()
    gateway = start_gateway(upstream.url, redis_url=valkey.url)
    valkey.signal(signal.SIGKILL)
    valkey.process.wait()
    answer = httpx.post(gateway.url + PATH, json=report("turn-1"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
