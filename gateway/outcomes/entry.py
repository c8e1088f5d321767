"""An experiment's stream in Redis, ``ng:outcomes:{ID:VERSION}``: its three kinds of entry and their fields.

An *exposure* says that a unit has come under an arm; there is one a unit. An *outcome* is what was measured
of one turn; with an empty arm the unit was not enrolled yet, which is the period before (CUPED). *Feedback*
is a number that a client reported of a turn, whenever it did; of several under one name the last counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import orjson

OUTCOMES_KEY_PREFIX = "ng:outcomes:"
EXPOSED_KEY_PREFIX = "ng:exposed:"
WRITTEN_KEY_PREFIX = "ng:written:"
FEEDBACK_KEY_PREFIX = "ng:feedback:"


@dataclass(frozen=True, slots=True)
class Exposure:
    """``at`` is Unix time, seconds. A turn whose lane does not stick is a unit of its own: its id."""

    unit: str
    arm: str
    at: float


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What was measured of a turn, by the names of ``gateway/lab/metrics.py``; what is unknown lacks."""

    turn_id: str
    unit: str
    arm: str
    """Empty where the unit was not enrolled."""
    at: float
    """When the turn arrived: Unix time, seconds."""
    values: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    shadow_of: str = ""
    """The turn that this one repeats in the control's way; such a turn counts in pairs alone."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """``name`` as the client wrote it, without the prefix that metrics have."""

    turn_id: str
    name: str
    value: float
    at: float


Entry: TypeAlias = Exposure | TurnOutcome | Feedback


def outcomes_key(experiment: str, version: int) -> str:
    """Redis key of an experiment's stream; the braces keep all keys of the experiment in one slot."""
    return f"{OUTCOMES_KEY_PREFIX}{{{experiment}:{version}}}"


def exposed_key(experiment: str, version: int, unit: str) -> str:
    """Redis key that is there once a unit's exposure has been written."""
    return f"{EXPOSED_KEY_PREFIX}{{{experiment}:{version}}}:{unit}"


def written_key(experiment: str, version: int, ledger: str) -> str:
    """Redis key of the number of the last entry that a gateway has written to an experiment's stream."""
    return f"{WRITTEN_KEY_PREFIX}{{{experiment}:{version}}}:{ledger}"


def feedback_key(turn_id: str) -> str:
    """Redis key of the hash of a turn's feedback: name to value."""
    return FEEDBACK_KEY_PREFIX + turn_id


def encode_entry(entry: Entry) -> dict[str, str]:
    """Return the stream entry's fields. Raises ValueError for a value that is not finite."""
    match entry:
        case Exposure(unit, arm, at):
            return {"kind": "exposure", "unit": unit, "arm": arm, "at": repr(at)}
        case TurnOutcome(turn_id, unit, arm, at, values, shadow_of):
            if not all(map(math.isfinite, values.values())):
                raise ValueError("an outcome is a finite number")
            fields = {"kind": "outcome", "turn": turn_id, "unit": unit, "arm": arm, "at": repr(at)}
            fields["values"] = orjson.dumps(dict(values)).decode()
            return fields | ({"shadow_of": shadow_of} if shadow_of else {})
        case Feedback(turn_id, name, value, at):
            if not math.isfinite(value):
                raise ValueError("feedback is a finite number")
            return {"kind": "feedback", "turn": turn_id, "name": name, "value": repr(value), "at": repr(at)}


def decode_entry(fields: Mapping[bytes, bytes]) -> Entry:
    """Return the entry; unknown fields are ignored. Raises ValueError where one lacks or is no such value."""
    try:
        text = {name.decode(): value.decode() for name, value in fields.items()}
        match text["kind"]:
            case "exposure":
                return Exposure(text["unit"], text["arm"], float(text["at"]))
            case "outcome":
                values = {str(name): float(value) for name, value in orjson.loads(text["values"]).items()}
                shadow_of = text.get("shadow_of", "")
                return TurnOutcome(
                    text["turn"], text["unit"], text["arm"], float(text["at"]), values, shadow_of
                )
            case "feedback":
                return Feedback(text["turn"], text["name"], float(text["value"]), float(text["at"]))
            case other:
                raise ValueError(f"an entry of an unknown kind: {other!r}")
    except KeyError as error:
        raise ValueError(f"an entry lacks its field {error}") from error
    except (AttributeError, TypeError) as error:
        raise ValueError(f"an entry's values are no numbers by name: {error}") from error
