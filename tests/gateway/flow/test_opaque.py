"""What goes to an opaque worker beside the client's request, and what happens where it refuses that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import pytest
from redis import Redis

from tests.servers.gateway import CHAT, COMPLETIONS, PLAIN, Gateway, StartGateway
from tests.servers.upstream import Hang, Script, StartUpstream, Upstream, events, whole

JSON = "application/json"
OK = Script([whole("ok")], content_type=JSON)
TOKENS = {
    **{" ": [220], "": [1]},
    **{"ferry": [10, 11], " ferry": [12], "Ferry": [13], " Ferry": [220, 14]},
    **{"ferries": [10, 15], " ferries": [16], "Ferries": [13, 15], " Ferries": [14, 15]},
    **{"f": [17], " f": [18], "F": [19], " F": [20]},
    **{"mud": [30], " mud": [31], "Mud": [32, 33], " Mud": [34], "muds": [30, 35], " muds": [31, 35]},
    **{"Muds": [32, 36], " Muds": [34, 35], "m": [37], " m": [38], "M": [32], " M": [39]},
}
GRAVITY = {"core_semantics": ["ferry", "the"], "penalize": ["mud"], "gravity_strength": 2.0}


def refused(message: str, param: str | None = None) -> Script:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": "invalid_value"}
    return Script([orjson.dumps({"error": error})], status=400, content_type=JSON)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A gateway in front of a scripted opaque worker."""

    gateway: Gateway
    upstream: Upstream

    def ask(self, path: str = CHAT, **body: Any) -> httpx.Response:
        return httpx.post(self.gateway.url + path, json=PLAIN[path] | body, timeout=30.0)

    @property
    def sent(self) -> list[dict[str, Any]]:
        return [body for _, body in self.upstream.received]


@pytest.fixture
def foreign(start_upstream: StartUpstream, start_gateway: StartGateway) -> Foreign:
    upstream = start_upstream(is_native=False)
    upstream.plays(OK)
    return Foreign(start_gateway(upstream.url), upstream)


def test_the_likeliest_tokens_are_asked_for_in_each_endpoints_words(foreign: Foreign) -> None:
    foreign.ask(CHAT)
    foreign.ask(COMPLETIONS)
    foreign.ask(COMPLETIONS, logprobs=3)
    assert (foreign.sent[0]["logprobs"], foreign.sent[0]["top_logprobs"]) == (True, 20)
    assert [body["logprobs"] for body in foreign.sent[1:]] == [20, 20]
    assert all("vllm_xargs" not in body for body in foreign.sent)


def test_a_server_that_shows_nothing_leaves_the_entropies_unknown(foreign: Foreign) -> None:
    gravity = foreign.ask().json()["gravity"]
    assert gravity["mean_entropy_nats"] is None
    assert "is_estimated" not in gravity


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("top_logprobs must be at most 8", [20, 8]),
        ("Requested sample logprobs of 20, which is greater than max allowed: 7", [20, 7]),
        ("logprobs is too large", [20, 5]),
    ],
)
def test_a_refused_number_is_lowered_at_once_and_remembered(
    foreign: Foreign, message: str, expected: list[int]
) -> None:
    foreign.upstream.plays(refused(message), OK)
    assert foreign.ask().status_code == 200
    assert [body["top_logprobs"] for body in foreign.sent] == expected
    assert foreign.ask().status_code == 200
    assert foreign.sent[-1]["top_logprobs"] == expected[-1]
    assert foreign.gateway.deps.pool.workers[0].num_in_flight == 0


def test_a_server_that_knows_no_logprobs_is_asked_for_none_again(foreign: Foreign) -> None:
    no = refused("logprobs are not supported", "logprobs")
    foreign.upstream.plays(no, no, OK)
    assert foreign.ask().status_code == 200
    assert foreign.ask().status_code == 200
    assert [body.get("top_logprobs") for body in foreign.sent] == [20, 5, None, None]
    assert "logprobs" not in foreign.sent[-1]


def test_what_the_client_itself_asked_for_is_never_lowered(foreign: Foreign) -> None:
    foreign.upstream.plays(refused("top_logprobs must be at most 5", "top_logprobs"))
    response = foreign.ask(logprobs=True, top_logprobs=9)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "top_logprobs"
    assert [body["top_logprobs"] for body in foreign.sent] == [20, 9, 9]


def test_a_refusal_that_names_nothing_is_tried_once_without_our_own_fields(foreign: Foreign) -> None:
    foreign.upstream.plays(refused("bad request"), OK)
    assert foreign.ask().status_code == 200
    assert foreign.ask().status_code == 200
    assert ["logprobs" in body for body in foreign.sent] == [True, False, False]


def test_a_clients_own_mistake_is_told_and_nothing_is_learned_from_it(foreign: Foreign) -> None:
    foreign.upstream.plays(refused("bad seed", "seed"), refused("bad seed", "seed"), OK)
    response = foreign.ask(seed=7)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "seed")
    foreign.ask(seed=7)
    assert ["logprobs" in body for body in foreign.sent] == [True, False, True]


def test_a_prompt_that_is_too_long_is_not_sent_twice(foreign: Foreign) -> None:
    foreign.upstream.plays(refused("This model's maximum context length is 10 tokens."))
    assert foreign.ask().json()["error"]["code"] == "context_length_exceeded"
    assert len(foreign.sent) == 1


def test_the_setting_turns_the_estimate_off(
    start_upstream: StartUpstream, start_gateway: StartGateway
) -> None:
    upstream = start_upstream(is_native=False)
    upstream.plays(OK)
    foreign = Foreign(start_gateway(upstream.url, opaque_logprobs=False), upstream)
    foreign.ask()
    assert "logprobs" not in foreign.sent[0]


def test_a_task_turns_both_off_for_itself(
    start_upstream: StartUpstream, start_gateway: StartGateway, tmp_path: Any
) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "default.yaml").write_text(
        "task_type: default\ncore_semantics: [ferry]\ngravity_strength: 1.0\n"
        "opaque: {logprobs: false, logit_bias: false}\n"
    )
    upstream = start_upstream(is_native=False)
    upstream.plays(OK)
    upstream.tokens = TOKENS
    foreign = Foreign(start_gateway(upstream.url, config_dir=tmp_path), upstream)
    foreign.ask()
    assert not {"logprobs", "logit_bias"} & foreign.sent[0].keys()


def test_words_become_a_bias_on_their_first_pieces_and_the_clients_own_wins(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    foreign.ask(gravity=GRAVITY, logit_bias={"12": 7.0, "99": 1.0})
    boosted = dict.fromkeys(("10", "13", "14", "16"), pytest.approx(0.4))
    # "Mud" begins with the letter M alone, with which too much begins.
    penalised = dict.fromkeys(("30", "31", "34"), pytest.approx(-2.0))
    assert foreign.sent[0]["logit_bias"] == {**boosted, **penalised, "12": 7.0, "99": 1.0}


def test_words_are_spelled_once(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    foreign.ask(gravity=GRAVITY)
    num_asked = foreign.upstream.paths.count("/tokenize")
    foreign.ask(gravity=GRAVITY)
    assert foreign.upstream.paths.count("/tokenize") == num_asked > 0
    assert foreign.sent[0]["logit_bias"] == foreign.sent[1]["logit_bias"]


def test_a_mask_is_as_good_as_a_ban_for_whole_words(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    foreign.ask(gravity={**GRAVITY, "gravity": {"mode": "mask"}})
    bias = foreign.sent[0]["logit_bias"]
    assert {id_ for id_, value in bias.items() if value == -100.0} == {"30", "31", "34"}


def test_no_bias_goes_beyond_the_tasks_bound(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    foreign.ask(gravity={**GRAVITY, "gravity_strength": 20.0, "gravity": {"max_bias_nats": 2.5}})
    assert set(foreign.sent[0]["logit_bias"].values()) == {2.5, -2.5}


def test_there_are_never_more_entries_than_openai_takes(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    own = {str(1_000 + number): 0.5 for number in range(298)}
    foreign.ask(gravity=GRAVITY, logit_bias=own)
    bias = foreign.sent[0]["logit_bias"]
    assert len(bias) == 300
    assert own.items() <= bias.items()
    assert sorted(value for id_, value in bias.items() if id_ not in own) == [-2.0, -2.0]


def test_a_server_that_takes_no_bias_is_asked_without(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    foreign.upstream.plays(refused("logit_bias is not supported", "logit_bias"), OK)
    foreign.ask(gravity=GRAVITY)
    foreign.ask(gravity=GRAVITY)
    assert ["logit_bias" in body for body in foreign.sent] == [True, False, False]
    assert [body["top_logprobs"] for body in foreign.sent] == [20, 20, 20]


def test_without_a_tokenizer_the_turn_is_served_with_a_warning(foreign: Foreign) -> None:
    answer = foreign.ask(gravity=GRAVITY)
    assert answer.status_code == 200
    assert "logit_bias" not in foreign.sent[0]
    assert any("/tokenize" in warning for warning in answer.json()["gravity"]["warnings"])


def test_a_tokenizer_that_is_busy_is_asked_again_by_the_next_turn(foreign: Foreign) -> None:
    foreign.upstream.tokens = TOKENS
    foreign.upstream.is_slow_to_tokenize = True
    answer = foreign.ask(gravity=GRAVITY)
    assert any("in time" in warning for warning in answer.json()["gravity"]["warnings"])
    foreign.upstream.is_slow_to_tokenize = False
    foreign.ask(gravity=GRAVITY)
    assert ["logit_bias" in body for body in foreign.sent] == [False, True]


@pytest.fixture
def redis(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url) as client:
        yield client


def test_a_client_that_leaves_ends_the_trace_as_cancelled(
    foreign: Foreign, redis: Redis, wait_until: Callable[..., Any]
) -> None:
    top = [{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -2.0, "bytes": [98]}]
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": top}]}
    piece = {"index": 0, "delta": {"content": "a"}, "logprobs": logprobs, "finish_reason": None}
    foreign.upstream.plays(Script([events({"choices": [piece]}, done=False), Hang()]))
    body = PLAIN[CHAT] | {"stream": True}
    with httpx.stream("POST", foreign.gateway.url + CHAT, json=body) as response:
        turn_id = response.headers["x-gravity-turn-id"]
        assert b'"logprobs":null' in next(response.iter_raw())
    entries: Any = wait_until(
        lambda: (found := redis.xrange(f"ng:trace:{turn_id}")) and len(found) == 2 and found
    )
    assert entries[1][1] == {b"end": b"cancelled", b"choice": b"0", b"n": b"1"}
    assert redis.pttl(f"ng:trace:{turn_id}") > 0


def test_a_record_names_what_is_estimated_in_its_summary(
    foreign: Foreign, redis: Redis, wait_until: Callable[..., Any]
) -> None:
    top = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -2.0}]
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": top}] * 2}
    choice = {"index": 0, "message": {"content": "aa"}, "finish_reason": "stop", "logprobs": logprobs}
    foreign.upstream.plays(Script([orjson.dumps({"choices": [choice]})], content_type=JSON))
    turn_id = foreign.ask().headers["x-gravity-turn-id"]

    def summary() -> dict[bytes, bytes] | None:
        entries: Any = redis.xrevrange("ng:turns", count=50)
        return next((fields for _, fields in entries if fields[b"id"] == turn_id.encode()), None)

    fields = wait_until(summary)
    assert fields[b"is_estimated"] == b"1"
    assert float(fields[b"mean_entropy_half_width_nats"]) > 0
    # Two like steps: H may stay, or fall from the upper bound to the lower.
    half_width = float(fields[b"mean_entropy_half_width_nats"])
    assert float(fields[b"entropic_time_half_width_nats"]) == pytest.approx(half_width)
