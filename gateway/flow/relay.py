"""Stage 7: the worker's answer to the client, as it comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import orjson

from gateway.errors import UpstreamError
from gateway.flow.chunks import Chunks, fingerprint, finish_reason_of
from gateway.flow.explain import closing, opening
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn
from gateway.pool.refusal import refusal_inside_stream
from gateway.pool.reply import Reply

Emit: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Takes the data of one event of a stream, or the whole of an answer that is not streamed."""

DONE = b"[DONE]"


async def relay(turn: Turn, reply: Reply, tally: Tally, emit: Emit) -> None:
    """Emit the answer. Raises UpstreamError and UpstreamTimeout where it does not come to its end."""
    if turn.is_streaming:
        await _relay_stream(turn, reply, tally, emit)
    else:
        await emit(_rewritten_whole(turn, reply.whole(), tally))
    tally.complete()


async def _relay_stream(turn: Turn, reply: Reply, tally: Tally, emit: Emit) -> None:
    chunks = Chunks(turn, tally)
    said_done = False
    async for event in reply:
        if event == DONE:
            said_done = True
            break
        chunk = chunks.rewrite(event)
        if chunk is not None:
            await emit(chunk)
    for chunk in chunks.finish(said_done=said_done):
        await emit(chunk)
    await emit(DONE)


def _rewritten_whole(turn: Turn, body: bytes, tally: Tally) -> bytes:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UpstreamError("The worker did not answer with JSON.") from error
    if not isinstance(answer, dict):
        raise UpstreamError("The worker did not answer with a JSON object.")
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        if answer.get("error"):
            raise refusal_inside_stream(answer["error"])
        raise UpstreamError("The worker's answer has no choices.")
    for position, choice in enumerate(choices):
        _take_choice(choice, position, tally)
    tally.add_usage(answer.get("usage"))
    answer["model"] = turn.model
    answer["system_fingerprint"] = fingerprint(answer.get("system_fingerprint"), turn.config_sha)
    answer["gravity"] = opening(turn) | closing(tally.outcome())
    return orjson.dumps(answer)


def _take_choice(choice: Any, position: int, tally: Tally) -> None:
    if not isinstance(choice, dict):
        raise UpstreamError("The worker's answer has a choice that is none.")
    if not isinstance(choice.get("index"), int):
        choice["index"] = position
    index = position
    if tally.estimate is not None:
        tally.estimate.take(index, choice)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    if isinstance(text, str):
        tally.add_text(index, text)
    reason = choice.get("finish_reason")
    choice["finish_reason"] = finish_reason_of("stop" if reason is None else reason)
    tally.add_finish(index, choice["finish_reason"])
    tally.add_summary(index, choice.pop("gravity", None))
