"""Every number of a step, worked out again in plain numpy, on recorded logits of the real model.

The reference is in double precision and shares nothing with the decoder but the random number u.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.decode.randomness import uniform
from worker.engine.request import SamplingParams
from worker.protocol import (
    AdaptiveControls,
    DecodeControls,
    GravityControls,
    GravityStage,
    TemperatureControls,
)

if TYPE_CHECKING:
    from tests.worker.decode.conftest import DecideAlone, MakeRequest

Doubles = NDArray[np.float64]

KEYWORDS = ("target", "search", "lamp", "sea", "ship")
PENALIZE = ("array", "keeper", "name")


@dataclass
class Expected:
    """One step as it should be."""

    token_id: int
    is_close_call: bool
    record: dict[str, float]


@dataclass
class Reference:
    """The decoder, written down once more as simply as possible."""

    tokenizer: Any
    sampling: SamplingParams
    controls: DecodeControls
    step: int = 0
    counts: Counter[int] = field(default_factory=Counter)
    s_mean: float | None = None
    s_recent: list[float] = field(default_factory=list)
    temperature: float = 1.0
    h_mean: float | None = None
    stage: float | None = None

    def decide(self, z: Doubles) -> Expected:
        size = len(z)
        now = self.temperature
        p = softmax(z / (self.controls.entropy_temperature or now))
        entropy = entropy_of(p)
        s = round(entropy, 4) / math.log(size)
        now = self.temperature_now(z, s, now)
        k, top_p = self.k_and_p(s, p.max(), size)
        bias = self.bias(z, now)
        drawn_from, order = self.kept(z + bias, now, k, top_p)
        u = uniform(self.sampling.seed, 0, self.step)
        upper = np.cumsum(drawn_from)
        index = min(int(np.searchsorted(upper, u, side="right")), len(upper) - 1)
        token_id = int(order[index])
        log_p = np.log(p)
        return Expected(
            token_id,
            bool(np.abs(upper - u).min() < 1e-5),
            {
                "logprob": float(np.log(softmax(z))[token_id]),
                "entropy_nats": entropy,
                "normalised_entropy": entropy / math.log(size),
                "gravity": 1 - entropy / math.log(size),
                "varentropy": float((p * log_p**2).sum() - (p * log_p).sum() ** 2),
                "p_max": float(p.max()),
                "k": k,
                "p": top_p,
                "temperature": now,
                "bias_nats": float(bias[token_id]),
                "entropy_after_nats": entropy_of(drawn_from),
            },
        )

    def advance(self, token_id: int) -> None:
        self.counts[token_id] += 1
        self.step += 1

    def temperature_now(self, z: Doubles, s: float, now: float) -> float:
        controls = self.controls.temperature
        if controls is None:
            return now
        if controls.mode == "map":
            hotter = controls.map_range * math.pow(s, controls.map_exponent)
            return min(max(now + hotter, controls.t_min), controls.t_max)
        h = round(entropy_of(softmax(z / now)), 4)
        beta = controls.smoothing
        self.h_mean = h if self.h_mean is None else beta * self.h_mean + (1 - beta) * h
        error = self.h_mean - controls.target_nats
        if abs(error) > controls.deadband_nats and h >= controls.freeze_below_nats:
            log_t = math.log(now) - min(max(controls.gain * error, -controls.max_step), controls.max_step)
            self.temperature = min(max(math.exp(log_t), controls.t_min), controls.t_max)
        return now

    def k_and_p(self, s: float, p_max: float, size: int) -> tuple[int, float]:
        a = self.controls.adaptive
        k, top_p = self.sampling.top_k or size, self.sampling.top_p
        if a is None:
            return k, top_p
        spread = a.s_high - a.s_low
        taken, is_spike = s, False
        if a.spike_window and self.s_recent:
            limit = float(np.mean(self.s_recent[-a.spike_window :])) + a.spike_delta * spread
            taken, is_spike = min(s, limit), s > limit
        self.s_recent.append(s)
        self.s_mean = taken if self.s_mean is None else a.smoothing * self.s_mean + (1 - a.smoothing) * taken
        g = min(max((self.s_mean - a.s_low) / spread, 0.0), 1.0)
        if a.leader_p_max is not None and g > 0.5 and p_max >= a.leader_p_max:
            g = 0.5
        if a.curve == "geometric":
            adaptive_k, adaptive_p = (
                round(a.k_min * (a.k_max / a.k_min) ** g),
                a.p_min * (a.p_max / a.p_min) ** g,
            )
        elif (a.s_low, a.s_high, a.smoothing) == (0.0, 1.0, 0.0):
            adaptive_k, adaptive_p = int(a.k_min + (a.k_max - a.k_min) * s), a.p_min + (a.p_max - a.p_min) * g
        else:
            adaptive_k, adaptive_p = (
                round(a.k_min + (a.k_max - a.k_min) * g),
                a.p_min + (a.p_max - a.p_min) * g,
            )
        if is_spike:
            adaptive_k, adaptive_p = a.k_max, a.p_max
        return min(k, adaptive_k), min(top_p, adaptive_p)

    def bias(self, z: Doubles, temperature: float) -> Doubles:
        g = self.controls.gravity
        bias = np.zeros(len(z))
        if g is None:
            return bias
        unit = np.zeros(len(z))
        for id_ in self.ids(KEYWORDS):
            unit[id_] += g.boost_weight
        for id_ in self.ids(PENALIZE):
            unit[id_] -= g.penalty_weight
        strength = g.strength
        if g.decay_after_steps is not None and self.step > g.decay_after_steps:
            over = self.step - g.decay_after_steps
            if g.decay == "linear":
                strength *= max(0.0, 1 - over / g.decay_after_steps)
            else:
                strength *= 0.5 ** (over / (g.half_life_steps or g.decay_after_steps))
        if g.stages:
            target = [stage.factor for stage in g.stages if self.step >= (stage.from_step or 0)][-1]
            if self.stage is None:
                self.stage = target
            most = 0.5 / (g.strength * np.abs(unit).max())
            self.stage += min(max(target - self.stage, -most), most)
            strength *= self.stage
        p = softmax(z / temperature)
        bias = np.clip(strength * unit, -g.max_bias_nats, g.max_bias_nats)
        for id_, times in self.counts.items():
            if bias[id_] > 0:
                bias[id_] *= g.repetition_brake**times
        bias[p < g.plausible * p.max()] = 0.0
        return bias

    def ids(self, words: tuple[str, ...]) -> set[int]:
        """The first token of every spelling, but for single letters."""
        found = set()
        for word in words:
            plural = {"search": "searches"}.get(word, word + "s")
            for form in (word, plural):
                for text in (form, " " + form, form.capitalize(), " " + form.capitalize()):
                    ids = self.tokenizer.encode(text, add_special_tokens=False)
                    if len(ids) == 1 or len(self.tokenizer.decode(ids[:1]).strip()) > 1:
                        found.add(ids[0])
        return found

    def kept(self, z: Doubles, temperature: float, k: int, top_p: float) -> tuple[Doubles, NDArray[np.intp]]:
        order = np.lexsort((np.arange(len(z)), -z))[:k]
        p = softmax(z[order] / temperature)
        above = np.cumsum(p) - p
        if top_p < 1.0:
            order, p = order[above < top_p], p[above < top_p]
        return p / p.sum(), order


def softmax(z: Doubles) -> Doubles:
    weights = np.exp(z - z.max())
    p: Doubles = weights / weights.sum()
    return p


def entropy_of(p: Doubles) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


SEED_FORM = AdaptiveControls(k_min=3, k_max=40)
CALIBRATED = AdaptiveControls(
    k_min=4, k_max=64, p_min=0.8, p_max=0.98, s_low=0.03, s_high=0.35, curve="geometric", smoothing=0.6,
    spike_window=8, spike_delta=0.3, leader_p_max=0.4,
)  # fmt: skip
LINEAR = AdaptiveControls(k_min=2, k_max=100, s_low=0.05, s_high=0.5, smoothing=0.3)
PLAIN_PULL = GravityControls(strength=3.0, keywords=KEYWORDS, penalize=PENALIZE, plausible=0.0, decay="none")
PULL = GravityControls(
    strength=2.5,
    keywords=KEYWORDS,
    penalize=PENALIZE,
    boost_weight=1.0,
    decay_after_steps=30,
    repetition_brake=0.5,
)
STAGED = GravityControls(
    strength=2.0, keywords=KEYWORDS, penalize=PENALIZE, boost_weight=0.8, max_bias_nats=1.0, plausible=0.01,
    decay="half_life", decay_after_steps=40, half_life_steps=10,
    stages=(GravityStage(from_step=0, factor=0.0), GravityStage(from_step=5, factor=1.0)),
)  # fmt: skip
HELD = TemperatureControls(mode="feedback", target_nats=1.5, smoothing=0.5, gain=0.1)
MAPPED = TemperatureControls(mode="map", map_range=0.8, map_exponent=0.7)

CASES: dict[str, tuple[dict[str, Any], DecodeControls]] = {
    "plain": ({}, DecodeControls()),
    "temperature, top-k, top-p": ({"temperature": 0.8, "top_k": 50, "top_p": 0.9}, DecodeControls()),
    "the plain form of adaptive k": ({}, DecodeControls(adaptive=SEED_FORM)),
    "the plain form under a temperature": ({"temperature": 0.8}, DecodeControls(adaptive=SEED_FORM)),
    "calibrated, spikes, leaders": ({"temperature": 0.9}, DecodeControls(adaptive=CALIBRATED)),
    "linear, smoothed, with the client's top-k": ({"top_k": 30}, DecodeControls(adaptive=LINEAR)),
    "the plain form of gravity": ({}, DecodeControls(gravity=PLAIN_PULL)),
    "gravity, decay, brake": ({"temperature": 0.7}, DecodeControls(gravity=PULL)),
    "gravity in stages": ({"temperature": 1.2}, DecodeControls(gravity=STAGED)),
    "temperature feedback": ({}, DecodeControls(temperature=HELD)),
    "temperature map": ({"temperature": 0.6}, DecodeControls(temperature=MAPPED)),
    "calibrated entropy": ({"temperature": 0.7}, DecodeControls(adaptive=SEED_FORM, entropy_temperature=1.3)),
    "everything": (
        {"temperature": 0.9, "top_p": 0.95},
        DecodeControls(adaptive=CALIBRATED, gravity=PULL, temperature=HELD, entropy_temperature=1.1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_step_equals_numpy(
    name: str,
    recorded_logits: NDArray[np.float32],
    tokenizer: Any,
    make_request: MakeRequest,
    decide_alone: DecideAlone,
) -> None:
    sampling, controls = CASES[name]
    request = make_request(seed=11, controls=controls, **sampling)
    decisions = decide_alone(recorded_logits, request)
    reference = Reference(tokenizer, request.sampling, controls, temperature=request.sampling.temperature)
    num_biased = 0
    for row, decision in zip(recorded_logits, decisions, strict=True):
        expected = reference.decide(row.astype(np.float64))
        assert decision.token_id == expected.token_id or expected.is_close_call
        if decision.token_id == expected.token_id:
            for column, value in expected.record.items():
                assert getattr(decision.record, column) == pytest.approx(value, rel=1e-3, abs=1e-4), column
        num_biased += decision.record.bias_nats != 0.0
        reference.advance(decision.token_id)
    assert (num_biased > 0) == (controls.gravity is not None)


def test_the_controls_were_seen_to_move(
    recorded_logits: NDArray[np.float32], make_request: MakeRequest, decide_alone: DecideAlone
) -> None:
    sampling, controls = CASES["everything"]
    records = [d.record for d in decide_alone(recorded_logits, make_request(controls=controls, **sampling))]
    assert len({record.k for record in records}) > 10
    assert len({record.p for record in records}) > 10
    assert min(record.temperature for record in records) < 0.85
    assert max(record.k for record in records) == 64


def test_bfloat16_logits_are_decided_like_their_float32_values(
    recorded_logits: NDArray[np.float32], make_request: MakeRequest, decide_alone: DecideAlone
) -> None:
    sampling, controls = CASES["everything"]
    rounded = torch.tensor(recorded_logits).bfloat16().float().numpy()
    request = make_request(controls=controls, **sampling)
    assert decide_alone(recorded_logits, request, dtype=torch.bfloat16) == decide_alone(rounded, request)
