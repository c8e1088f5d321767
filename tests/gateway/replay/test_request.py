"""What a worker is asked for, taken apart and compared."""

from __future__ import annotations

from typing import Any

from gateway.flow.turn import Outcome, Turn
from gateway.replay.rebuilt import rebuilt_turn, why_not
from gateway.replay.request import SettingChange, request_of, setting_changes
from worker.protocol import DecodeControls, GravityControls, TraceControls


def turn(controls: DecodeControls, **body: Any) -> Turn:
    message = {"role": "user", "content": "hello"}
    return Turn(
        id="turn-1",
        received_at=0.0,
        endpoint="/v1/chat/completions",
        body={},
        model="m",
        is_streaming=True,
        wants_usage=False,
        controls=controls,
        upstream_body={"messages": [message], "stream": True, "stream_options": {}, **body},
        outcome=Outcome(seed=11),
    )


def controls(strength: float, **others: Any) -> DecodeControls:
    return DecodeControls(gravity=GravityControls(strength=strength, keywords=("tide",)), **others)


def test_what_is_decoded_has_the_seed_in_force_and_is_no_stream() -> None:
    body = request_of(turn(controls(1.0))).decoding.request
    assert (body["seed"], body["model"]) == (11, "m")
    assert "stream" not in body
    assert "stream_options" not in body
    assert request_of(turn(controls(1.0), seed=7)).decoding.request["seed"] == 7


def test_changes_are_named_by_their_place() -> None:
    then = request_of(turn(controls(1.0), max_tokens=24))
    now = request_of(turn(controls(8.0), max_tokens=24, top_p=0.5))
    assert setting_changes(then, now) == (
        SettingChange("gravity.strength", 1.0, 8.0),
        SettingChange("top_p", None, 0.5),
    )
    assert then.prompt == now.prompt


def test_where_steps_go_and_what_was_measured_is_no_change() -> None:
    then = request_of(turn(controls(1.0, bucket=1, trace=TraceControls(turn_id="turn-1"))))
    now = request_of(turn(controls(1.0, bucket=3), user="ada", seed=11))
    assert setting_changes(then, now) == ()


def test_a_turn_says_why_it_cannot_be_replayed() -> None:
    record: dict[str, Any] = {
        **{"id": "turn-1", "received_at": 0.0, "endpoint": "/v1/chat/completions", "body": {}, "model": "m"},
        **{"is_streaming": False, "wants_usage": False, "task": {"task_type": "default", "of_old": 1}},
        "upstream_body": {"messages": []},
    }

    def reason(retention: str = "full", **changes: Any) -> str | None:
        return why_not(rebuilt_turn(record | changes), retention)

    assert reason() is None
    assert reason(outcome={"status": "cancelled"}) == "it was cancelled"
    assert reason(outcome={"status": "error"}) == "it failed"
    assert reason("hashed") == "its text was not kept (hashed)"
    assert reason(upstream_body={}) == "its text was not kept (full)"
    assert reason(shadow_of="turn-0") == "it is a shadow of another turn"
