"""One worker and one request at a time: the prompt as the product builds it, the answer, and what it took."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx
import orjson

from gateway.context.decide import TokenCounts, unpruned_report
from gateway.context.report import Document
from gateway.errors import CommandError
from gateway.flow.shape import before_question, render_context
from gateway.pool.events import EventParser
from gateway.stack.child import keep_quiet
from gateway.stack.environment import child_environment
from gateway.stack.ports import free_port
from gateway.stack.stack import StackPlan, running
from gateway.store.document import ContextSection

QUESTION = "{question}"
"""The wording in every arm, chosen for the arm of all chunks, on training data and without any pruning.

Right answers from all chunks of 38 requests, SmolLM2-135M-Instruct, 32 tokens: the question alone 5; after
"Answer the question with a short phrase from the documents." 5; after "Using only the documents above, answer
in one short sentence:" 5; as "Question: … Answer:" 4; before "Answer in a few words." 4. The differences are
noise, so it is what a client of the gateway sends.
"""
MAX_TOKENS = 32
"""With 48 tokens four of these wordings had the same number right, and "Question: … Answer:" one more."""

WORKER_SETTINGS = {"NG_WORKER_THREADS": "1", "NG_WORKER_MAX_CONTEXT": "8192", "NG_WORKER_MAX_BATCH": "1"}
"""Used unless the environment has its own: one thread, all of the bundled model's context, one request."""
TIMEOUT = httpx.Timeout(10.0, read=600.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer. ``ttft_s`` is until its first text, or until its end where it has none."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    ttft_s: float
    total_s: float
    cpu_s: float
    """Of the worker's process and its children."""


class AnsweringWorker:
    """A worker that nobody else asks meanwhile, so that its processor time is the request's own."""

    def __init__(self, client: httpx.AsyncClient, pid: int, model: Mapping[str, Any]) -> None:
        self._client = client
        self._clock = ProcessClock(pid)
        self.model = str(model["id"])
        self.dtype = str(model.get("gravity", {}).get("dtype", ""))
        self.max_context = int(model["max_model_len"])

    @classmethod
    async def connect(cls, client: httpx.AsyncClient, pid: int) -> Self:
        """Ask the worker, process ``pid``, what it serves. Raises CommandError."""
        return cls(client, pid, (await _ask(client, "GET", "/v1/models"))["data"][0])

    def cpu_s(self) -> float:
        """Return the processor time of the worker so far."""
        return self._clock.cpu_s()

    async def count_tokens(self, texts: Sequence[str]) -> TokenCounts:
        """Count with the model's own tokenizer, as the gateway does."""
        answer = await _ask(self._client, "POST", "/tokenize", {"model": self.model, "prompts": list(texts)})
        return answer["counts"], False

    async def num_fitting(self, question: str, documents: Sequence[Document], context: ContextSection) -> int:
        """Return how many of ``documents``, from the first, fit the context with question and answer."""
        fitting, too_many = 0, len(documents) + 1
        trial = len(documents)
        while too_many - fitting > 1:
            messages = messages_of(question, documents[:trial], context)
            count = await _ask(self._client, "POST", "/tokenize", {"model": self.model, "messages": messages})
            if count["count"] + MAX_TOKENS <= self.max_context:
                fitting = trial
            else:
                too_many = trial
            trial = (fitting + too_many) // 2
        return fitting

    async def answer(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        """Answer greedily. Raises CommandError where the worker refuses or fails."""
        body = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": MAX_TOKENS,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        cpu_s, started_s = self.cpu_s(), time.perf_counter()
        text, ttft_s = "", None
        usage: Mapping[str, int] = {}
        async for event in _events(self._client, body):
            usage = event.get("usage") or usage
            piece = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if piece:
                ttft_s = ttft_s or time.perf_counter() - started_s
                text += piece
        total_s = time.perf_counter() - started_s
        if not usage:
            raise CommandError("the worker's stream ended before its answer did")
        return Answer(
            text=text,
            prompt_tokens=usage["prompt_tokens"],
            completion_tokens=usage["completion_tokens"],
            ttft_s=total_s if ttft_s is None else ttft_s,
            total_s=total_s,
            cpu_s=self.cpu_s() - cpu_s,
        )


class ProcessClock:
    """Processor time of a process and its children, in ticks of 10 ms on Linux."""

    def __init__(self, pid: int) -> None:
        try:
            import psutil  # type: ignore[import-untyped]
        except ImportError as error:
            raise CommandError("psutil is missing: pip install 'narrative-gravity[evaluation]'") from error
        self._process = psutil.Process(pid)
        self._gone = psutil.NoSuchProcess

    def cpu_s(self) -> float:
        """Return user and system time so far, in seconds. Raises CommandError where the process has ended."""
        try:
            times = [each.cpu_times() for each in (self._process, *self._process.children(recursive=True))]
        except self._gone as error:
            raise CommandError(f"the worker, process {error.pid}, has ended") from error
        return float(sum(each.user + each.system for each in times))


def messages_of(
    question: str, documents: Sequence[Document], context: ContextSection
) -> list[Mapping[str, Any]]:
    """Return the messages that the gateway sends for a question with these documents kept."""
    asked = [{"role": "user", "content": QUESTION.format(question=question)}]
    everything = unpruned_report(documents, ([0] * len(documents), True), "")
    shown = render_context(documents, everything, context)
    return before_question(asked, shown) if shown else list(asked)


@asynccontextmanager
async def started_worker() -> AsyncIterator[AnsweringWorker]:
    """Start a worker of its own and end it afterwards. Raises CommandError where it cannot run."""
    settings = {name: os.environ.get(name, value) for name, value in WORKER_SETTINGS.items()}
    plan = StackPlan(None, free_port(), free_port(), None, child_environment() | settings)
    async with running(plan, keep_quiet) as stack:
        pid = next(child.pid for child in stack.children if child.name == "worker")
        async with httpx.AsyncClient(base_url=stack.worker_url, timeout=TIMEOUT) as client:
            yield await AnsweringWorker.connect(client, pid)


async def _ask(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> dict[str, Any]:
    try:
        answer = await client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise CommandError(f"the worker at {client.base_url} does not answer: {error!r}") from error
    if answer.status_code != httpx.codes.OK:
        raise CommandError(f"the worker refused {path} ({answer.status_code}): {answer.text}")
    parsed: dict[str, Any] = answer.json()
    return parsed


async def _events(client: httpx.AsyncClient, body: object) -> AsyncIterator[dict[str, Any]]:
    """Give the chunks of a streamed answer."""
    parser = EventParser()
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                problem = (await response.aread()).decode(errors="replace")
                raise CommandError(f"the worker refused the request ({response.status_code}): {problem}")
            async for chunk in response.aiter_bytes():
                for data in parser.feed(chunk):
                    if data != b"[DONE]":
                        yield orjson.loads(data)
    except httpx.HTTPError as error:
        raise CommandError(f"the worker at {client.base_url} failed: {error!r}") from error
