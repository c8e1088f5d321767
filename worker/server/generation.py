"""One HTTP request's choices in the engine, from submission to the last piece, or to its cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from worker.engine.request import EngineEvent, FinishReason, GenerationRequest, RequestFailed
from worker.errors import GenerationFailedError, WorkerError
from worker.protocol import TurnSummary
from worker.server.choice import Choice, Piece, TokenLogprob
from worker.server.deps import Deps
from worker.server.job import Job
from worker.server.sinks import SinksFor
from worker.thermo.entropic_time import with_cost

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedChoice:
    """A whole choice, for an answer that is not streamed."""

    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason
    summary: TurnSummary


class Generation:
    """``async with`` it: on leaving, whatever has not finished is cancelled in the engine.

    Raises WorkerError on entering where the engine or the roster refuses it.
    """

    def __init__(
        self, job: Job, requests: Sequence[GenerationRequest], sinks_for: SinksFor, deps: Deps
    ) -> None:
        self.job = job
        self._deps = deps
        vocabulary = deps.engine.vocabulary
        self._choices = {
            request.id: Choice(index, request, vocabulary, job.stop, sinks_for(index))
            for index, request in enumerate(requests)
        }
        self._pieces: asyncio.Queue[Piece | WorkerError] = asyncio.Queue()
        self._started_s = deps.clock_s()
        self._has_begun = False
        self._is_closed = False

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    @property
    def num_completion_tokens(self) -> int:
        return sum(choice.num_tokens for choice in self._choices.values())

    @property
    def num_cached_prompt_tokens(self) -> int:
        """Of the prompts' tokens those that were not computed for this request, each prompt counted once."""
        firsts = (choice for choice in self._choices.values() if choice.request.choice == 0)
        return sum(choice.num_cached_prompt for choice in firsts)

    async def __aenter__(self) -> Self:
        self._deps.roster.join(self)
        try:
            for choice in self._choices.values():
                await self._submit(choice.request)
        except BaseException:
            self.close("error")
            raise
        self._deps.metrics.prompt_tokens.inc(self.job.num_prompt_tokens)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def pieces(self) -> AsyncGenerator[list[Piece], None]:
        """All pieces in the order of their tokens, as many at a time as have come. Raises WorkerError."""
        num_open = len(self._choices)
        while num_open:
            batch, error = await self._next_batch()
            num_open -= sum(piece.finish_reason is not None for piece in batch)
            if batch:
                yield batch
            if error is not None:
                raise error

    async def collect(self) -> list[FinishedChoice]:
        """Wait for every choice. Raises WorkerError."""
        parts: dict[int, list[Piece]] = {choice.index: [] for choice in self._choices.values()}
        async for batch in self.pieces():
            for piece in batch:
                parts[piece.index].append(piece)
        return [_joined(pieces) for _, pieces in sorted(parts.items())]

    def fail(self, error: WorkerError) -> None:
        """Let the reader of the pieces see this error next."""
        self._pieces.put_nowait(error)

    def close(self, reason: str = "cancelled") -> None:
        """Cancel what has not finished, and say in its trace why. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._deps.metrics.completion_tokens.inc(self.num_completion_tokens)
        for choice in self._choices.values():
            if not choice.is_finished:
                self._deps.engine.cancel(choice.request.id)
                choice.abandon(reason)
                self._deps.metrics.choices.labels(reason).inc()
        self._deps.roster.leave(self)

    async def _submit(self, request: GenerationRequest) -> None:
        inbox, engine = self._deps.inbox, self._deps.engine

        def emit(event: EngineEvent) -> None:
            inbox.post(self._accept, event)

        # Keywords and themes are encoded on submission, which a long theme makes slow.
        await self._deps.prompts.run(lambda: engine.submit(request, emit))

    def _accept(self, event: EngineEvent) -> None:
        choice = self._choices[event.request_id]
        if choice.is_finished:
            return  # what the engine emitted before it saw the cancellation
        try:
            self._take(choice, event)
        except Exception:  # a defect in one choice's text must not stop the events behind it
            log.exception("a choice could not be continued")
            self._abandon(choice, GenerationFailedError("the token could not be turned into text"))

    def _take(self, choice: Choice, event: EngineEvent) -> None:
        if isinstance(event, RequestFailed):
            self._abandon(choice, GenerationFailedError(event.message))
            return
        self._measure_first_token()
        piece = choice.accept(event)
        if piece is None:
            return
        if piece.summary is not None:
            num_prompt, summary = len(choice.request.prompt_ids), piece.summary
            kept_share = 1.0 if summary.mean_kept_share is None else summary.mean_kept_share
            cost = self._deps.engine.step_cost.of_steps_gmac(num_prompt, choice.num_tokens, kept_share)
            summary = with_cost(summary, cost)
            self._deps.metrics.observe_summary(summary)
            piece = replace(piece, summary=summary)
        if piece.finish_reason is not None:
            self._deps.metrics.choices.labels(piece.finish_reason).inc()
            if event.finish_reason is None:  # a stop string: the engine does not know it
                self._deps.engine.cancel(choice.request.id)
        self._pieces.put_nowait(piece)

    def _abandon(self, choice: Choice, error: WorkerError) -> None:
        self._deps.engine.cancel(choice.request.id)
        choice.abandon("error")
        self._deps.metrics.choices.labels("error").inc()
        self.fail(error)

    def _measure_first_token(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._deps.metrics.time_to_first_token.observe(self._deps.clock_s() - self._started_s)

    async def _next_batch(self) -> tuple[list[Piece], WorkerError | None]:
        """Wait for something, and take all that is there, up to an error."""
        batch: list[Piece] = []
        item = await self._pieces.get()
        while isinstance(item, Piece):
            batch.append(item)
            if self._pieces.empty():
                return batch, None
            item = self._pieces.get_nowait()
        return batch, item


def _joined(pieces: Sequence[Piece]) -> FinishedChoice:
    last = pieces[-1]
    assert last.finish_reason is not None
    assert last.summary is not None
    return FinishedChoice(
        last.index,
        "".join(piece.text for piece in pieces),
        tuple(logprob for piece in pieces for logprob in piece.logprobs),
        last.finish_reason,
        last.summary,
    )
