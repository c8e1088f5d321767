"""One decoding step of every request in a batch: observe -> control -> act. See docs/decoding.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from worker.decode.control import control, observe
from worker.decode.gravitate import gravitate
from worker.decode.lexicon import Lexicon
from worker.decode.penalties import penalise
from worker.decode.pull import compile_pull
from worker.decode.randomness import uniform
from worker.decode.row import LogitRow, Row
from worker.decode.sampler import draw
from worker.decode.state import DecodeState, Plan
from worker.decode.theme import EmbeddingSpace
from worker.decode.validation import check_request
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import GenerationRequest, TopTokens
from worker.protocol import StepRecord
from worker.thermo.entropy import InvalidRowError

__all__ = ["Decider", "Decision", "DecodeState", "RowFailure", "StepContext"]

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot carry."""


@dataclass(frozen=True, slots=True)
class StepContext:
    """What all rows of one engine step have in common; it goes into their records."""

    engine_step: int
    batch_size: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One emitted token, and the likeliest ones before and after penalties and gravity."""

    token_id: int
    record: StepRecord
    top_logprobs: TopTokens
    top_after: TopTokens = ()


@dataclass(frozen=True, slots=True)
class RowFailure:
    """This row has no distribution; the others of its batch are not touched by it."""

    message: str


class Decider:
    """Decides the next token of every request of a batch. One per engine; it keeps nothing of a request."""

    def __init__(self, vocabulary: Vocabulary, output_embedding: torch.Tensor | None = None) -> None:
        self._vocabulary = vocabulary
        self._lexicon = Lexicon(vocabulary)
        self._space = None if output_embedding is None else EmbeddingSpace(output_embedding, vocabulary)
        self._row = Row(vocabulary.size)

    def open(self, request: GenerationRequest) -> DecodeState:
        """Compile what the request asks for. Raises ControlError, which names the field at fault."""
        check_request(request, self._vocabulary.size)
        return DecodeState.start(Plan.of(request, compile_pull(request, self._lexicon, self._space)))

    def decide(
        self, logits: torch.Tensor, states: Sequence[DecodeState], step: StepContext
    ) -> list[Decision | RowFailure]:
        """Decide one token for each row of logits [B, V], row i for ``states[i]``, and advance the states.

        The logits are bfloat16, float16 or float32 on the host, and stay as they are. A row of which nothing
        can be drawn becomes a RowFailure, and its request is at its end.
        """
        return [self._decide(row, state, step) for row, state in zip(_rows(logits), states, strict=True)]

    def _decide(self, source: LogitRow, state: DecodeState, step: StepContext) -> Decision | RowFailure:
        row, sampling = self._row, state.request.sampling
        try:
            row.load(source)
            observed = observe(row, state)
            top_logprobs = _top_logprobs(row, sampling.num_top_logprobs or 0)
            limits = control(row, state, observed)
            bias = gravitate(row, state, limits.temperature, self._space)
            penalise(row, state)
            bias.apply(row)
            top_after = _top_after(row, state.request.num_top_after)
            drawn = draw(row, limits, uniform(sampling.seed, state.request.choice, state.position))
        except InvalidRowError as error:
            return RowFailure(str(error))
        token_id = drawn.token_id if state.forced_id is None else state.forced_id
        bucket = state.request.controls.bucket
        record = StepRecord(
            token_id=token_id,
            logprob=max(row.own_logprob(token_id), LOWEST_LOGPROB),
            entropy_nats=observed.entropy_nats,
            normalised_entropy=observed.normalised_entropy,
            gravity=observed.gravity,
            varentropy=observed.varentropy,
            p_max=observed.p_max,
            k=drawn.num_candidates,
            p=limits.top_p,
            temperature=limits.temperature,
            bias_nats=bias.of(token_id),
            entropy_after_nats=drawn.entropy_nats,
            bucket=-1 if bucket is None else bucket,
            accepted_draft=0,
            engine_step=step.engine_step,
            batch_size=step.batch_size,
        )
        state.advance(token_id)
        return Decision(token_id, record, top_logprobs, top_after)


def _rows(logits: torch.Tensor) -> LogitRow:
    """Return logits [B, V] as numpy without a copy where the type allows it."""
    if logits.dtype == torch.bfloat16:
        bits: LogitRow = logits.detach().view(torch.uint16).numpy()
        return bits
    rows: LogitRow = logits.detach().float().numpy()
    return rows


def _top_logprobs(row: Row, count: int) -> TopTokens:
    return tuple((int(id_), row.own_logprob(int(id_))) for id_ in row.largest(count))


def _top_after(row: Row, count: int) -> TopTokens:
    """Return the likeliest tokens as they stand now, ln softmax at temperature 1."""
    if count == 0:
        return ()
    moments = row.moments(1.0)
    log_normaliser = moments.peak_logit + math.log(moments.mass)
    return tuple((int(id_), float(row.logits[id_]) - log_normaliser) for id_ in row.largest(count))
