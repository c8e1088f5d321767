"""What differs between two environments, and when a record can be compared with a new answer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.replay.base import why_decode_again
from gateway.replay.comparison import TOLERANCES, number_format, wider_tolerance
from gateway.replay.environment import environment_changes
from gateway.trace.steps import ChoiceSteps
from worker.protocol import NO_TOKEN, StepRecord

WORKER: dict[str, Any] = {
    "dtype": "bf16",
    "versions": {"torch": "2.13"},
    "kv": {"slots": 32, "prefill_chunk": 256},
}


def trace(*, token_id: int = 5, batch_size: int = 1) -> ChoiceSteps:
    step = StepRecord(token_id, -1.0, 1.0, 0.1, 0.9, 1.0, 0.5, 10, 1.0, 0.8, 0.0, 0.5, 1, 0, 7, batch_size)
    return ChoiceSteps(0, (step, step), "stop")


def test_parts_of_parts_are_named() -> None:
    other = {**WORKER, "dtype": "fp32", "versions": {"torch": "2.14"}, "device": "cuda"}
    assert environment_changes(WORKER, other) == (
        "device None -> cuda",
        "dtype bf16 -> fp32",
        "versions.torch 2.13 -> 2.14",
    )


def test_how_much_fits_moves_no_token() -> None:
    larger = {**WORKER, "level": "native", "kv": {"slots": 64, "prefill_chunk": 256}}
    assert environment_changes(WORKER, larger) == ()
    assert environment_changes(WORKER, {**WORKER, "kv": {"slots": 32, "prefill_chunk": 32}}) == (
        "kv.prefill_chunk 256 -> 32",
    )


def test_a_turn_that_was_decoded_alone_or_in_fp32_is_compared_as_recorded() -> None:
    single = {**WORKER, "dtype": "fp32"}
    assert why_decode_again(trace(), WORKER, WORKER) is None
    assert why_decode_again(trace(batch_size=4), single, single) is None
    native = {**WORKER, "kernels": "native"}
    assert why_decode_again(trace(batch_size=4), native, native) is None


@pytest.mark.parametrize(
    ("recorded", "then", "reason"),
    [
        (trace(batch_size=4), WORKER, "a batch of up to 4"),
        (trace(), {**WORKER, "dtype": "fp32"}, "dtype fp32 -> bf16"),
        (trace(batch_size=4), {**WORKER, "kernels": "native"}, "kernels native -> None"),
        (trace(), {}, "does not say"),
        (trace(token_id=NO_TOKEN), WORKER, "no token ids"),
    ],
)
def test_otherwise_it_is_decoded_again(recorded: ChoiceSteps, then: dict[str, Any], reason: str) -> None:
    assert reason in (why_decode_again(recorded, then, WORKER) or "")


def test_the_tolerance_is_the_coarser_formats() -> None:
    assert wider_tolerance("fp32", "fp32") == TOLERANCES["fp32"]
    for pair in (("fp32", "bf16"), ("bf16", "fp32"), ("bf16", "bf16"), ("fp8", "fp32"), ("int8", "int8")):
        assert wider_tolerance(*pair) == TOLERANCES["bf16"]


def test_int8_weights_are_the_coarsest_whatever_keys_and_values_are_in() -> None:
    rounded = {**WORKER, "dtype": "fp32", "weight_format": "int8"}
    assert number_format(rounded) == "int8"
    assert number_format({**WORKER, "weight_format": "full"}) == number_format(WORKER) == "bf16"
    assert number_format({}, "fp32") == "fp32"
    assert "a batch of up to 4" in (why_decode_again(trace(batch_size=4), rounded, rounded) or "")
