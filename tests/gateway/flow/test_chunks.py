"""A worker's stream made right, event by event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gateway.errors import QueueFull, UpstreamError, UpstreamRejected
from gateway.flow.chunks import Chunks, finish_reason_of, num_choices
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn

MakeTurn = Callable[..., Turn]
SUMMARY = {
    "num_steps": 4,
    "mean_entropy_nats": 1.5,
    "mean_gravity": 0.9,
    "mean_k": 12.0,
    "entropic_time_nats": 2.0,
    "net_drop_nats": 0.5,
    "envelope_nats": 0.75,
}


def chunk(content: str | None = None, *, index: int = 0, finish: str | None = None, **more: Any) -> bytes:
    choice = {
        "index": index,
        "delta": {} if content is None else {"content": content},
        "finish_reason": finish,
    }
    identity = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 17, "model": "m"}
    return orjson.dumps({**identity, "choices": [choice], **more})


def rewritten(turn: Turn, events: list[bytes], *, said_done: bool = True) -> list[dict[str, Any]]:
    chunks = Chunks(turn, Tally(time.monotonic))
    out = [made for event in events if (made := chunks.rewrite(event)) is not None]
    return [orjson.loads(made) for made in out + chunks.finish(said_done=said_done)]


def finishes(sent: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return [
        (choice["index"], choice["finish_reason"])
        for each in sent
        for choice in each["choices"]
        if choice["finish_reason"]
    ]


def test_the_first_chunk_of_each_choice_carries_the_role(make_turn: MakeTurn) -> None:
    turn = make_turn(body={"n": 2})
    events = [
        chunk("a"),
        chunk("b", index=1),
        chunk("c"),
        chunk(finish="stop"),
        chunk(index=1, finish="stop"),
    ]
    sent = rewritten(turn, events)
    roles = [choice["delta"].get("role") for each in sent for choice in each["choices"]]
    assert roles == ["assistant", "assistant", None, None, None]


def test_every_chunk_has_the_identity_of_the_first(make_turn: MakeTurn) -> None:
    events = [
        chunk("a", id="x"),
        chunk("b", id="y", created=99, model="other"),
        chunk(finish="stop", id=None),
    ]
    sent = rewritten(make_turn(wants_usage=True), [*events, chunk(usage={"prompt_tokens": 1})])
    assert {(each["id"], each["created"], each["model"]) for each in sent} == {("x", 17, "m")}
    assert len({each["system_fingerprint"] for each in sent}) == 1


def test_the_fingerprint_changes_with_the_worker_and_with_the_configuration(make_turn: MakeTurn) -> None:
    events = [chunk("a", system_fingerprint="fp_1"), chunk(finish="stop")]
    other_worker = [chunk("a", system_fingerprint="fp_2"), chunk(finish="stop")]
    prints = {
        rewritten(make_turn(), events)[0]["system_fingerprint"],
        rewritten(make_turn(), other_worker)[0]["system_fingerprint"],
        rewritten(make_turn(config_sha="new"), events)[0]["system_fingerprint"],
    }
    assert len(prints) == 3


def test_a_second_finish_of_a_choice_is_dropped(make_turn: MakeTurn) -> None:
    sent = rewritten(make_turn(), [chunk("a"), chunk(finish="stop"), chunk(finish="length"), chunk("late")])
    assert finishes(sent) == [(0, "stop")]
    assert "late" not in str(sent)


def test_usage_goes_in_a_chunk_of_its_own_to_those_who_asked(make_turn: MakeTurn) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    beside_the_finish = [chunk("a"), chunk(finish="stop", usage=usage)]
    after_the_finish = [chunk("a"), chunk(finish="stop"), orjson.dumps({"choices": [], "usage": usage})]
    for events in (beside_the_finish, after_the_finish):
        asked = rewritten(make_turn(wants_usage=True), events)
        assert (asked[-1]["choices"], asked[-1]["usage"]) == ([], usage)
        assert all("usage" not in each for each in asked[:-1])
        assert all("usage" not in each for each in rewritten(make_turn(), events))


def test_gravity_stands_on_the_first_chunk_and_on_the_one_that_finishes_last(make_turn: MakeTurn) -> None:
    other = SUMMARY | {"num_steps": 12, "mean_entropy_nats": 0.5, "entropic_time_nats": 4.0}
    turn = make_turn(body={"n": 2}, wants_usage=True)
    events = [
        chunk("a"),
        chunk("b", index=1),
        chunk(finish="stop", gravity=SUMMARY),
        chunk(index=1, finish="length", gravity=other),
        orjson.dumps({"choices": [], "usage": {"prompt_tokens": 1}}),
    ]
    sent = rewritten(turn, events)
    assert ["gravity" in each for each in sent] == [True, False, False, True, False]
    assert sent[0]["gravity"]["turn_id"] == sent[3]["gravity"]["turn_id"] == "turn-1"
    # 4 steps at 1.5 nats and 12 at 0.5; tau 2 and 4.
    assert sent[3]["gravity"]["mean_entropy_nats"] == pytest.approx(0.75)
    assert sent[3]["gravity"]["entropic_time_nats"] == pytest.approx(3.0)


def test_an_answer_in_one_chunk_has_both_parts_of_gravity(make_turn: MakeTurn) -> None:
    (only,) = rewritten(make_turn(), [chunk("a", finish="stop", gravity=SUMMARY)])
    assert only["gravity"]["lane"] == "treatment"
    assert only["gravity"]["mean_gravity"] == pytest.approx(0.9)


def test_a_stream_that_just_ends_must_have_finished_every_choice(make_turn: MakeTurn) -> None:
    assert finishes(rewritten(make_turn(), [chunk("a"), chunk(finish="stop")], said_done=False)) == [
        (0, "stop")
    ]
    with pytest.raises(UpstreamError):
        rewritten(make_turn(), [chunk("a")], said_done=False)
    with pytest.raises(UpstreamError):
        rewritten(make_turn(body={"n": 2}), [chunk("a"), chunk(finish="stop")], said_done=False)


def test_done_without_a_finish_stops_what_is_open(make_turn: MakeTurn) -> None:
    sent = rewritten(
        make_turn(body={"n": 2}), [chunk("a"), chunk("b", index=1), chunk(index=1, finish="length")]
    )
    assert sorted(finishes(sent)) == [(0, "stop"), (1, "length")]


def test_done_with_nothing_before_it_is_no_answer(make_turn: MakeTurn) -> None:
    with pytest.raises(UpstreamError):
        rewritten(make_turn(), [])


@pytest.mark.parametrize(
    "event",
    [
        b"not json",
        b"[]",
        b'"text"',
        b'{"choices": [7]}',
        b'{"choices": [{"index": "one"}]}',
        b'{"x": "\\ud83d"}',
    ],
)
def test_what_is_no_chunk_is_the_workers_failure(make_turn: MakeTurn, event: bytes) -> None:
    with pytest.raises(UpstreamError):
        Chunks(make_turn(), Tally(time.monotonic)).rewrite(event)


def test_an_error_inside_the_stream_keeps_its_meaning(make_turn: MakeTurn) -> None:
    chunks = Chunks(make_turn(), Tally(time.monotonic))
    with pytest.raises(UpstreamError):
        chunks.rewrite(b'{"error": {"message": "CUDA error", "type": "server_error"}}')
    with pytest.raises(UpstreamError):
        chunks.rewrite(b'{"error": "out of memory"}')
    with pytest.raises(QueueFull):
        chunks.rewrite(b'{"error": {"message": "busy", "code": 429}}')
    with pytest.raises(UpstreamRejected, match="too long"):
        chunks.rewrite(b'{"error": {"message": "too long", "type": "invalid_request_error"}}')


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("eos", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("function_call", "tool_calls"),
    ],
)
def test_finish_reasons_are_openais(theirs: str, ours: str) -> None:
    assert finish_reason_of(theirs) == ours


def test_an_aborted_answer_is_no_answer() -> None:
    with pytest.raises(UpstreamError):
        finish_reason_of("abort")


def test_the_number_of_choices_is_n_for_each_prompt() -> None:
    assert num_choices({"messages": []}) == 1
    assert num_choices({"messages": [], "n": 3}) == 3
    assert num_choices({"prompt": "a", "n": 2}) == 2
    assert num_choices({"prompt": ["a", "b"], "n": 2}) == 4
    assert num_choices({"prompt": [1, 2, 3]}) == 1
    assert num_choices({"prompt": [[1, 2], [3]]}) == 2
