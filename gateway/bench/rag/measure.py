"""Runs the questions: for every round a new stack, whose encoder knows no chunk, and ``generate`` beside."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from redis.asyncio import Redis

from gateway.api.answer import TURN_HEADER
from gateway.bench.rag.figures import RIVAL, Answer, Arm, Asked
from gateway.bench.rag.questions import NUM_CHUNKS, Messages, Question, choose
from gateway.bench.rag.rival import Rival, generating
from gateway.bench.rag.task import TASK, write_task
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.lab.labelled import read_labelled
from gateway.stack.ports import free_port
from gateway.stack.stack import Stack, StackPlan, running
from gateway.store.document import ContextSection
from gateway.trace.keys import turn_key

MAX_TOKENS = 48
CONTEXT = 4_096
RECORDED_S = 30.0
POLL_S = 0.05
TIMEOUT_S = 600.0
ENCODER_S = 60.0
"""Longer than a gateway would wait: on a busy machine a request must not go on unpruned."""
WARM_UP = "What are these texts about?"
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
"""torch's names of the worker's."""
_OURS: tuple[Arm, ...] = ("cold", "warm", "again")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RagPlan:
    """``rival_dtype`` None is the worker's own."""

    data: tuple[Path, ...]
    model_folder: Path
    num_questions: int = 20
    num_rounds: int = 1
    seed: int = 0
    rival_dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """``load`` is the load average over a minute, before and after."""

    asked: tuple[Asked, ...]
    worker_dtype: str
    rival_dtype: str
    load: tuple[float, float]


async def measure(plan: RagPlan, tell: Tell) -> Measured:
    """Raises CommandError where the data are too few, or anybody does not answer."""
    asked: list[Asked] = []
    before = os.getloadavg()[0]
    async with AsyncExitStack() as started:
        folder = Path(started.enter_context(tempfile.TemporaryDirectory(prefix="gravity-rag-"))) / "configs"
        questions = _questions(plan, write_task(folder).context)
        dtype = rival_dtype = ""
        rival: Rival | None = None
        for number in range(plan.num_rounds):
            tell(f"round {number + 1} of {plan.num_rounds}: starting a gateway and a worker")
            async with running(_stack_plan(folder, plan), _quiet) as stack:
                if rival is None:
                    dtype = await _dtype(stack.worker_url)
                    rival_dtype = plan.rival_dtype or dtype
                    generates = generating(plan.model_folder, DTYPES[rival_dtype], 1)
                    rival = await started.enter_async_context(generates)
                asked += await _Round(number, stack, rival, tell).ask_all(questions)
    return Measured(tuple(asked), dtype, rival_dtype, (before, os.getloadavg()[0]))


class _Round:
    """All questions in every arm, one request at a time, each arm with the other's processes at rest."""

    def __init__(self, number: int, stack: Stack, rival: Rival, tell: Tell) -> None:
        self._number = number
        self._stack = stack
        self._rival = rival
        self._tell = tell
        self._ours = [Usage(child.pid, child.name) for child in stack.children]
        self._theirs = Usage(rival.pid, RIVAL)

    async def ask_all(self, questions: Sequence[Question]) -> list[Asked]:
        """The first question is asked once more before, for what is loaded late, and thrown away."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        asked = []
        async with (
            aiohttp.ClientSession(self._stack.gateway_url, timeout=timeout) as session,
            Redis.from_url(self._stack.redis_url) as redis,
        ):
            await self._warm_up(session, redis, questions[0])
            for place, question in enumerate(questions):
                self._tell(f"round {self._number + 1}: question {place + 1} of {len(questions)}")
                answers: dict[Arm, Answer] = {}
                for arm in _order(place + self._number):
                    if arm == RIVAL:
                        answers[arm] = await self._generated(question)
                    else:
                        answers[arm] = await self._ask(arm, question, session, redis)
                asked.append(Asked(question.request.id, question.request.answers, answers))
        return asked

    async def _warm_up(self, session: aiohttp.ClientSession, redis: Redis, question: Question) -> None:
        """Ask something else of other chunks: those of the question, cut short, whose encodings help nobody."""
        documents = [{"id": each.id, "text": each.text[:200]} for each in question.documents]
        await self._answered(session, redis, _body("warm-up", WARM_UP, documents))
        await self._rival.answer(question.messages[:1], 2)

    async def _generated(self, question: Question) -> Answer:
        messages = [_system(f"{RIVAL} {self._number} {question.request.id}"), *question.messages]
        before_s, began = await self._theirs.settled_cpu_s(), time.perf_counter()
        told = await self._rival.answer(messages, MAX_TOKENS)
        wall_s = time.perf_counter() - began
        cpu_s = await self._theirs.settled_cpu_s() - before_s
        return Answer(
            told["text"], wall_s, cpu_s, told["prompt_tokens"], told["completion_tokens"], NUM_CHUNKS
        )

    async def _ask(
        self, arm: Arm, question: Question, session: aiohttp.ClientSession, redis: Redis
    ) -> Answer:
        documents = [{"id": each.id, "title": each.title, "text": each.text} for each in question.documents]
        # ``again`` is ``warm`` word for word; ``cold`` and ``warm`` differ from their first words on.
        named = f"{'cold' if arm == 'cold' else 'warm'} {self._number} {question.request.id}"
        return await self._answered(session, redis, _body(named, question.request.question, documents))

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

    async def _cpu_s(self) -> float:
        return sum([await usage.settled_cpu_s() for usage in self._ours])


def _order(place: int) -> tuple[Arm, ...]:
    """Ours come in their order, ``generate`` before, between or after them, in turn."""
    at = place % (len(_OURS) + 1)
    return (*_OURS[:at], RIVAL, *_OURS[at:])


def _body(named: str, question: str, documents: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    asked = [_system(named), {"role": "user", "content": question}]
    return {
        "model": "SmolLM2-135M-Instruct",
        "messages": asked,
        "documents": documents,
        "task": TASK,
        "max_tokens": MAX_TOKENS,
        "temperature": 0.0,
        "ignore_eos": True,
    }


def _system(named: str) -> Mapping[str, str]:
    """Return a first message that no other prompt begins with: no beginning is known from before."""
    return {"role": "system", "content": f"{named}. You answer from documents."}


def _questions(plan: RagPlan, context: ContextSection) -> list[Question]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(plan.model_folder), trust_remote_code=False)

    def count_tokens(messages: Messages) -> int:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return len(tokenizer.encode(text, add_special_tokens=False))

    requests = read_labelled(plan.data)
    return choose(requests, plan.num_questions, plan.seed, (context, count_tokens))


def _stack_plan(folder: Path, plan: RagPlan) -> StackPlan:
    environment = {
        "NG_CONFIG_DIR": str(folder),
        "NG_CONFIG_STORE": "files",
        "NG_ENCODER_TIMEOUT_S": f"{ENCODER_S:g}",
        "NG_WORKER_MODEL": str(plan.model_folder),
        "NG_WORKER_SERVED_NAME": "SmolLM2-135M-Instruct",
        "NG_WORKER_THREADS": "1",
        "NG_WORKER_MAX_CONTEXT": str(CONTEXT),
    }
    return StackPlan(free_port(), free_port(), free_port(), None, environment)


async def _dtype(worker_url: str) -> str:
    async with aiohttp.ClientSession(worker_url) as session, session.get("/v1/models") as response:
        return str((await response.json())["data"][0]["gravity"]["dtype"])


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


def _quiet(name: str, line: str) -> None:
    """A process that fails shows its last lines."""


_JSON = {"content-type": "application/json"}
