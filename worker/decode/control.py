"""From what was observed to what a step may draw from: its temperature, k and p."""

from __future__ import annotations

from worker.decode.row import Row
from worker.decode.sampler import Limits
from worker.decode.state import DecodeState
from worker.protocol import AdaptiveControls, TemperatureControls
from worker.thermo.adaptive import (
    calibrated_k,
    calibrated_p,
    openness,
    seed_k,
    smooth,
    spike_ceiling,
    weigh_in_peak,
)
from worker.thermo.entropy import Moments, normalise_entropy, quantise_entropy
from worker.thermo.temperature import TemperatureRange, feedback, mapped


def observe(row: Row, state: DecodeState) -> Moments:
    """Return what the controllers read: the model's own distribution, at T_cal or this step's temperature."""
    calibrated = state.request.controls.entropy_temperature
    return row.observe(calibrated or state.temperature or 1.0)


def control(row: Row, state: DecodeState, observed: Moments) -> Limits:
    """Return what this step may draw from, and set the state for the next one."""
    sampling, adaptive = state.request.sampling, state.request.controls.adaptive
    s = normalise_entropy(quantise_entropy(observed.entropy_nats), observed.num_finite)
    temperature = _temperature(row, state, s)
    top_k, top_p = sampling.top_k or row.size, sampling.top_p
    if adaptive is not None:
        k, p = _adapt(adaptive, state, s, observed.p_max)
        top_k, top_p = min(top_k, k), min(top_p, p)
    return Limits(temperature, top_k, top_p, sampling.min_p)


def _temperature(row: Row, state: DecodeState, s: float) -> float:
    controls = state.request.controls.temperature
    if controls is None or controls.mode == "off" or state.temperature == 0.0:
        return state.temperature
    bounds = TemperatureRange(controls.t_min, controls.t_max, controls.max_step)
    if controls.mode == "map":
        return mapped(state.temperature, s, controls.map_range, controls.map_exponent, bounds)
    now = state.temperature
    state.temperature = _next_temperature(row, state, controls, bounds)
    return now


def _next_temperature(
    row: Row, state: DecodeState, controls: TemperatureControls, bounds: TemperatureRange
) -> float:
    # At a fixed T_cal the loop would not see what it does, so it reads at the temperature in force.
    entropy = quantise_entropy(row.observe(state.temperature).entropy_nats)
    smoothed = state.smoothed_entropy_nats = smooth(state.smoothed_entropy_nats, entropy, controls.smoothing)
    error = smoothed - controls.target_nats
    if abs(error) <= controls.deadband_nats or entropy < controls.freeze_below_nats:
        return state.temperature
    return feedback(state.temperature, error, controls.gain, bounds)


def _adapt(controls: AdaptiveControls, state: DecodeState, s: float, p_max: float) -> tuple[int, float]:
    ceiling = spike_ceiling(state.recent_s, controls.spike_delta * (controls.s_high - controls.s_low))
    smoothed = state.smoothed_s = smooth(state.smoothed_s, min(s, ceiling), controls.smoothing)
    if controls.spike_window:
        state.recent_s.append(s)
        del state.recent_s[: -controls.spike_window]
    if s > ceiling:
        return controls.k_max, controls.p_max
    g = openness(smoothed, controls.s_low, controls.s_high)
    g = weigh_in_peak(g, p_max, controls.leader_p_max, controls.flat_p_max)
    p = calibrated_p(g, controls.p_min, controls.p_max, controls.curve)
    if _is_seed_form(controls):
        return seed_k(smoothed, controls.k_min, controls.k_max), p
    return calibrated_k(g, controls.k_min, controls.k_max, controls.curve), p


def _is_seed_form(controls: AdaptiveControls) -> bool:
    is_uncalibrated = controls.s_low == 0.0 and controls.s_high == 1.0 and controls.curve == "linear"
    return is_uncalibrated and controls.smoothing == 0.0
