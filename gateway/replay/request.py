"""What a worker is asked for a turn, in the parts that another configuration may change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.flow.turn import Turn
from gateway.replay.recorded import Decoding
from worker.protocol import XARGS_KEY, DecodeControls

PROMPT = ("messages", "prompt")
NOT_DECODED = frozenset({"model", "seed", "user"})
"""Fields of a body that bear on no token, or that a replay sets itself."""
STREAMING = frozenset({"stream", "stream_options"})
NOT_STEERING = frozenset({"trace", "calibration", "bucket"})
"""Controls that say where steps go and what was measured; they move no token."""


@dataclass(frozen=True, slots=True)
class Request:
    """A body taken apart. ``settings`` are the sampling parameters and the controls, by dotted name."""

    prompt: Any
    settings: Mapping[str, Any]
    decoding: Decoding


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A sampling parameter or a control that is not what it was; None where it is not set."""

    name: str
    then: Any
    now: Any


def request_of(turn: Turn) -> Request:
    """Return what the turn asks of a worker, with the seed in force and never as a stream."""
    body = {name: value for name, value in turn.upstream_body.items() if name not in STREAMING}
    body["model"] = turn.model
    if body.get("seed") is None and turn.outcome.seed is not None:
        body["seed"] = turn.outcome.seed
    extra = body.get("vllm_xargs")
    arguments = {name: value for name, value in (extra or {}).items() if name != XARGS_KEY}
    body["vllm_xargs"] = {**arguments, XARGS_KEY: turn.controls.model_dump_json(exclude_none=True)}
    plain = {n: v for n, v in body.items() if n not in NOT_DECODED and n not in PROMPT and n != "vllm_xargs"}
    settings = dict(_flat("", {**plain, **arguments, **_steering(turn.controls)}))
    prompt = next((body[name] for name in PROMPT if name in body), None)
    return Request(prompt, settings, Decoding(turn.endpoint, body))


def setting_changes(then: Request, now: Request) -> tuple[SettingChange, ...]:
    """Return the sampling parameters and controls that differ, by name."""
    names = sorted(then.settings.keys() | now.settings.keys())
    pairs = ((name, then.settings.get(name), now.settings.get(name)) for name in names)
    return tuple(SettingChange(*each) for each in pairs if each[1] != each[2])


def _steering(controls: DecodeControls) -> Mapping[str, Any]:
    return controls.model_dump(mode="json", exclude=set(NOT_STEERING), exclude_none=True)


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value
