"""Runs a job for a client that may leave at any moment, and answers whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response

from worker.errors import WorkerError
from worker.server.choice import Piece
from worker.server.deps import Deps
from worker.server.disconnect import until_client_leaves
from worker.server.generation import FinishedChoice, Generation
from worker.server.job import Job
from worker.server.schema import GenerationBody
from worker.server.sinks import trace_sinks
from worker.server.sse import DONE, EventStream, frame

Usage = dict[str, Any]


class Shape(Protocol):
    """How one endpoint writes its objects. Every object is a dict ready for JSON."""

    def whole(self, choices: Sequence[FinishedChoice], usage: Usage) -> dict[str, Any]: ...

    def chunks(self, piece: Piece) -> list[dict[str, Any]]:
        """The stream's chunks for one piece; the first chunk of a choice opens it."""
        ...

    def usage_chunk(self, usage: Usage) -> dict[str, Any]: ...


def head_of(kind: str, body: GenerationBody, job: Job, deps: Deps) -> dict[str, Any]:
    """Return what every object of one answer begins with."""
    return {
        "id": job.id,
        "object": kind,
        "created": int(deps.now_s()),
        "model": body.model,
        "system_fingerprint": deps.fingerprint,
    }


def tail_of(body: GenerationBody) -> dict[str, Any]:
    """Return what every chunk ends with: where a usage chunk follows, the others say that they have none."""
    return {"usage": None} if body.wants_usage_chunk else {}


def ended(chunk: dict[str, Any], piece: Piece) -> dict[str, Any]:
    """Return the chunk as the last one of its choice: why it finished, and what was measured."""
    assert piece.summary is not None
    chunk["choices"][0] |= {
        "finish_reason": piece.finish_reason,
        "gravity": piece.summary.model_dump(exclude_none=True),
    }
    return chunk


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


async def answer(request: Request, deps: Deps, body: GenerationBody, job: Job, shape: Shape) -> Response:
    """Raises WorkerError for what goes wrong before the first event; after it, the stream says so itself."""
    generation = Generation(job, job.requests(), trace_sinks(job.controls, deps.trace), deps)
    headers = {"x-request-id": job.id}
    if not body.stream:
        async with generation:
            choices = await until_client_leaves(request.receive, generation.collect())
            return JsonResponse(shape.whole(choices, _usage(generation)), headers=headers)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(generation)
        batches = generation.pieces()
        first = await until_client_leaves(request.receive, anext(batches))
        stack.pop_all()  # from here on the frames own the generation
    frames = _frames(first, batches, generation, deps, shape, wants_usage=body.wants_usage_chunk)
    return EventStream(frames, ping_s=deps.settings.ping_s, on_end=generation.close, headers=headers)


async def _frames(
    first: list[Piece],
    batches: AsyncGenerator[list[Piece], None],
    generation: Generation,
    deps: Deps,
    shape: Shape,
    *,
    wants_usage: bool,
) -> AsyncGenerator[bytes, None]:
    try:
        yield _encoded(first, shape)
        async for batch in batches:
            yield _encoded(batch, shape)
        if wants_usage:
            yield frame(shape.usage_chunk(_usage(generation)))
    except WorkerError as error:
        generation.close()
        deps.metrics.observe_error(error.code)
        yield frame(error.body())
    yield DONE


def _encoded(pieces: Sequence[Piece], shape: Shape) -> bytes:
    return b"".join(frame(chunk) for piece in pieces for chunk in shape.chunks(piece))


def _usage(generation: Generation) -> Usage:
    prompt, completion = generation.job.num_prompt_tokens, generation.num_completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": generation.num_cached_prompt_tokens},
    }
