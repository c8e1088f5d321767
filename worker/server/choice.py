"""One choice as it grows: tokens in, text, logprobs and a summary out."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from worker.decode.text import TextAssembler
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import FinishReason, GenerationRequest, StepOutput
from worker.protocol import StepRecord, TurnSummary
from worker.server.sinks import StepSink
from worker.thermo.entropic_time import mean_kept_share, summarise


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of the text. ``top`` as (id, ln p), the most probable first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    text_offset: int
    """Characters of the choice's text before the token's first."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What became known of a choice: the next text, and in the last piece how it ended."""

    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    summary: TurnSummary | None = None


class Choice:
    """Follows one request of the engine. Lives on the event loop."""

    def __init__(
        self,
        index: int,
        request: GenerationRequest,
        vocabulary: Vocabulary,
        stop: Sequence[str],
        sinks: Sequence[StepSink],
    ) -> None:
        self.index = index
        self.request = request
        self.is_finished = False
        self._sinks = sinks
        self._assembler = TextAssembler(vocabulary, stop)
        self._logprobs = PendingLogprobs(vocabulary)
        self._records: list[StepRecord] = []
        self.num_cached_prompt = 0
        """Tokens of the prompt that others had computed."""

    @property
    def num_tokens(self) -> int:
        return len(self._records)

    def accept(self, output: StepOutput) -> Piece | None:
        """Take one emitted token; None where nothing of it may be shown yet.

        The piece may end the choice (a stop string) although the engine would go on.
        """
        self._records.append(output.record)
        self.num_cached_prompt = output.num_found
        for sink in self._sinks:
            sink.add(output)
        if output.finish_reason == "stop":  # the token that ends the choice is no part of its text
            return self._finish("stop", self._assembler.finish())
        delta = self._assembler.push(output.token_id)
        if self.request.sampling.num_top_logprobs is not None:
            self._logprobs.push(output)
        if delta.is_stopped:
            return self._finish("stop", delta.text)
        if output.finish_reason is not None:
            return self._finish(output.finish_reason, delta.text + self._assembler.finish())
        if not delta.text and self.num_tokens > 1:
            return None
        return Piece(self.index, delta.text, self._logprobs.release(delta.text))

    def abandon(self, reason: str) -> None:
        """End the choice's trace without an answer: ``cancelled`` or ``error``."""
        self.is_finished = True
        for sink in self._sinks:
            sink.end(reason)

    def _finish(self, reason: FinishReason, text: str) -> Piece:
        self.is_finished = True
        for sink in self._sinks:
            sink.end(reason)
        told = {
            "seed": self.request.sampling.seed,
            "cached_prompt_tokens": self.num_cached_prompt,
            "mean_kept_share": mean_kept_share(self._records) if self.request.controls.drops_blocks else None,
        }
        summary = summarise(self._records).model_copy(update=told)
        return Piece(self.index, text, self._logprobs.release(text), reason, summary)


class PendingLogprobs:
    """Keeps each token's logprob until all of its text is released, so that tokens and text agree.

    A token that reaches into a stop string is never released: it would say what the text must not.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._num_characters = 0
        self._num_released = 0
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()

    def push(self, output: StepOutput) -> None:
        offset = self._num_characters
        self._num_characters += len(self._decoder.decode(self._token_bytes[output.token_id]))
        has_begun_character = bool(self._decoder.getstate()[0])
        end = self._num_characters + has_begun_character
        self._waiting.append(
            (end, TokenLogprob(output.token_id, output.record.logprob, output.top_logprobs, offset))
        )

    def release(self, text: str) -> tuple[TokenLogprob, ...]:
        self._num_released += len(text)
        released: list[TokenLogprob] = []
        while self._waiting and self._waiting[0][0] <= self._num_released:
            released.append(self._waiting.popleft()[1])
        return tuple(released)
