"""Wire types between the gateway and a worker, and the format of a step trace.

This module imports the standard library and pydantic only, so that both sides can share it.
The controls travel inside an OpenAI request as ``vllm_xargs = {"gravity": "<DecodeControls as JSON>"}``.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, model_validator

PROTOCOL_VERSION = 1
XARGS_KEY = "gravity"
TRACE_KEY_PREFIX = "ng:trace:"
NO_TOKEN = -1
"""Stands for a token's id in a trace whose text may not be kept."""

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Nats = Annotated[float, Field(ge=0.0, le=50.0)]
Steps = Annotated[int, Field(ge=0, le=1_000_000)]
Word = Annotated[str, Field(min_length=1, max_length=100)]


class WireModel(BaseModel):
    """A frozen message that rejects unknown fields and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AdaptiveControls(WireModel):
    """How many candidates stay, as a function of the normalised entropy s.

    ``g = clip((s - s_low) / (s_high - s_low), 0, 1)``; then ``k = k_min + (k_max - k_min) * g`` (linear) or
    ``k = k_min * (k_max / k_min) ** g`` (geometric), rounded. The seed form is the default here:
    ``s_low = 0, s_high = 1, linear, smoothing = 0``, no spike guard; its k is cut off, not rounded.
    """

    k_min: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    k_max: Annotated[int, Field(ge=1, le=1_000_000)] = 40
    p_min: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    p_max: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    s_low: Probability = 0.0
    s_high: Probability = 1.0
    curve: Literal["linear", "geometric"] = "linear"
    smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Weight of history: s_bar <- smoothing * s_bar + (1 - smoothing) * s."""
    spike_window: Annotated[int, Field(ge=0, le=1024)] = 0
    """Number of past steps the spike guard averages over; 0 turns the guard off."""
    spike_delta: Annotated[float, Field(gt=0.0, le=1.0)] = 0.3
    """A spike is s above the window's mean by more than this share of the range s_high - s_low."""
    leader_p_max: Probability | None = None
    """With s in the upper half of its range and p_max at or above this, a leader has rivals: a middle k."""
    flat_p_max: Probability | None = None
    """With s in the upper half of its range and p_max at or below this, all is flat: k_max."""

    @model_validator(mode="after")
    def _ordered(self) -> AdaptiveControls:
        if self.k_min > self.k_max:
            raise ValueError("k_min must not be above k_max")
        if self.p_min > self.p_max:
            raise ValueError("p_min must not be above p_max")
        if self.s_low >= self.s_high:
            raise ValueError("s_low must be below s_high")
        return self


class GravityStage(WireModel):
    """From this point on the pull is multiplied by ``factor``. Exactly one of the two starts is given."""

    from_step: Steps | None = None
    from_share: Probability | None = None
    """Share of max_tokens at which the stage begins."""
    factor: Annotated[float, Field(ge=0.0, le=10.0)]

    @model_validator(mode="after")
    def _one_start(self) -> GravityStage:
        if (self.from_step is None) == (self.from_share is None):
            raise ValueError("a stage begins at from_step or at from_share, exactly one of them")
        return self


class DriftFeedback(WireModel):
    """strength <- clip(strength * exp(+gain * (d - target)), 0, max_strength), d = 1 - cos(recent, theme)."""

    target: Annotated[float, Field(ge=0.0, le=2.0)] = 0.5
    gain: Annotated[float, Field(ge=0.0, le=10.0)] = 0.5
    window: Annotated[int, Field(ge=1, le=1024)] = 16
    max_strength: Annotated[float, Field(ge=0.0, le=20.0)] = 3.0


class ThemeVector(WireModel):
    """The vector form of gravity: output-embedding rows compared with the theme.

    ``text`` names the theme; without it the request's own prompt (kept context and question) is the theme.
    """

    text: Annotated[str, Field(min_length=1, max_length=200_000)] | None = None
    weight: Annotated[float, Field(ge=0.0, le=20.0)] = 1.0
    """Nats at similarity 1 and strength 1."""
    threshold: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    """Similarities below this contrast threshold get no bias."""


class GravityControls(WireModel):
    """The pull towards the theme: logits <- logits + b(t) inside the plausible set, |b| <= max_bias_nats."""

    strength: Annotated[float, Field(ge=0.0, le=20.0)] = 1.2
    keywords: Annotated[tuple[Word, ...], Field(max_length=512)] = ()
    penalize: Annotated[tuple[Word, ...], Field(max_length=512)] = ()
    boost_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 0.2
    penalty_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    mode: Literal["bias", "mask"] = "bias"
    """``mask`` turns the penalty into minus infinity."""
    plausible: Probability = 0.05
    """Bias only where p >= plausible * p_max; 0 means everywhere (the plain form of the seed)."""
    max_bias_nats: Annotated[float, Field(gt=0.0, le=20.0)] = 3.0
    vector: ThemeVector | None = None
    decay: Literal["none", "linear", "half_life"] = "linear"
    decay_after_steps: Steps | None = None
    """Full strength up to this step; None never decays."""
    half_life_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """For ``half_life``; defaults to decay_after_steps."""
    stages: Annotated[tuple[GravityStage, ...], Field(max_length=16)] = ()
    drift: DriftFeedback | None = None
    repetition_brake: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """A token's boost is multiplied by this once for every time that it was emitted."""


class TemperatureControls(WireModel):
    """``feedback`` holds the smoothed H at target_nats (minus sign: dH/d ln T > 0); ``map`` is memoryless."""

    mode: Literal["off", "feedback", "map"] = "off"
    target_nats: Nats = 2.0
    gain: Annotated[float, Field(gt=0.0, le=2.0)] = 0.05
    smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.7
    deadband_nats: Nats = 0.25
    max_step: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Largest change of ln T in one step."""
    t_min: Annotated[float, Field(gt=0.0, le=10.0)] = 0.3
    t_max: Annotated[float, Field(gt=0.0, le=10.0)] = 1.5
    freeze_below_nats: Nats = 0.05
    map_range: Annotated[float, Field(ge=-2.0, le=2.0)] = 0.0
    """For ``map``: T = T_0 + map_range * s ** map_exponent, clipped to [t_min, t_max]."""
    map_exponent: Annotated[float, Field(gt=0.0, le=8.0)] = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> TemperatureControls:
        if self.t_min > self.t_max:
            raise ValueError("t_min must not be above t_max")
        return self


class SpeculationControls(WireModel):
    """Prompt lookup: tokens that followed the same words before are checked together, several in a step.

    A drafted token is emitted only where the request's own random number picks it, so no text changes.
    """

    mode: Literal["off", "fixed", "entropy"] = "off"
    """fixed: ``max_draft`` tokens wherever the text's end was seen before, beside other requests where all of
    them are worth it. entropy: as many as their chance (of the match, H and what came true lately) is worth,
    shared out over the batch."""
    max_draft: Annotated[int, Field(ge=1, le=64)] = 8
    """Tokens drafted in one step; the worker may allow fewer."""
    min_match: Annotated[int, Field(ge=1, le=4)] = 1
    """Tokens of the text's end that must have been seen before."""


class KVBlockControls(WireModel):
    """Which blocks of 16 tokens a step attends to: those whose attention, weighed by surprisal, is worth it.

    ``I_b = sum of a_i * I_i``; a block is kept iff ``I_b >= theta`` times the mean of those that may be
    dropped, ``theta = threshold * clip((reference_nats - e) / reference_nats, 0, 1)``. Always kept: the first
    block, the last 64 tokens, and what the prefix cache had. Texts change by it; the prompt is read whole.
    """

    mode: Literal["off", "entropy"] = "off"
    score: Literal["surprisal", "attention"] = "surprisal"
    """attention: every token counts alike, and prompts are read without the logits of each token."""
    threshold: Annotated[float, Field(ge=0.0, le=1000.0)] = 1.0
    """theta_0: at H = 0, in units of the mean score. 0 keeps everything."""
    reference_nats: Annotated[float, Field(gt=0.0, le=50.0)] = 6.0
    """H_ref: from this H on everything is attended to."""
    min_blocks: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """B_min: at least so many are kept, guarded ones counted."""
    smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.7
    """Weight of history in e, the smoothed H."""
    attention_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.7
    """Weight of history in a, from look to look."""
    look_every: Annotated[int, Field(ge=2, le=1024)] = 16
    """Steps from one look at the whole text to the next; the kept blocks are chosen then."""


class Calibration(WireModel):
    """Where s_low and s_high were measured; H moves with both."""

    model: str
    temperature: Annotated[float, Field(ge=0.0, le=10.0)]


class TraceControls(WireModel):
    """Where the steps go. Without a turn id nothing is written to Redis."""

    turn_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
    has_tokens: bool = True
    """False writes NO_TOKEN for every id: whoever has the tokenizer reads the text from them."""


class DecodeControls(WireModel):
    """Everything a worker is told beside the OpenAI parameters. All absent = ordinary sampling."""

    version: Literal[1] = 1
    adaptive: AdaptiveControls | None = None
    gravity: GravityControls | None = None
    temperature: TemperatureControls | None = None
    entropy_temperature: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    """T_cal: the controllers read H(softmax(z / T_cal)); the sampler keeps z."""
    calibration: Calibration | None = None
    speculation: SpeculationControls | None = None
    """None: each step gives one token."""
    kv_blocks: KVBlockControls | None = None
    """None: every step attends to the whole text."""
    bucket: Annotated[int, Field(ge=0, le=63)] | None = None
    trace: TraceControls | None = None

    @model_validator(mode="after")
    def _blocks_or_drafts(self) -> DecodeControls:
        check_blocks_or_drafts(self.kv_blocks, self.speculation)
        return self

    @property
    def drops_blocks(self) -> bool:
        """True where steps may attend to less than the whole text."""
        return self.kv_blocks is not None and self.kv_blocks.mode != "off"

    @property
    def is_plain(self) -> bool:
        """True where sampling is exactly ordinary sampling."""
        return self.adaptive is None and self.gravity is None and self.temperature is None


def check_blocks_or_drafts(blocks: KVBlockControls | None, drafts: SpeculationControls | None) -> None:
    """Raise ValueError where both are on: a draft is checked in one pass, blocks are chosen step by step."""
    if blocks is not None and drafts is not None and "off" not in (blocks.mode, drafts.mode):
        raise ValueError("kv_blocks and speculation cannot be on together; turn one of them off")


class TurnSummary(WireModel):
    """What a native worker reports with the last chunk of each choice, under the key ``gravity``."""

    num_steps: int
    mean_entropy_nats: float
    mean_gravity: float
    mean_k: float
    entropic_time_nats: float
    """tau = sum of max(0, H[t-1] - H[t])."""
    net_drop_nats: float
    """H[0] - H[n]."""
    envelope_nats: float
    """e[0] - min e, e = the smoothed H."""
    cost_gmac: float = 0.0
    """C: 10^9 multiplications of all steps, active parameters and attended KV entries; a proxy for FLOPs."""
    nats_per_gmac: float = 0.0
    """d tau / dC: what was resolved for what was computed."""
    cached_prompt_tokens: int = 0
    """Tokens of the prompt that others had computed."""
    num_accepted_drafts: int = 0
    """Tokens that had been drafted: as many passes through the weights were spared."""
    mean_kept_share: float | None = None
    """Mean over steps of the share of KV blocks attended to; None where every step attends to all."""
    seed: int | None = None
    """The seed in force: the request's, or the one that the worker drew for it."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One sampled token as the trace keeps it. Entropies in nats, observed before the gravity bias."""

    token_id: int
    """NO_TOKEN in a trace that may not tell."""
    logprob: float
    """ln softmax(z)[token] of the model's own distribution: T = 1, no bias, no truncation."""
    entropy_nats: float
    normalised_entropy: float
    gravity: float
    varentropy: float
    p_max: float
    k: int
    """Candidates that survive top-k; the vocabulary's size where nothing truncates."""
    p: float
    """Nucleus mass in force; 1 where none is."""
    temperature: float
    bias_nats: float
    """Bias that the emitted token received."""
    entropy_after_nats: float
    """Entropy of the distribution that the token was drawn from, after bias and truncation."""
    bucket: int
    """-1 where the request has none."""
    accepted_draft: int
    """1 where the token was drafted and is the one that was drawn, else 0."""
    engine_step: int
    batch_size: int
    entropy_half_width_nats: float = 0.0
    """H is measured where this is 0, else estimated: between ``entropy_nats`` minus and plus this."""
    kept_share: float = 1.0
    """Share of the text's KV blocks that the step attended to."""


_TYPECODES = {int: "i", float: "f"}
_LATER_COLUMNS: Mapping[str, float] = {"entropy_half_width_nats": 0.0, "kept_share": 1.0}
"""Traces from before these were written lack them, and count as if they held this."""
STEP_COLUMNS: Mapping[str, str] = {
    name: _TYPECODES[kind] for name, kind in get_type_hints(StepRecord).items() if kind in _TYPECODES
}


def pack_steps(first_step: int, records: Sequence[StepRecord], *, choice: int = 0) -> dict[str, bytes]:
    """Pack consecutive steps into the fields of one stream entry: little-endian int32 / float32 columns."""
    entry = {"first": str(first_step), "n": str(len(records)), "choice": str(choice)}
    packed = {key: value.encode() for key, value in entry.items()}
    for name, typecode in STEP_COLUMNS.items():
        column = array(typecode, [getattr(record, name) for record in records])
        if sys.byteorder == "big":
            column.byteswap()
        packed[name] = column.tobytes()
    return packed


def unpack_steps(entry: Mapping[bytes, bytes]) -> tuple[int, int, list[StepRecord]]:
    """Return (choice, first step, records) of one stream entry. Columns this version lacks are ignored.

    Raises ValueError where a column is missing or has another length than the entry says.
    """
    num_steps = int(entry[b"n"])
    columns: list[Sequence[float]] = []
    for name, typecode in STEP_COLUMNS.items():
        packed = entry.get(name.encode())
        if packed is None and name in _LATER_COLUMNS:
            columns.append(array(typecode, [_LATER_COLUMNS[name]]) * num_steps)
            continue
        column = array(typecode)
        column.frombytes(packed or b"")
        if sys.byteorder == "big":
            column.byteswap()
        if len(column) != num_steps:
            raise ValueError(f"trace column {name!r} holds {len(column)} steps, the entry says {num_steps}")
        columns.append(column)
    records = [StepRecord(*row) for row in zip(*columns, strict=True)]
    return int(entry[b"choice"]), int(entry[b"first"]), records


def trace_key(turn_id: str) -> str:
    """Redis key of a turn's steps."""
    return TRACE_KEY_PREFIX + turn_id


assert list(STEP_COLUMNS) == [f.name for f in fields(StepRecord)]
