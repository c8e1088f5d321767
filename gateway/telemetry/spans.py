"""Spans of turns as the flow sees them, and those that cost nothing because nobody collects them.

Where a collector is named they are OpenTelemetry's (``otel.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Literal, Protocol, TypeAlias

Attribute: TypeAlias = str | bool | int | float | list[str]
Kind: TypeAlias = Literal["internal", "client"]
NOTHING: Mapping[str, str] = MappingProxyType({})

_TRACE_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE_STATE = re.compile(r"[\x20-\x7e]{1,512}")


@dataclass(frozen=True, slots=True)
class Parent:
    """Where a trace comes from, in W3C's words; both empty where it begins here."""

    traceparent: str = ""
    tracestate: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Parent:
        """Read a request's headers (lower-case names); what is not well-formed is as if it were absent."""
        traceparent, tracestate = headers.get("traceparent", ""), headers.get("tracestate", "")
        if not _TRACE_PARENT.fullmatch(traceparent):
            return NO_PARENT
        return cls(traceparent, tracestate if _TRACE_STATE.fullmatch(tracestate) else "")

    @property
    def headers(self) -> Mapping[str, str]:
        """What a request to somebody else carries on."""
        told = {"traceparent": self.traceparent, "tracestate": self.tracestate}
        return {name: value for name, value in told.items() if value}


NO_PARENT = Parent()


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What is known of a turn at its end. Times in seconds."""

    operation: str
    model: str
    """Any client's word: for spans, not for metrics."""
    attributes: Mapping[str, Attribute]
    error_code: str
    """Empty where the turn ended well."""
    latency_s: float
    first_token_s: float | None
    later_token_s: float | None
    """Mean time of a token after the first."""
    input_tokens: int
    output_tokens: int


class Part(Protocol):
    """A part of a turn: what was set about it, and what a request inside it carries on."""

    headers: Mapping[str, str]

    def tell(self, attributes: Mapping[str, Attribute]) -> None: ...


class TurnSpan(Protocol):
    """A turn from its arrival to its record."""

    def part(self, name: str, kind: Kind = "internal") -> AbstractContextManager[Part]:
        """Time a part of it. An error that leaves the part is its error, by its code or class alone."""

    def end(self, facts: TurnFacts) -> None: ...


class Tracing(Protocol):
    """Begins the spans of turns."""

    @property
    def is_on(self) -> bool: ...

    @property
    def has_prompt_text(self) -> bool:
        """Whether texts may be told."""

    def turn(self, parent: Parent, received_at: float) -> TurnSpan:
        """``received_at`` is Unix time, seconds."""

    def close(self) -> None:
        """Send what is left. Blocks."""


class _NoPart:
    """Carries on what the client sent, and is told nothing."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was begun."""

    def tell(self, attributes: Mapping[str, Attribute]) -> None:
        """Nobody asks."""


class NoTurnSpan:
    """Of a turn that nobody traces here: its worker sees the client's own trace."""

    __slots__ = ("_part",)

    def __init__(self, parent: Parent) -> None:
        self._part = _NO_PART if parent is NO_PARENT else _NoPart(parent.headers)

    def part(self, name: str, kind: Kind = "internal") -> AbstractContextManager[Part]:
        return self._part

    def end(self, facts: TurnFacts) -> None:
        """Nothing was begun."""


class NoTracing:
    """No collector is named."""

    is_on = False
    has_prompt_text = False

    def turn(self, parent: Parent, received_at: float) -> TurnSpan:
        return NO_SPAN if parent is NO_PARENT else NoTurnSpan(parent)

    def close(self) -> None:
        """Nothing is left."""


_NO_PART = _NoPart(NOTHING)
NO_SPAN = NoTurnSpan(NO_PARENT)
