"""A request's path through one decoding step: observe -> control -> act."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker.decode.randomness import uniform
from worker.decode.row import Row
from worker.decode.sampler import Draw, Limits, draw
from worker.decode.validation import check_sampling
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import GenerationRequest
from worker.protocol import StepRecord
from worker.thermo.entropy import InvalidRowError, Moments

# Below this temperature a float32 logit gap of one bit already decides; it is greedy.
_COLDEST = 1e-6


@dataclass(frozen=True, slots=True)
class StepContext:
    """What all rows of one engine step have in common; it goes into their records."""

    engine_step: int
    batch_size: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One emitted token. ``top_logprobs`` as (id, ln p), the most probable first."""

    token_id: int
    record: StepRecord
    top_logprobs: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class RowFailure:
    """This row has no distribution; the others of its batch are not touched by it."""

    message: str


@dataclass(slots=True)
class DecodeState:
    """What a request carries from step to step. It belongs to the request, never to a row of a batch."""

    request: GenerationRequest
    position: int = 0

    def copy(self) -> DecodeState:
        """Return a state that can be rolled forward on its own."""
        return DecodeState(self.request, self.position)


class Decider:
    """Decides the next token of every request of a batch. One per engine; it keeps nothing of a request."""

    def __init__(self, vocabulary: Vocabulary, output_embedding: torch.Tensor | None = None) -> None:
        self._vocabulary = vocabulary
        self._row = Row(vocabulary.size)

    def open(self, request: GenerationRequest) -> DecodeState:
        """Compile what the request asks for. Raises ControlError, which names the field at fault."""
        check_sampling(request.sampling, self._vocabulary.size)
        return DecodeState(request)

    def decide(
        self, logits: torch.Tensor, states: Sequence[DecodeState], step: StepContext
    ) -> list[Decision | RowFailure]:
        """Decide one token for each row of logits [B, V], row i for ``states[i]``, and advance the states.

        The logits are bfloat16, float16 or float32 and stay as they are.
        """
        rows = _rows(logits)
        return [self._decide(rows[index], state, step) for index, state in enumerate(states)]

    def _decide(
        self, source: NDArray[np.float32] | NDArray[np.uint16], state: DecodeState, step: StepContext
    ) -> Decision | RowFailure:
        row, sampling = self._row, state.request.sampling
        try:
            row.load(source)
        except InvalidRowError as error:
            return RowFailure(str(error))
        temperature = sampling.temperature if sampling.temperature >= _COLDEST else 0.0
        own = row.observe(1.0)
        observed = row.observe(temperature or 1.0)
        top = row.largest(sampling.num_top_logprobs or 0)
        top_logprobs = tuple((int(id_), float(row.logits[id_]) - own.log_normaliser) for id_ in top)
        limits = Limits(temperature, sampling.top_k or row.size, sampling.top_p, sampling.min_p)
        drawn = draw(row, limits, uniform(sampling.seed, state.request.choice, state.position))
        token_id = _forced(state) if _forced(state) is not None else drawn.token_id
        assert token_id is not None
        record = _record(
            state, step, observed, limits, drawn, token_id, float(row.logits[token_id]) - own.log_normaliser
        )
        state.position += 1
        return Decision(token_id, record, top_logprobs)


def _forced(state: DecodeState) -> int | None:
    forced = state.request.forced_ids
    return forced[state.position] if state.position < len(forced) else None


def _rows(logits: torch.Tensor) -> NDArray[np.float32] | NDArray[np.uint16]:
    logits = logits.detach()
    if logits.dtype == torch.bfloat16:
        bits: NDArray[np.uint16] = logits.view(torch.uint16).numpy()
        return bits
    rows: NDArray[np.float32] = logits.float().numpy()
    return rows


def _record(
    state: DecodeState,
    step: StepContext,
    observed: Moments,
    limits: Limits,
    drawn: Draw,
    token_id: int,
    logprob: float,
) -> StepRecord:
    bucket = state.request.controls.bucket
    return StepRecord(
        token_id=token_id,
        logprob=logprob if math.isfinite(logprob) else -math.inf,
        entropy_nats=observed.entropy_nats,
        normalised_entropy=observed.normalised_entropy,
        gravity=observed.gravity,
        varentropy=observed.varentropy,
        p_max=observed.p_max,
        k=drawn.num_candidates,
        p=limits.top_p,
        temperature=limits.temperature,
        bias_nats=0.0,
        entropy_after_nats=drawn.entropy_nats,
        bucket=-1 if bucket is None else bucket,
        accepted_draft=0,
        engine_step=step.engine_step,
        batch_size=step.batch_size,
    )
