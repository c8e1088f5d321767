"""The client's own changes to the logits: repetition, presence and frequency penalties, and logit_bias."""

from __future__ import annotations

import numpy as np

from worker.decode.row import Row
from worker.decode.state import DecodeState


def penalise(row: Row, state: DecodeState) -> None:
    """Apply what the request's sampling parameters ask for, in this order.

    ``repetition_penalty`` r, as in transformers: every token of prompt and text, however often it came, has
    its logit divided by r where it is positive and multiplied by r where it is not. ``presence_penalty`` and
    ``frequency_penalty``, as OpenAI has them: taken off the tokens of the text, once and per occurrence.
    ``logit_bias`` is added.
    """
    sampling = state.request.sampling
    if sampling.repetition_penalty != 1.0:
        _penalise_repetition(row, state)
    if state.counts and (sampling.presence_penalty or sampling.frequency_penalty):
        ids = np.fromiter(state.counts, np.intp)
        times = np.fromiter(state.counts.values(), np.float32)
        row.edit(ids, row.logits[ids] - sampling.presence_penalty - sampling.frequency_penalty * times)
    if len(state.plan.biased_ids):
        row.edit(state.plan.biased_ids, row.logits[state.plan.biased_ids] + state.plan.bias_values)


def _penalise_repetition(row: Row, state: DecodeState) -> None:
    penalty = state.request.sampling.repetition_penalty
    new = [id_ for id_ in state.counts if id_ not in state.plan.prompt_ids]
    ids = np.concatenate([state.plan.prompt_id_array, np.array(new, np.intp)])
    logits = row.logits[ids]
    row.edit(ids, np.where(logits > 0.0, logits / penalty, logits * penalty))
