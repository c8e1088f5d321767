"""Where a choice's steps go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from worker.engine.request import StepOutput
from worker.protocol import NO_TOKEN, DecodeControls
from worker.trace import ChoiceTrace, TraceWriter


class StepSink(Protocol):
    """Takes every step of a choice, then its end."""

    def add(self, output: StepOutput) -> None: ...

    def end(self, finish_reason: str) -> None: ...


SinksFor: TypeAlias = Callable[[int], Sequence[StepSink]]


class TracedSteps:
    """To the turn's stream in Redis."""

    def __init__(self, trace: ChoiceTrace) -> None:
        self._trace = trace

    def add(self, output: StepOutput) -> None:
        self._trace.add(output.record)

    def end(self, finish_reason: str) -> None:
        self._trace.end(finish_reason)


class TextlessSteps(TracedSteps):
    """To the turn's stream, with what was measured and not which tokens it was."""

    def add(self, output: StepOutput) -> None:
        self._trace.add(replace(output.record, token_id=NO_TOKEN))


def trace_sinks(controls: DecodeControls, trace: TraceWriter | None) -> SinksFor:
    """The turn's stream, where there is a turn and a Redis."""
    turn = controls.trace

    def sinks_for(index: int) -> Sequence[StepSink]:
        if trace is None or turn is None:
            return ()
        steps = trace.open(turn.turn_id, index)
        return (TracedSteps(steps) if turn.has_tokens else TextlessSteps(steps),)

    return sinks_for
