"""Stage 6: find a worker that begins to answer.

A worker that fails before its first byte is left out and the next one is asked; once a byte of the answer
has gone to the client nothing is ever sent twice (NuGuard#455), because this stage is over by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from gateway.errors import (
    NoWorkers,
    QueueFull,
    RequestError,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    WorkerUnreachable,
)
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn
from gateway.pool.breaker import Verdict
from gateway.pool.client import Reply
from gateway.pool.refusal import refusal_inside_stream
from gateway.pool.worker import Lease, Worker
from gateway.telemetry.logs import log
from worker.protocol import XARGS_KEY

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

RETRY_AFTER_S = 1.0

logger = logging.getLogger(__name__)


@asynccontextmanager
async def dispatch(turn: Turn, deps: Deps, tally: Tally) -> AsyncIterator[tuple[Turn, Reply]]:
    """Give the turn as it was sent and the answer that has begun; end both with the block.

    Leaving it early, by an error or because the client has gone, closes the worker's connection, which stops
    its work. Raises ModelNotFound, NoWorkers, QueueFull, UpstreamError, UpstreamTimeout, UpstreamRejected.
    """
    turn, reply, lease = await _find(turn, deps, tally)
    verdict: Verdict = "neutral"
    ended = "error"
    try:
        yield turn, reply
        verdict, ended = "success", "stop"
        await reply.settle()
    except RequestError as error:
        verdict = verdict_of(error)
        raise
    except asyncio.CancelledError:
        ended = "cancelled" if ended == "error" else ended
        raise
    finally:
        tally.end_estimate(ended)
        reply.close()
        lease.end(verdict)


def verdict_of(error: BaseException) -> Verdict:
    """4xx, 429 and 503 say nothing about a worker's health (sglang#25811)."""
    return "failure" if isinstance(error, UpstreamError | UpstreamTimeout) else "neutral"


def is_worth_retrying(error: RequestError) -> bool:
    """Whether another worker may do better."""
    return isinstance(error, UpstreamError | UpstreamTimeout | NoWorkers | QueueFull)


async def _find(turn: Turn, deps: Deps, tally: Tally) -> tuple[Turn, Reply, Lease]:
    tried: list[Worker] = []
    failure: RequestError | None = None
    while len(tried) < deps.settings.max_attempts:
        try:
            worker = deps.pool.pick(turn.model, turn.bucket, tried)
        except NoWorkers as error:
            failure = failure or error
            break
        if tried:
            deps.metrics.retries.inc()
        tried.append(worker)
        tally.worker, tally.num_attempts = worker.name, len(tried)
        sent = replace(
            turn,
            worker=worker.name,
            num_attempts=len(tried),
            environment=worker.environment,
            upstream_body=body_for(turn, worker),
        )
        try:
            sent, reply, lease = await _begun(sent, worker, deps, tally)
        except RequestError as error:
            log(logger, logging.WARNING, "worker_refused", worker=worker.name, code=error.code, turn=turn.id)
            if not is_worth_retrying(error):
                raise
            # A full queue is worth telling: the client may simply come back.
            failure = failure if isinstance(failure, QueueFull) else error
            continue
        return sent, reply, lease
    if failure is None or isinstance(failure, WorkerUnreachable):
        raise NoWorkers(retry_after_s=RETRY_AFTER_S) from failure
    raise failure


async def _begun(turn: Turn, worker: Worker, deps: Deps, tally: Tally) -> tuple[Turn, Reply, Lease]:
    """Send the turn. What an opaque worker refuses of our own additions is left out at once (opaque.py)."""
    if worker.level == "native":
        return turn, *await _attempt(turn, worker)
    first = additions = await deps.opaque.additions(turn, worker)
    while True:
        sent = additions.laid_over(turn)
        try:
            reply, lease = await _attempt(sent, worker)
        except UpstreamRejected as error:
            fewer = additions.fewer(error)
            if fewer is None:
                raise
            additions = fewer
            continue
        if additions.is_reduced:
            deps.opaque.remember(turn, worker, additions, first)
        tally.estimate = deps.opaque.estimate(sent, worker)
        return sent, reply, lease


async def _attempt(turn: Turn, worker: Worker) -> tuple[Reply, Lease]:
    lease = worker.take(turn.bucket)
    try:
        return await _begin(turn, worker), lease
    except BaseException as error:  # a cancelled attempt is counted out too
        if isinstance(error, WorkerUnreachable):
            worker.failed_probe(error)
        lease.end(verdict_of(error))
        raise


async def _begin(turn: Turn, worker: Worker) -> Reply:
    """Send the request and wait for the first sign of an answer: an event, or the whole of it."""
    body = orjson.dumps(turn.upstream_body)
    reply = await worker.client.send(turn.endpoint, body, is_streaming=turn.is_streaming)
    try:
        if not turn.is_streaming:
            await reply.whole()
        elif (first := await reply.peek()) is None:
            raise UpstreamError("The worker sent an empty answer.")
        else:
            raise_if_error(first)
    except BaseException:
        reply.close()
        raise
    return reply


def raise_if_error(event: bytes) -> None:
    """Raise what ``{"error": …}`` inside a stream that began with 200 means (any-llm#847)."""
    if b'"error"' not in event:
        return
    try:
        parsed = orjson.loads(event)
    except orjson.JSONDecodeError:
        return
    if isinstance(parsed, dict) and parsed.get("error") and not parsed.get("choices"):
        raise refusal_inside_stream(parsed["error"])


def body_for(turn: Turn, worker: Worker) -> dict[str, Any]:
    """Return what is sent: usage is always asked for; the controls go to workers that know them."""
    body = {**turn.upstream_body, "model": turn.model}
    body.pop("stream", None)
    body.pop("stream_options", None)
    if turn.is_streaming:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    extra = body.pop("vllm_xargs", None)
    arguments = (
        {name: value for name, value in extra.items() if name != XARGS_KEY} if isinstance(extra, dict) else {}
    )
    if worker.level == "native":
        arguments[XARGS_KEY] = turn.controls.model_dump_json(exclude_none=True)
    if arguments:
        body["vllm_xargs"] = arguments
    return body
