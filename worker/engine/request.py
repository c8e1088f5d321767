"""What goes into the engine and what comes out: the contract between scheduler, decoder and server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from worker.protocol import DecodeControls, StepRecord

FinishReason: TypeAlias = Literal["stop", "length"]
TopTokens: TypeAlias = tuple[tuple[int, float], ...]
"""(id, ln p) at temperature 1, the most probable first."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The OpenAI-style parameters of one request; docs/decoding.md gives the order of processing."""

    max_tokens: int
    temperature: float = 1.0
    """0 is greedy."""
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    num_top_logprobs: int | None = None
    """None: no logprobs wanted. 0: the chosen token's alone."""
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate. ``n`` choices are n requests that differ in ``choice``."""

    id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    controls: DecodeControls = field(default_factory=DecodeControls)
    choice: int = 0
    forced_ids: tuple[int, ...] = ()
    """Tokens to emit instead of sampling (replay); all is observed and controlled as if they were sampled."""
    is_exclusive: bool = False
    """Runs alone in the batch, for exact replay."""
    num_top_after: int = 0
    """How many of the likeliest tokens to report after penalties and gravity, too."""


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One emitted token."""

    request_id: str
    token_id: int
    record: StepRecord
    top_logprobs: TopTokens = ()
    finish_reason: FinishReason | None = None
    top_after: TopTokens = ()
    """As ``top_logprobs``, but after penalties and gravity; empty unless asked for."""
    num_found: int = 0
    """Tokens of the prompt that the prefix cache had."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The request ended with an error of its own; its neighbours went on."""

    request_id: str
    message: str
    code: str = "engine_error"


EngineEvent: TypeAlias = StepOutput | RequestFailed
