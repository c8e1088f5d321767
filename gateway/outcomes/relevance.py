"""How much an answer is about its question: measured after the turn, in the background, disturbing nobody.

theme_relevance is the cosine of the encoder's vectors of answer and question. The question, because the
documents differ between arms. One answer is measured at a time, while the encoder is idle; where too many
wait, their outcomes go on without it, and that is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, replace

from gateway.context.embed import Encoder
from gateway.context.pruner import bounded
from gateway.errors import EncoderError
from gateway.outcomes.entry import TurnOutcome
from gateway.outcomes.ledger import Experiment, Ledger
from gateway.outcomes.measure import measured_text
from gateway.telemetry.logs import log
from gateway.telemetry.metrics import Metrics

MAX_BEHIND = 32
"""Answers that may wait for the encoder; each takes it some ten milliseconds."""
MAX_WAITING = 1_000
"""Answers that may wait for anything at all."""
MAX_WAITING_CHARS = 16_000_000
REST = 3.0
"""Seconds of rest after each second of encoding: a quarter of a core at most goes into this."""
IDLE_S = 2.0
"""So long an answer waits for an encoder that prunes without a pause."""
LARGE_CHARS = 20_000
"""Counting the words of more than this would hold up the event loop."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer whose text is still to be measured."""

    experiment: Experiment
    outcome: TurnOutcome
    question: str
    text: str
    encoder: Encoder | None
    """Whose vectors are compared; None where there is none that could read them."""


class AnswerMeasure:
    """The bounded queue of answers, and the task that measures them and hands them to the ledger."""

    def __init__(self, ledger: Ledger, timeout_s: float, metrics: Metrics) -> None:
        """``timeout_s`` is how long an encoder may take for one answer."""
        self._ledger = ledger
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._waiting: deque[Answer] = deque()
        self._num_chars = 0
        self._arrival = asyncio.Event()
        self._rest_s = 0.0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def submit(self, answer: Answer) -> None:
        """Queue an answer; where there is no room its outcome goes on without what the text says."""
        if len(self._waiting) >= MAX_WAITING or self._num_chars + len(answer.text) > MAX_WAITING_CHARS:
            self._metrics.texts_not_measured.labels("busy").inc()
            self._ledger.add(answer.experiment, answer.outcome)
            return
        self._waiting.append(answer)
        self._num_chars += len(answer.text)
        self._arrival.set()

    async def watch(self) -> None:
        """Measure what comes, until cancelled."""
        while True:
            await self._arrival.wait()
            while self._waiting:
                answer, values = self._waiting[0], dict[str, float]()
                try:
                    values |= await _words_of(answer.text)
                    values |= await self._relevance(answer)
                finally:  # whatever happens, what is known of the turn goes on
                    self._hand_on(values)
                if self._rest_s:
                    await asyncio.sleep(self._rest_s)
                    self._rest_s = 0.0
            self._arrival.clear()

    async def close(self) -> None:
        """Hand on what is left, without a look at the encoder."""
        while self._waiting:
            self._metrics.texts_not_measured.labels("busy").inc()
            self._hand_on(await _words_of(self._waiting[0].text))

    def _hand_on(self, values: dict[str, float]) -> None:
        answer = self._waiting.popleft()
        self._num_chars -= len(answer.text)
        outcome = replace(answer.outcome, values={**answer.outcome.values, **values})
        self._ledger.add(answer.experiment, outcome)

    async def _relevance(self, answer: Answer) -> dict[str, float]:
        """Return theme_relevance; nothing where it cannot be had."""
        encoder = answer.encoder
        if encoder is None or not answer.text.strip() or not answer.question.strip():
            return {}
        if len(self._waiting) > MAX_BEHIND or not await _is_idle(encoder):
            self._metrics.texts_not_measured.labels("busy").inc()
            return {}
        began_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._timeout_s):
                return {"theme_relevance": await relevance(encoder, answer.question, answer.text)}
        except (EncoderError, TimeoutError) as error:
            self._metrics.texts_not_measured.labels("failed").inc()
            log(logger, logging.DEBUG, "relevance_not_measured", reason=str(error))
            return {}
        finally:
            self._rest_s = REST * (asyncio.get_running_loop().time() - began_s)


async def relevance(encoder: Encoder, question: str, text: str) -> float:
    """Return the cosine of the two, of long ones their beginning and end. Raises EncoderError."""
    vectors = await encoder.vectors_of([bounded(question), bounded(text)])
    return float(vectors[0] @ vectors[1])


async def _is_idle(encoder: Encoder) -> bool:
    try:
        async with asyncio.timeout(IDLE_S):
            await encoder.until_idle()
    except TimeoutError:
        return False
    return True


async def _words_of(text: str) -> dict[str, float]:
    return await asyncio.to_thread(measured_text, text) if len(text) > LARGE_CHARS else measured_text(text)
