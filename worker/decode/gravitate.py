"""The pull at one step: which tokens get which bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worker.decode.pull import Pull
from worker.decode.row import Ids, Row
from worker.decode.state import DecodeState
from worker.decode.theme import EmbeddingSpace
from worker.thermo.entropy import DoubleRow
from worker.thermo.gravity import approach, bound_bias, drift_strength, plausible_logit, stage_target

MASKED_NATS = -9999.0
"""What is recorded as the bias of a forbidden token (a replay may force one)."""


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """The biases of one step, and the tokens that it forbids."""

    ids: Ids
    nats: DoubleRow
    masked: Ids

    def apply(self, row: Row) -> None:
        row.edit(self.ids, row.logits[self.ids] + self.nats.astype(np.float32))
        row.edit(self.masked, np.full(len(self.masked), -np.inf, np.float32))

    def of(self, token_id: int) -> float:
        """Return the bias that a token got, in nats."""
        if len(self.masked) and token_id in self.masked:
            return MASKED_NATS
        found = np.flatnonzero(self.ids == token_id)
        return float(self.nats[found[0]]) if len(found) else 0.0


NO_BIAS = Bias(np.empty(0, np.intp), np.empty(0), np.empty(0, np.intp))


def gravitate(row: Row, state: DecodeState, temperature: float, space: EmbeddingSpace | None) -> Bias:
    """Return this step's bias, judged by the model's own logits: ``row`` must not have been edited yet."""
    pull = state.plan.pull
    if pull is None:
        return NO_BIAS
    strength = _strength(pull, state, space)
    if strength == 0.0:
        return NO_BIAS
    ids, unit_nats = _pulled(pull, state)
    if pull.controls.plausible > 0.0:
        floor = plausible_logit(row.peak, temperature or 1.0, pull.controls.plausible)
        is_plausible = row.logits[ids] >= floor
        ids, unit_nats = ids[is_plausible], unit_nats[is_plausible]
    nats = bound_bias(strength * unit_nats, pull.controls.max_bias_nats)
    if pull.controls.repetition_brake < 1.0:
        nats = nats * _brake(pull, state, ids, nats)
    return Bias(ids, nats, _masked(pull, state))


def _strength(pull: Pull, state: DecodeState, space: EmbeddingSpace | None) -> float:
    strength, drift = pull.controls.strength, pull.controls.drift
    if drift is not None and pull.theme is not None and space is not None:
        emitted = state.recent_ids[-min(drift.window, state.position) :] if state.position else []
        distance = space.drift(pull.theme, emitted)
        if distance is not None:
            strength = drift_strength(strength, distance, drift.target, drift.gain, drift.max_strength)
    return strength * pull.decay(state.position) * _stage_factor(pull, state)


def _stage_factor(pull: Pull, state: DecodeState) -> float:
    if not pull.stages:
        return 1.0
    target = stage_target(pull.stages, state.position)
    current = target if state.stage_factor is None else state.stage_factor
    state.stage_factor = approach(current, target, pull.largest_nats)
    return state.stage_factor


def _pulled(pull: Pull, state: DecodeState) -> tuple[Ids, DoubleRow]:
    extra: dict[int, float] = {}
    for prefix in _prefixes(pull, state):
        for id_, nats in pull.following.get(prefix, {}).items():
            extra[id_] = extra.get(id_, 0.0) + nats
    if not extra:
        return pull.ids, pull.unit_nats
    ids = np.union1d(pull.ids, np.fromiter(extra, np.intp))
    unit_nats = np.zeros(len(ids))
    unit_nats[np.searchsorted(ids, pull.ids)] = pull.unit_nats
    unit_nats[np.searchsorted(ids, np.fromiter(extra, np.intp))] += np.fromiter(extra.values(), np.float64)
    return ids, unit_nats


def _masked(pull: Pull, state: DecodeState) -> Ids:
    after = [pull.masked_after[prefix] for prefix in _prefixes(pull, state) if prefix in pull.masked_after]
    return np.unique(np.concatenate([pull.masked, *after])) if after else pull.masked


def _prefixes(pull: Pull, state: DecodeState) -> list[tuple[int, ...]]:
    recent = state.recent_ids
    return [tuple(recent[-length:]) for length in pull.prefix_lengths if length <= len(recent)]


def _brake(pull: Pull, state: DecodeState, ids: Ids, nats: DoubleRow) -> DoubleRow:
    # A penalty is not braked: that would favour what was repeated.
    times = [state.counts.get(int(id_), 0) if bias > 0.0 else 0 for id_, bias in zip(ids, nats, strict=True)]
    braked: DoubleRow = pull.controls.repetition_brake ** np.array(times, np.float64)
    return braked
