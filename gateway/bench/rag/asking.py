"""Asks the questions of a round in every arm, one request at a time, and times each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from redis.asyncio import Redis

from gateway.api.answer import TURN_HEADER
from gateway.bench.rag.figures import RIVAL, Answer, Arm, Asked
from gateway.bench.rag.questions import NUM_CHUNKS, Question
from gateway.bench.rag.rival import Rival
from gateway.bench.rag.task import TASK
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.trace.keys import turn_key

MODEL = "SmolLM2-135M-Instruct"
MAX_TOKENS = 48
RECORDED_S = 30.0
POLL_S = 0.05
TIMEOUT_S = 600.0
WARM_UP, WARM_UP_CHARS = "What are these texts about?", 40
_OURS: tuple[Arm, ...] = ("cold", "warm", "again")
_JSON = {"content-type": "application/json"}
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sides:
    """A stack whose encoder knows no chunk yet, what its processes use, and who reads everything."""

    gateway_url: str
    redis_url: str
    usages: tuple[Usage, ...]
    rival: Rival
    task: str = TASK
    max_tokens: int = MAX_TOKENS
    """All of which are written, whatever the model would have ended."""


class Round:
    """One round. While a side answers the processes of the other are at rest."""

    def __init__(self, number: int, sides: Sides, tell: Tell) -> None:
        self._number = number
        self._sides = sides
        self._tell = tell
        self._rivals = Usage(sides.rival.pid, RIVAL)

    async def ask_all(self, questions: Sequence[Question]) -> list[Asked]:
        """Raises CommandError where anybody does not answer."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(self._sides.gateway_url, timeout=timeout) as session,
            Redis.from_url(self._sides.redis_url) as redis,
        ):
            await self._warm_up(session, redis, questions[0])
            return [
                await self._ask(place, question, session, redis) for place, question in enumerate(questions)
            ]

    async def _warm_up(self, session: aiohttp.ClientSession, redis: Redis, question: Question) -> None:
        """Load what is loaded late, by texts cut short and another question: their encodings help nobody."""
        documents = [{"id": each.id, "text": each.text[:WARM_UP_CHARS]} for each in question.documents]
        await self._answered(session, redis, self._body("warm-up", WARM_UP, documents))
        await self._sides.rival.answer(question.messages, 2)

    async def _ask(
        self, place: int, question: Question, session: aiohttp.ClientSession, redis: Redis
    ) -> Asked:
        documents = [{"id": each.id, "title": each.title, "text": each.text} for each in question.documents]
        answers: dict[Arm, Answer] = {}
        for arm in order_of(place + self._number):
            if arm == RIVAL:
                answers[arm] = await self._generated(question)
                continue
            # ``again`` is ``warm`` word for word; ``cold`` and ``warm`` differ from their first words on.
            named = f"{'cold' if arm == 'cold' else 'warm'} {self._number} {question.request.id}"
            body = self._body(named, question.request.question, documents)
            answers[arm] = await self._answered(session, redis, body)
        seconds = ", ".join(f"{arm} {answer.cpu_s:.1f}" for arm, answer in answers.items())
        self._tell(f"round {self._number + 1}, question {place + 1}, CPU s: {seconds}")
        return Asked(question.request.id, question.request.answers, answers)

    async def _generated(self, question: Question) -> Answer:
        messages = [_system(f"{RIVAL} {self._number} {question.request.id}"), *question.messages]
        before_s, began = await self._rivals.settled_cpu_s(), time.perf_counter()
        told = await self._sides.rival.answer(messages, self._sides.max_tokens)
        wall_s = time.perf_counter() - began
        cpu_s = await self._rivals.settled_cpu_s() - before_s
        return Answer(
            told["text"], wall_s, cpu_s, told["prompt_tokens"], told["completion_tokens"], NUM_CHUNKS
        )

    async def _answered(
        self, session: aiohttp.ClientSession, redis: Redis, body: Mapping[str, Any]
    ) -> Answer:
        """The CPU is that of gateway, worker and Valkey, what they do after the answer included."""
        content = orjson.dumps(body)
        before_s, began = await self._cpu_s(), time.perf_counter()
        async with session.post("/v1/chat/completions", data=content, headers=_JSON) as response:
            answer = orjson.loads(await response.read())
            wall_s = time.perf_counter() - began
            if response.status != 200:
                raise CommandError(f"the gateway answers {response.status}: {answer}")
        cpu_s = await self._cpu_s() - before_s
        record = await _record(redis, response.headers[TURN_HEADER])
        report, outcome = record["prune_report"], record["outcome"]
        return Answer(
            answer["choices"][0]["message"]["content"] or "",
            wall_s,
            cpu_s,
            answer["usage"]["prompt_tokens"],
            answer["usage"]["completion_tokens"],
            sum(verdict["is_kept"] for verdict in report["verdicts"]),
            report["encode_ms"],
            report["num_cache_hits"],
            outcome["cached_prompt_tokens"] or 0,
        )

    def _body(self, named: str, question: str, documents: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        return {
            "model": MODEL,
            "messages": [_system(named), {"role": "user", "content": question}],
            "documents": documents,
            "task": self._sides.task,
            "max_tokens": self._sides.max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
        }

    async def _cpu_s(self) -> float:
        return sum([await usage.settled_cpu_s() for usage in self._sides.usages])


def order_of(place: int) -> tuple[Arm, ...]:
    """Return the arms: ours in their order, ``generate`` before, between or after them, in turn."""
    at = place % (len(_OURS) + 1)
    return (*_OURS[:at], RIVAL, *_OURS[at:])


def _system(named: str) -> Mapping[str, str]:
    """Return a first message that no other prompt begins with: no beginning is known from before."""
    return {"role": "system", "content": f"{named}. You answer from documents."}


async def _record(redis: Redis, turn_id: str) -> dict[str, Any]:
    """Return the turn's record once it is written. Raises CommandError after RECORDED_S."""
    deadline = time.monotonic() + RECORDED_S
    while True:
        if content := await redis.get(turn_key(turn_id)):
            record: dict[str, Any] = orjson.loads(content)
            return record
        if time.monotonic() > deadline:
            raise CommandError(f"turn {turn_id} was not recorded in {RECORDED_S:.0f} s")
        await asyncio.sleep(POLL_S)
