"""Stage 6: find a worker that begins to answer.

A worker that fails before its first byte is left out and the next one is asked; once a byte of the answer
has gone to the client nothing is ever sent twice (NuGuard#455), because this stage is over by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from gateway.errors import RequestError, UpstreamError, UpstreamRejected
from gateway.flow.attempt import Begun, verdict_of
from gateway.flow.blame import forget_what_is_no_field
from gateway.flow.messages import dumps
from gateway.flow.search import Search
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn
from gateway.pool.breaker import Verdict
from gateway.pool.refusal import refusal_inside_stream
from gateway.pool.reply import Reply
from gateway.pool.worker import Worker
from gateway.telemetry.spans import TurnSpan
from worker.protocol import XARGS_KEY

if TYPE_CHECKING:
    from gateway.flow.deps import Deps


@asynccontextmanager
async def dispatch(turn: Turn, deps: Deps, tally: Tally) -> AsyncIterator[tuple[Turn, Reply]]:
    """Give the turn as it was sent and the answer that has begun; end both with the block.

    Leaving it early, by an error or because the client has gone, closes the worker's connection, which stops
    its work. Raises ModelNotFound, NoWorkers, QueueFull, UpstreamError, UpstreamTimeout, UpstreamRejected.
    """
    attempt, begun = await Search(turn, deps, tally, body_for).find(
        partial(_begin, deps=deps, span=tally.span)
    )
    tally.estimate, reply = begun.estimate, begun.reply
    verdict: Verdict = "neutral"
    ended = "error"
    try:
        yield begun.turn, reply
        verdict, ended = "success", "stop"
        await reply.settle()
    except RequestError as error:
        verdict = verdict_of(error)
        forget_what_is_no_field(error, begun.turn)
        raise
    except asyncio.CancelledError:
        ended = "cancelled" if ended == "error" else ended
        raise
    finally:
        tally.end_estimate(ended)
        reply.close()
        attempt.lease.end(verdict)


async def _begin(turn: Turn, worker: Worker, deps: Deps, span: TurnSpan) -> Begun:
    """Send the turn. What an opaque worker refuses of our own additions is left out at once (opaque.py)."""
    if worker.level == "native":
        return Begun(turn, await _send(turn, worker, span), None)
    first = additions = await deps.opaque.additions(turn, worker)
    while True:
        sent = additions.laid_over(turn)
        try:
            reply = await _send(sent, worker, span)
        except UpstreamRejected as error:
            fewer = additions.fewer(error)
            if fewer is None:
                raise
            additions = fewer
            continue
        if additions.is_reduced:
            deps.opaque.remember(turn, worker, additions, first)
        return Begun(sent, reply, deps.opaque.estimate(sent, worker))


async def _send(turn: Turn, worker: Worker, span: TurnSpan) -> Reply:
    """Send the request, as a part of the turn's trace, and wait for the first sign of an answer."""
    with span.part("dispatch", "client") as part:
        part.tell({"gravity.worker": worker.name, "gravity.worker_level": worker.level})
        return await _answering(turn, worker, part.headers)


async def _answering(turn: Turn, worker: Worker, headers: Mapping[str, str]) -> Reply:
    """Return the answer once there is something of it: an event, or the whole."""
    body = dumps(turn.upstream_body)
    reply = await worker.client.send(turn.endpoint, body, is_streaming=turn.is_streaming, headers=headers)
    try:
        if turn.is_streaming:
            first = await reply.peek()
            if first is None:
                raise UpstreamError("The worker sent an empty answer.")
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
